package evictiontable

import (
	"cmp"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/evictor"
)

// Notes say what holds pods and what ends it, what holds the most first.
func Notes(list []Eviction, now time.Time) []string {
	type kind struct {
		reason evictor.HoldReason
		by     string
	}
	pods, first := map[kind]int{}, map[kind]*Hold{}
	for i := range list {
		hold := &list[i].Hold
		if hold.None() {
			continue
		}
		of := kind{hold.Reason, hold.By}
		pods[of]++
		if first[of] == nil {
			first[of] = hold
		}
	}
	kinds := make([]kind, 0, len(pods))
	for of := range pods {
		kinds = append(kinds, of)
	}
	slices.SortFunc(kinds, func(a, b kind) int {
		return cmp.Or(cmp.Compare(pods[b], pods[a]), cmp.Compare(a.reason, b.reason), cmp.Compare(a.by, b.by))
	})
	notes := make([]string, 0, len(kinds))
	for _, of := range kinds {
		hold := first[of]
		note := counted(pods[of], "pod") + " held"
		if hold.By != "" {
			note += " by " + hold.By
		}
		if !hold.Since.IsZero() && hold.Reason == evictor.HoldBreakerTripped {
			note += ", since " + relative(hold.Since, now)
		}
		notes = append(notes, note+": "+hold.Why+" (according to: "+hold.Word+")")
	}
	return notes
}
