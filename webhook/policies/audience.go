package policies

import "sync"

// audience are those who want to know that something changed. The zero audience is
// empty.
type audience struct {
	mu      sync.Mutex
	members map[chan struct{}]struct{}
}

func (a *audience) join() (told <-chan struct{}, leave func()) {
	member := make(chan struct{}, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.members == nil {
		a.members = map[chan struct{}]struct{}{}
	}
	a.members[member] = struct{}{}
	return member, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.members, member)
	}
}

// tell does not block: who has not listened yet need not be told twice.
func (a *audience) tell() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for member := range a.members {
		select {
		case member <- struct{}{}:
		default:
		}
	}
}
