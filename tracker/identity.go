package tracker

import "k8s.io/apimachinery/pkg/types"

// Identity tells one version of an object from all others of its kind.
type Identity struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

// Identity returns the identity of the node.
func (n *Node) Identity() Identity { return Identity{"", n.Name, n.UID, n.ResourceVersion} }

// Identity returns the identity of the pod.
func (p *Pod) Identity() Identity { return Identity{p.Namespace, p.Name, p.UID, p.ResourceVersion} }

// Identity returns the identity of the slice.
func (s *Slice) Identity() Identity { return Identity{"", s.Name, s.UID, s.ResourceVersion} }

// Identity returns the identity of the claim.
func (c *Claim) Identity() Identity { return Identity{c.Namespace, c.Name, c.UID, c.ResourceVersion} }

// Identity returns the identity of the rule.
func (r *Rule) Identity() Identity { return Identity{"", r.Name, r.UID, r.ResourceVersion} }

// Identity returns the identity of the budget.
func (b *Budget) Identity() Identity { return Identity{b.Namespace, b.Name, b.UID, b.ResourceVersion} }
