package evictions

import (
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// Shown returns what evictions of a cluster follow from, without what its events say.
func Shown(found *state.Cluster) *Cluster { return shownOf(found) }
