package history

import (
	"fmt"

	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// identity decides INV-1: that each request to evict names the one pod that is meant,
// and the version of it that was decided about. It is about all requests, also those
// that never arrived.
func identity(x *index) []Violation {
	var found []Violation
	for i := range x.Writes {
		w := &x.Writes[i]
		if _, ok := evicts(w); !ok {
			continue
		}
		if message := anonymous(w); message != "" {
			found = append(found, Violation{Invariant: "INV-1", Message: message, At: w.Sent})
			continue
		}
		if accepted(w) && x.eviction(w) == nil {
			found = append(found, Violation{
				Invariant: "INV-1", At: w.Sent,
				Message: said(w) + " was carried out, though its preconditions are those of no pod that could leave",
			})
		}
	}
	return found
}

// anonymous says what a request to evict a pod lacks; empty for nothing.
func anonymous(w *faultproxy.Write) string {
	if w.Verb == "deletecollection" {
		return said(w) + " deletes whatever is there"
	}
	uid, version, err := preconditions(w)
	switch {
	case err != nil:
		return said(w) + " cannot be read: " + err.Error()
	case uid == "":
		return said(w) + " has no precondition on the UID"
	case version == "":
		return said(w) + " has no precondition on the resource version"
	}
	return ""
}

// said is a write in words.
func said(w *faultproxy.Write) string {
	return fmt.Sprintf("%s %s of %s", w.Method, w.Path, w.Replica)
}
