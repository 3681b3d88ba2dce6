package placement

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy/wording"
)

// What users and policies say is shown to people, but not at any length.
const (
	maxName    = 128
	maxProblem = 512
	maxNeeds   = 512
)

func printable(s string, longest int) string { return wording.Short(s, longest) }

// tolerationWords says what is tolerated as a user would write it.
func tolerationWords(t *corev1.Toleration) string {
	key := t.Key
	if key == "" {
		key = "*"
	}
	text := wording.Short(key, wording.Key)
	switch operatorOf(t) {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpLt:
		text += "<" + wording.Short(t.Value, wording.Value)
	case corev1.TolerationOpGt:
		text += ">" + wording.Short(t.Value, wording.Value)
	case corev1.TolerationOpEqual:
		text += "=" + wording.Short(t.Value, wording.Value)
	default:
		text += " " + wording.Short(string(t.Operator), wording.Enum) + " " + wording.Short(t.Value, wording.Value)
	}
	if t.Effect != "" {
		text += ":" + wording.Short(string(t.Effect), wording.Enum)
	}
	if t.TolerationSeconds != nil {
		text += " for " + strconv.FormatInt(*t.TolerationSeconds, 10) + "s"
	}
	return text
}

// requirementWords says what is required of a label.
func requirementWords(r *corev1.NodeSelectorRequirement) string {
	key := wording.Short(r.Key, wording.Key)
	values := wording.List(r.Values, ", ", wording.Value)
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		if len(r.Values) == 1 {
			return key + "=" + values
		}
		return key + " in [" + values + "]"
	case corev1.NodeSelectorOpNotIn:
		return key + " not in [" + values + "]"
	case corev1.NodeSelectorOpExists:
		return key
	case corev1.NodeSelectorOpDoesNotExist:
		return "no " + key
	case corev1.NodeSelectorOpGt:
		return key + " > " + values
	case corev1.NodeSelectorOpLt:
		return key + " < " + values
	default:
		return key + " " + wording.Short(string(r.Operator), wording.Enum) + " [" + values + "]"
	}
}

func needsWords(requirements []corev1.NodeSelectorRequirement) string {
	words := make([]string, 0, len(requirements))
	for i := range requirements {
		words = append(words, requirementWords(&requirements[i]))
	}
	return wording.Short(strings.Join(words, " and "), maxNeeds)
}
