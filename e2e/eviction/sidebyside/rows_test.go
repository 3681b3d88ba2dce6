package sidebyside

import "slices"

// row is a story with a fault in it, and what is to come of it.
type row struct {
	// fault is the ID of what is to be survived, and upstream that of the fault of
	// Kubernetes that is shown.
	fault, upstream string
	story           string
	// play plays it and says what has come of it.
	play func(s *stage) string
	// kubernetes and tollgate are what is to come of it; they are not the same.
	kubernetes, tollgate string
}

// rows returns all of them, in phases: those of the first disturb nobody else.
func rows() [][]row {
	return [][]row{
		slices.Concat(identities(), changes(), refusals(), devices()),
		slices.Concat(stale(), restarts()),
		missed(),
	}
}
