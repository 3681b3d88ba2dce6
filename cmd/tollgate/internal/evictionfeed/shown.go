package evictionfeed

import (
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/cluster"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/evictiontable"
)

// Shown returns what evictions of a cluster follow from, without what its events say.
func Shown(found *cluster.Cluster) *evictiontable.Cluster { return shownOf(found) }
