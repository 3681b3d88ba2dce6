package evictions

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/evictor"
)

// overdue is how long a pod may be due without a hold: the attempt, its grace period and the pace
// take time.
const overdue = 30 * time.Second

// holder is an object that holds pods, and the reason.
type holder struct {
	reason evictor.HoldReason
	by     string
}

// Notes returns sentences about holds and what ends them, the most pods first, and about overdue
// pods without a known hold.
func Notes(list []Eviction, now time.Time) []string {
	pods, first := map[holder]int{}, map[holder]*Hold{}
	silent := 0
	for i := range list {
		e := &list[i]
		if e.State == Due && now.Sub(e.At) > overdue {
			silent++
		}
		if e.Hold.None() {
			continue
		}
		of := holder{e.Hold.Reason, e.Hold.By}
		pods[of]++
		if first[of] == nil {
			first[of] = &e.Hold
		}
	}
	holders := make([]holder, 0, len(pods))
	for of := range pods {
		holders = append(holders, of)
	}
	slices.SortFunc(holders, func(a, b holder) int {
		return cmp.Or(cmp.Compare(pods[b], pods[a]), cmp.Compare(a.reason, b.reason), cmp.Compare(a.by, b.by))
	})
	notes := make([]string, 0, len(holders)+1)
	for _, of := range holders {
		notes = append(notes, note(first[of], pods[of], now))
	}
	if silent > 0 {
		notes = append(notes, counted(silent, "pod")+" due for more than "+duration.HumanDuration(overdue)+
			", and nothing that was read says why they stay: see whether somebody evicts, and its log")
	}
	return notes
}

func note(hold *Hold, pods int, now time.Time) string {
	text := counted(pods, "pod") + " held"
	if hold.By != "" {
		text += " by " + hold.By
	}
	if hold.Reason == evictor.HoldBreakerTripped && !hold.Since.IsZero() {
		text += " for " + duration.HumanDuration(now.Sub(hold.Since))
	}
	text += ": " + hold.Why
	if hold.Reason == evictor.HoldBreakerTripped {
		text += ". To approve: kubectl tollgate approve policy " + hold.By[strings.LastIndex(hold.By, "/")+1:]
	}
	return text + " (according to: " + hold.Word + ")"
}
