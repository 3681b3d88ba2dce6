package evictions

import (
	"time"

	"github.com/tollgate-dev/tollgate/tracker"
)

// Judge says of single pods at one moment what List says of all.
type Judge struct{ looker *looker }

// Judge returns who judges the pods of the cluster as it is at now.
func (c *Cluster) Judge(now time.Time) *Judge { return &Judge{c.look(now)} }

// Of returns what becomes of a pod; false if it stays.
func (j *Judge) Of(s *tracker.Situation) (Eviction, bool) { return j.looker.at(*s) }
