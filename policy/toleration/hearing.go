package toleration

import (
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// hearing is what is known and found while one input is judged.
type hearing struct {
	in     Input
	report report
	// settled are the tolerations that need no judgement: what was added to the object, and
	// what it inherits from a template that was judged. It is nil where there are none.
	settled map[identity]struct{}
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
	number := len(in.Added) + len(in.AddedDevices) + len(in.Inherited)
	if number == 0 {
		return h
	}
	h.settled = make(map[identity]struct{}, number)
	for _, list := range []list{{pod: in.Added}, {devices: in.AddedDevices}, {pod: in.Inherited}} {
		for i := range list.len() {
			t := list.at(i)
			h.settled[identify(&t)] = struct{}{}
		}
	}
	return h
}

// isSettled reports whether a toleration needs no judgement of its own: it is what
// Kubernetes itself adds, or comes from a template that was judged.
func (h *hearing) isSettled(t *selector.Toleration) bool {
	if len(h.settled) > 0 {
		if _, ok := h.settled[identify(t)]; ok {
			return true
		}
	}
	return h.in.system(t)
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
			if t := current.at(i); !b.stood(&t) && !h.isSettled(&t) && !yield(i, t) {
				return
			}
		}
	}
}
