package tolerations

import (
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// hearing is what is known and found while one input is judged.
type hearing struct {
	in     Input
	report report
	// inherited holds what the input inherits where that is much.
	inherited map[identity]struct{}
	// conditions are those of policies, by position, that were evaluated.
	conditions map[int]condition
	// answers are those of RBAC, by key. All policies hear the same one.
	answers map[string]bool
	// away is why RBAC could not be asked. It is not asked again then: an authorizer
	// that is slow or busy would only be asked for every toleration.
	away error
	// refusals counts the answers of RBAC that were no, and byAccount says that the last yes
	// was about the service account, which is asked about first then.
	refusals  int
	byAccount bool
	// fault is the first reason why a policy could not be judged.
	fault error
}

// condition is whether the conditions of a policy hold for the request.
type condition struct {
	holds bool
	note  string
	fault error
}

func newHearing(in Input) hearing {
	h := hearing{in: in}
	if len(in.Inherited) > small {
		h.inherited = make(map[identity]struct{}, len(in.Inherited))
		for i := range in.Inherited {
			t := selector.OfPod(&in.Inherited[i])
			h.inherited[identify(&t)] = struct{}{}
		}
	}
	return h
}

// settled reports whether a toleration needs no judgement of its own: it is what
// Kubernetes itself adds, or comes from a template that was judged.
func (h *hearing) settled(t *selector.Toleration) bool {
	if h.in.system(t) {
		return true
	}
	if h.inherited == nil {
		return among(h.in.Inherited, t)
	}
	_, ok := h.inherited[identify(t)]
	return ok
}

// failed keeps the first fault.
func (h *hearing) failed(err error) {
	if h.fault == nil {
		h.fault = err
	}
}

// fresh yields the tolerations of a list that are to be judged: which stood neither
// before nor in a template, and that nobody but Kubernetes chose.
func (h *hearing) fresh(asked *Asked) func(yield func(int, selector.Toleration) bool) {
	return func(yield func(int, selector.Toleration) bool) {
		current := asked.current()
		b := newBaseline(current, asked.before())
		for i := b.same; i < current.len(); i++ {
			if t := current.at(i); !b.stood(&t) && !h.settled(&t) && !yield(i, t) {
				return
			}
		}
	}
}
