package evictions

import "github.com/tollgate-dev/tollgate/tracker"

// Filter selects evictions. Empty fields match all.
type Filter struct {
	Namespace string
	// Node is the node of the pods, Rule and Patch the object whose taint evicts them.
	Node, Rule, Patch string
}

func (f *Filter) admitsNamespace(name string) bool { return f.Namespace == "" || f.Namespace == name }

func (f *Filter) admits(e *Eviction) bool {
	if f.Node != "" && e.Node != f.Node {
		return false
	}
	return e.from(tracker.SourceRule, f.Rule) && e.from(tracker.SourcePatch, f.Patch)
}

// from reports whether a taint of an object evicts the pod; an empty name matches all.
func (e *Eviction) from(kind tracker.SourceKind, name string) bool {
	if name == "" {
		return true
	}
	for i := range e.Because {
		if e.Because[i].Taint.From(kind, name) {
			return true
		}
	}
	return false
}
