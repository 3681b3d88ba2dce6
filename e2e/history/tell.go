package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// Tell returns what happened to the objects with these UIDs and to what carries taints,
// or to all objects when there are none, in the order of time, a line for each.
func Tell(h *History, uids []string) string {
	lines := append(versionLines(h, uids), writeLines(h, uids)...)
	for _, s := range h.Steps {
		lines = append(lines, line{s.At, fmt.Sprintf("the clock of the API server is %s ahead", s.Offset)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "%s  %s\n", l.at.UTC().Format("15:04:05.000"), l.text)
	}
	return text.String()
}

// line is one thing that happened.
type line struct {
	at   time.Time
	text string
}

func versionLines(h *History, uids []string) []line {
	var lines []line
	for i := range h.Versions {
		v := &h.Versions[i]
		k := kindOf(v.Object)
		carries := k != kindPod && k != kindClaim && k != kindNamespace
		if len(uids) == 0 || carries || slices.Contains(uids, string(v.Object.GetUID())) {
			lines = append(lines, line{v.Seen, fmt.Sprintf("%d %s", v.Revision, versionText(v))})
		}
	}
	return lines
}

func writeLines(h *History, uids []string) []line {
	named := map[name]bool{}
	for i := range h.Versions {
		v := &h.Versions[i]
		if slices.Contains(uids, string(v.Object.GetUID())) {
			named[nameOf(v)] = true
		}
	}
	var lines []line
	for i := range h.Writes {
		w := &h.Writes[i]
		if len(uids) == 0 || w.Resource == "leases" || named[name{kindPod, w.Namespace, w.Name}] {
			lines = append(lines, line{w.Sent, writeText(w)})
		}
	}
	return lines
}

func versionText(v *Version) string {
	what := "is"
	if v.Gone {
		what = "has gone, was"
	}
	return fmt.Sprintf("%s %s/%s (%s) %s %s", kindOf(v.Object), v.Object.GetNamespace(), v.Object.GetName(), v.Object.GetUID(), what, stateText(v))
}

func stateText(v *Version) string {
	switch object := v.Object.(type) {
	case *corev1.Pod:
		return podText(object)
	case *corev1.Node:
		return "tainted " + nodeTaints(object.Spec.Taints)
	case *resourcev1.DeviceTaintRule:
		return "tainting " + deviceTaints([]resourcev1.DeviceTaint{object.Spec.Taint})
	case *resourcev1.ResourceSlice:
		var texts []string
		for i := range object.Spec.Devices {
			texts = append(texts, object.Spec.Devices[i].Name+deviceTaints(object.Spec.Devices[i].Taints))
		}
		return strings.Join(texts, " ")
	case *resourcev1.ResourceClaim:
		return fmt.Sprintf("allocated %v for %v", object.Status.Allocation, object.Status.ReservedFor)
	case *v1alpha1.EvictionPolicy:
		return fmt.Sprintf("generation %d, holding %d: %v, breaker %s", object.Generation, object.Status.Held, object.Status.Holding, breakerText(object.Status.Breaker))
	}
	return ""
}

func breakerText(b *v1alpha1.EvictionBreakerStatus) string {
	if b == nil {
		return "(nothing)"
	}
	texts := []string{"not tripped"}
	if b.Tripped != nil {
		texts[0] = "tripped " + b.Tripped.UTC().Format("15:04:05.000")
	}
	for i := range b.Granted {
		texts = append(texts, fmt.Sprintf("%d until %s", b.Granted[i].Pods, b.Granted[i].Until.UTC().Format("15:04:05.000")))
	}
	return strings.Join(texts, ", ")
}

func podText(pod *corev1.Pod) string {
	texts := []string{"on " + pod.Spec.NodeName, string(pod.Status.Phase), "created " + pod.CreationTimestamp.UTC().Format("15:04:05")}
	if pod.DeletionTimestamp != nil {
		texts = append(texts, "terminating")
	}
	for _, t := range pod.Spec.Tolerations {
		texts = append(texts, fmt.Sprintf("tolerates %s:%s%s", t.Key, t.Effect, secondsText(t.TolerationSeconds)))
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			texts = append(texts, "DisruptionTarget "+c.Reason)
		}
	}
	return strings.Join(texts, ", ")
}

func secondsText(seconds *int64) string {
	if seconds == nil {
		return " for ever"
	}
	return fmt.Sprintf(" for %ds", *seconds)
}

func nodeTaints(taints []corev1.Taint) string {
	var texts []string
	for _, t := range taints {
		texts = append(texts, taintText(t.Key, string(t.Effect), t.TimeAdded))
	}
	return strings.Join(texts, "")
}

func deviceTaints(taints []resourcev1.DeviceTaint) string {
	var texts []string
	for _, t := range taints {
		texts = append(texts, taintText(t.Key, string(t.Effect), t.TimeAdded))
	}
	return strings.Join(texts, "")
}

func taintText(key, effect string, added *metav1.Time) string {
	since := "?"
	if added != nil {
		since = added.UTC().Format("15:04:05")
	}
	return fmt.Sprintf("[%s:%s since %s]", key, effect, since)
}

func writeText(w *faultproxy.Write) string {
	text := fmt.Sprintf("%s: %s %s", w.Replica, w.Method, w.Path)
	if uid, version, err := preconditions(w); err == nil && uid != "" {
		text += fmt.Sprintf(" (UID %s, version %s)", uid, version)
	}
	if w.Forwarded.IsZero() {
		return text + fmt.Sprintf(" was not forwarded, given %d", w.Given)
	}
	return text + fmt.Sprintf(" forwarded %s, answered %d after %s, given %d", w.Forwarded.UTC().Format("15:04:05.000"),
		w.Status, w.Answered.Sub(w.Forwarded).Round(time.Millisecond), w.Given)
}
