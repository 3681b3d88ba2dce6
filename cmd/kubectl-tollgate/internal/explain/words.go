package explain

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker"
)

// in returns a time relative to now: in 4m10s, or 5s ago. Future times are rounded up.
func in(at, now time.Time) string {
	if at.After(now) {
		return "in " + duration.HumanDuration((at.Sub(now) + time.Second - 1).Truncate(time.Second))
	}
	return ago(at, now)
}

func ago(at, now time.Time) string {
	return duration.HumanDuration(max(now.Sub(at), 0)) + " ago"
}

// tolerationWords returns what a toleration of a pod tolerates: dedicated=x:NoSchedule, sla<5,
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
		fallthrough
	default: // Equal is the default.
		text += "=" + t.Value
	}
	text = strings.TrimSuffix(text, "=")
	if t.Effect != "" {
		text += ":" + string(t.Effect)
	}
	if t.TolerationSeconds != nil {
		text += " for " + strconv.FormatInt(*t.TolerationSeconds, 10) + "s"
	}
	return text
}

// tolerationOf returns a toleration of a request for devices as one of a pod.
func tolerationOf(t *resourcev1.DeviceToleration) corev1.Toleration {
	return corev1.Toleration{
		Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.TolerationSeconds,
	}
}

// ofDriver begins the words for a taint that a driver published.
const ofDriver = "its driver in "

// sourceWords returns the object in which a taint was written.
func sourceWords(source tracker.Source) string {
	prefix := map[tracker.SourceKind]string{
		tracker.SourceNode: "node ", tracker.SourceRule: "DeviceTaintRule ", tracker.SourcePatch: "ResourceSlicePatch ", tracker.SourceSlice: ofDriver + "ResourceSlice ",
	}
	return prefix[source.Kind] + source.Name
}

// sentence returns words with a capital at the beginning and a full stop.
func sentence(words string) string {
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + words[1:] + "."
}

// effectWords returns what taints do, by effect: those that evict, and those that keep pods or
// claims off.
func effectWords(taints map[corev1.TaintEffect][]string, off string) []string {
	var words []string
	for _, do := range []struct {
		effect    corev1.TaintEffect
		verb, who string
	}{{corev1.TaintEffectNoExecute, "evict", "who does not tolerate "}, {corev1.TaintEffectNoSchedule, "keep", off + " off that do not tolerate "}} {
		n := len(taints[do.effect])
		if n > 0 {
			words = append(words, cli.Plural(n, "taint ", "taints ")+cli.And(taints[do.effect])+" "+cli.Plural(n, do.verb+"s ", do.verb+" ")+do.who+cli.Plural(n, "it", "them"))
		}
	}
	return words
}
