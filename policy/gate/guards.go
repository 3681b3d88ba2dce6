package gate

// Guard is a policy that guards a gate, for those who ask why a pod waits.
type Guard struct {
	// Policy is "GatePolicy/name".
	Policy string
	// Owners says who may remove the gate, as a denial does.
	Owners string
	// Denies is false where others than the owners are only warned of, or recorded.
	Denies bool
	// Message is what the policy says to those who may not; empty for nothing.
	Message string
}

// Guards returns the policies that guard a gate, by name. All of them must have who
// removes it among their owners. None means that everybody may who may change the pod.
func (s *Set) Guards(gate string) []Guard {
	if s.Len() == 0 {
		return nil
	}
	var guards []Guard
	for _, position := range s.guarding(gate) {
		c := s.Policies[position]
		guards = append(guards, Guard{Policy: c.ref, Owners: c.remedy, Denies: c.denies, Message: c.message})
	}
	return guards
}
