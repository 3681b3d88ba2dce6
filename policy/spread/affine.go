package spread

// Affine reports whether a node is one that the pod requires by its nodeSelector and its
// required node affinity, whatever its taints.
func (s *Spreading) Affine(node *Node) bool { return s.required.matches(node) }
