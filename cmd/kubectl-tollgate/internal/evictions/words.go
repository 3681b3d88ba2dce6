package evictions

import (
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/tracker"
)

// when returns the time until or since the deadline.
func when(e *Eviction, now time.Time) string {
	switch {
	case e.State == Leaving:
		return "now"
	case e.State == Protected && e.Hold.Until.IsZero():
		return "stays"
	default:
		return relative(e.At, now)
	}
}

// relative returns a time relative to now, in whole seconds; future times are rounded up.
func relative(at, now time.Time) string {
	left := at.Sub(now)
	switch {
	case left > 0:
		return "in " + duration.HumanDuration(time.Duration(math.Ceil(left.Seconds()))*time.Second)
	case left > -time.Second:
		return "now"
	default:
		return duration.HumanDuration(-left) + " ago"
	}
}

// ref returns an object as kind/name, with a short kind.
func ref(source tracker.Source) string {
	short := map[tracker.SourceKind]string{
		tracker.SourceNode: "node", tracker.SourceRule: "rule", tracker.SourceSlice: "slice", tracker.SourcePatch: "patch",
	}
	return short[source.Kind] + "/" + source.Name
}

// cause returns the taint that evicts a pod, without the domain of its key and the effect, which
// is always NoExecute.
func cause(reason *evictor.Reason) string {
	key := reason.Taint.Key
	if _, name, found := strings.Cut(key, "/"); found {
		key = name
	}
	if reason.Taint.Value != "" {
		key += "=" + reason.Taint.Value
	}
	return key + " of " + ref(reason.Taint.Author())
}

// holdInShort describes a hold.
func holdInShort(e *Eviction, now time.Time) string {
	hold := &e.Hold
	name := hold.By[strings.LastIndex(hold.By, "/")+1:]
	var text string
	switch hold.Reason {
	case evictor.HoldPaused:
		text = "policy " + name + " is paused"
	case evictor.HoldProtected:
		text = "policy " + name + " protects it"
	case evictor.HoldBreakerTripped:
		text = "breaker of policy " + name
	case evictor.HoldBudget:
		text = budgetInShort(hold, name)
	case evictor.HoldNodesDown:
		text = "all nodes are down"
	case evictor.HoldLooping:
		text = "it comes back again and again"
	case evictor.HoldTwinMissing:
		text = "no NoSchedule twin yet"
	case evictor.HoldNamespaceUnknown:
		text = "labels of its namespace unknown"
	default:
		text = string(hold.Reason)
	}
	if !hold.Until.IsZero() {
		text += ", leaves " + relative(hold.Until, now)
	}
	return text
}

func budgetInShort(hold *Hold, name string) string {
	switch {
	case strings.HasPrefix(hold.By, "Pod/"):
		return "refused: " + hold.Why
	case strings.Contains(name, ","):
		return "several budgets: " + name
	default:
		return "budget " + name
	}
}

// leaving describes the cause of a pod's deletion.
func leaving(e *Eviction) string {
	if e.Disruption == "" {
		return "being deleted"
	}
	return e.Disruption
}

// reasonInShort returns the cause and the hold of a pod; the hold is at the end, which narrow
// columns keep.
func reasonInShort(e *Eviction, now time.Time) string {
	text := cause(&e.Because[0])
	if others := len(e.Because) - 1; others > 0 {
		text += fmt.Sprintf(" +%d", others)
	}
	switch {
	case e.State == Leaving:
		return text + "; " + leaving(e)
	case !e.Hold.None():
		return text + "; " + holdInShort(e, now)
	case e.By == ByKubernetes:
		return text + "; by Kubernetes"
	default:
		return text
	}
}

// taintInFull describes the taint of a reason, its object and writer, and how long it is
// tolerated.
func taintInFull(reason *evictor.Reason, writer string) string {
	text := reason.Taint.String()
	if reason.Device.Name != "" {
		text += " on " + reason.Device.String() + " (claim " + reason.Claim.Name + ")"
	}
	text += " of " + ref(reason.Taint.Source)
	if author := reason.Taint.Author(); author != reason.Taint.Source {
		text += " for " + ref(author)
	}
	if writer != "" {
		text += " (written by " + writer + ")"
	}
	if reason.Tolerated {
		return text + ", tolerated until " + stamp(reason.At)
	}
	return text + ", not tolerated from " + stamp(reason.At) + " on"
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return cli.None
	}
	return at.UTC().Format(time.RFC3339)
}
