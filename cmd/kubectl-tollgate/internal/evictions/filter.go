package evictions

import "github.com/tollgate-dev/tollgate/tracker"

// Filter narrows a list. Its zero fields narrow nothing.
type Filter struct {
	Namespace string
	// Node is the node that pods are on, Rule and Patch what makes them leave.
	Node, Rule, Patch string
}

func (f *Filter) admitsNamespace(name string) bool { return f.Namespace == "" || f.Namespace == name }

func (f *Filter) admits(e *Eviction) bool {
	if f.Node != "" && e.Node != f.Node {
		return false
	}
	return e.from(tracker.SourceRule, f.Rule) && e.from(tracker.SourcePatch, f.Patch)
}

// from reports whether a pod has to leave because of an object; empty is whatever.
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
