package evictions

import (
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// Shown returns the Cluster of a snapshot, without events.
func Shown(found *state.Cluster) *Cluster { return shownOf(found) }
