package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// leaders decides INV-6: that nobody is evicted twice, and that only the holder of
// the lease acts.
func leaders(x *index) []Violation {
	return append(twice(x), x.usurped()...)
}

// twice says which pods were evicted more than once.
func twice(x *index) []Violation {
	var found []Violation
	first := map[string]*eviction{}
	for _, e := range x.evictions {
		before := first[e.uid()]
		if before == nil {
			first[e.uid()] = e
			continue
		}
		found = append(found, Violation{
			Invariant: "INV-6", At: e.write.Forwarded, Objects: []string{e.uid()},
			Message: fmt.Sprintf("%s was evicted twice: by %s, and %s later by %s",
				e.name(), before.write.Replica, e.write.Forwarded.Sub(before.write.Forwarded).Round(time.Millisecond), e.write.Replica),
		})
	}
	return found
}

// tenure is a write of the lease that was carried out.
type tenure struct {
	// replica wrote it, and holds it unless it gave it back.
	replica string
	held    bool
	write   *faultproxy.Write
}

// tenures returns the writes of the lease, in their order.
func (x *index) tenures() ([]tenure, []Violation) {
	var tenures []tenure
	var found []Violation
	for i := range x.Writes {
		w := &x.Writes[i]
		if w.Resource != "leases" || !accepted(w) || w.Verb == "delete" {
			continue
		}
		who, err := holder(w)
		if err != nil {
			found = append(found, Violation{Invariant: "INV-6", At: w.Sent, Message: said(w) + " cannot be read: " + err.Error()})
			continue
		}
		tenures = append(tenures, tenure{replica: w.Replica, held: who != "", write: w})
	}
	slices.SortFunc(tenures, func(a, b tenure) int { return a.write.Answered.Compare(b.write.Answered) })
	return tenures, found
}

// leadersOnly are the resources that nobody but the leader writes.
var leadersOnly = []string{"pods", "nodes", "devicetaintrules", "evictionpolicies", "evictionapprovals"}

// usurped says who acted without the lease.
func (x *index) usurped() []Violation {
	tenures, found := x.tenures()
	for i := range x.Writes {
		w := &x.Writes[i]
		if w.Forwarded.IsZero() || !accepted(w) || !slices.Contains(leadersOnly, w.Resource) {
			continue
		}
		if message := x.without(tenures, w); message != "" {
			found = append(found, Violation{Invariant: "INV-6", At: w.Forwarded, Message: said(w) + " was carried out " + message})
		}
	}
	return found
}

// without says in what way a replica had no lease when its write went to the API
// server; empty when it may have had it. A write of the lease that was under way
// then is taken either way.
func (x *index) without(tenures []tenure, w *faultproxy.Write) string {
	message := "before anyone held the lease"
	for _, t := range tenures {
		if t.write.Forwarded.After(w.Forwarded) {
			continue
		}
		verdict := x.standing(&t, w)
		if !t.write.Answered.After(w.Forwarded) {
			message = verdict // unless there is a later one
		} else if verdict == "" {
			return ""
		}
	}
	return message
}

// standing says what a write of the lease means for who writes later.
func (x *index) standing(t *tenure, w *faultproxy.Write) string {
	switch {
	case t.replica != w.Replica && t.held:
		return "while " + t.replica + " held the lease"
	case !t.held:
		return "after " + t.replica + " gave the lease back"
	case w.Forwarded.Sub(t.write.Sent) > x.Limits.Lease:
		return fmt.Sprintf("%s after the lease was renewed last", w.Forwarded.Sub(t.write.Sent).Round(time.Millisecond))
	}
	return ""
}
