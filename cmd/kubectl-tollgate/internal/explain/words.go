package explain

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/tracker"
)

// counted returns a number of things: 1 node, 2 nodes.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// some names the first of many, and counts the others.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
}

// in says when something is, seen from now: in 4m10s, or 5s ago.
func in(at, now time.Time) string {
	if at.After(now) {
		return "in " + duration.HumanDuration(roundUp(at.Sub(now)))
	}
	return ago(at, now)
}

func ago(at, now time.Time) string {
	return duration.HumanDuration(max(now.Sub(at), 0)) + " ago"
}

// roundUp keeps what is about to come from being now.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

func stampOrNone(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return stamp(at)
}

func stamp(at time.Time) *metav1.Time { return new(metav1.NewTime(at)) }

// taintWords returns a taint as kubectl writes it.
func taintWords(t *corev1.Taint) string { return t.ToString() }

// tolerationWords says what a toleration of a pod tolerates: dedicated=x:NoSchedule, sla<5,
// every taint for 60s.
func tolerationWords(t *corev1.Toleration) string {
	text := t.Key
	switch {
	case t.Key == "" && t.Effect == "":
		text = "every taint"
	case t.Key == "":
		text = "every key"
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpLt:
		text += "<" + t.Value
	case corev1.TolerationOpGt:
		text += ">" + t.Value
	case corev1.TolerationOpEqual:
		text += "=" + t.Value
	default:
		text += "=" + t.Value // Equal is the default.
	}
	text = strings.TrimSuffix(text, "=")
	return text + ending(string(t.Effect), t.TolerationSeconds)
}

// deviceTolerationWords is tolerationWords for a toleration of a request for devices.
func deviceTolerationWords(t *resourcev1.DeviceToleration) string {
	return tolerationWords(&corev1.Toleration{
		Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds,
	})
}

func ending(effect string, seconds *int64) string {
	text := ""
	if effect != "" {
		text = ":" + effect
	}
	if seconds != nil {
		text += " for " + strconv.FormatInt(*seconds, 10) + "s"
	}
	return text
}

// ofDriver begins the words for a taint that nobody but the driver wrote.
const ofDriver = "its driver in "

// sourceWords names the object in which somebody wrote a taint.
func sourceWords(source tracker.Source) string {
	switch source.Kind {
	case tracker.SourceNode:
		return "node " + source.Name
	case tracker.SourceRule:
		return "DeviceTaintRule " + source.Name
	case tracker.SourcePatch:
		return "ResourceSlicePatch " + source.Name
	case tracker.SourceSlice:
		return ofDriver + "ResourceSlice " + source.Name
	}
	return string(source.Kind) + " " + source.Name
}

// sentence returns words with a capital at the beginning and a full stop.
func sentence(words string) string {
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + words[1:] + "."
}

// joined joins words: a, b and c.
func joined(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// taintsDo says that taints do something: taint a evicts, taints a and b evict.
func taintsDo(taints []string, verb string) string {
	if len(taints) == 1 {
		return "taint " + taints[0] + " " + verb + "s"
	}
	return "taints " + joined(taints) + " " + verb
}

func itOrThem(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}
