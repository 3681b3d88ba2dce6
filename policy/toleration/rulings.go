package toleration

import "context"

// Ruling is what one policy says to one toleration of pods that stand already.
type Ruling struct {
	// Policy is the name of the policy.
	Policy string
	// Index is where the toleration stands, and Toleration what it is, in words.
	Index      int
	Toleration string
	// Granted is true when the policy grants it, as far as that can be told: what depends
	// on who made the pod is not held against it.
	Granted bool
	// Allowed says whom the policy grants what.
	Allowed string
	// Denies is false when the policy only warns of what it does not grant, or records it.
	Denies bool
}

// Rulings returns what every policy says that guards a toleration of pods, by toleration
// and name. Audit judges in the same way, and names no more than the first violation.
func (s *Set) Rulings(ctx context.Context, in AuditInput) ([]Ruling, error) {
	if s.Len() == 0 || len(in.Tolerations) == 0 {
		return nil, nil
	}
	h := newHearing(in.input())
	asked := Asked{New: in.Tolerations}
	var rulings []Ruling
	for i, t := range h.fresh(&asked) {
		for position := range s.guarding(&t) {
			c := s.Policies[position]
			r := h.rule(ctx, &question{position: position, policy: c, t: &t, asked: &asked, i: i, outlasts: c.outlasted(&t) != nil})
			if !r.allowed && r.fault != nil {
				return nil, r.fault
			}
			rulings = append(rulings, Ruling{
				Policy: c.name, Index: i, Toleration: describe(&t), Granted: r.allowed, Allowed: c.remedy, Denies: c.denies,
			})
		}
	}
	return rulings, nil
}
