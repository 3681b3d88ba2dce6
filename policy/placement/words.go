package placement

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

// What users and policies say is shown to people, but not at any length.
const (
	maxName    = 128
	maxProblem = 512
	maxNeeds   = 512
)

func printable(s string, longest int) string { return policy.Short(s, longest) }

// tolerationWords says what is tolerated as a user would write it.
func tolerationWords(t *corev1.Toleration) string {
	key := t.Key
	if key == "" {
		key = "*"
	}
	text := policy.Short(key, policy.MaxKeyLength)
	switch operatorOf(t) {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpLt:
		text += "<" + policy.Short(t.Value, policy.Value)
	case corev1.TolerationOpGt:
		text += ">" + policy.Short(t.Value, policy.Value)
	case corev1.TolerationOpEqual:
		text += "=" + policy.Short(t.Value, policy.Value)
	default:
		text += " " + policy.Short(string(t.Operator), policy.Enum) + " " + policy.Short(t.Value, policy.Value)
	}
	if t.Effect != "" {
		text += ":" + policy.Short(string(t.Effect), policy.Enum)
	}
	if t.TolerationSeconds != nil {
		text += " for " + strconv.FormatInt(*t.TolerationSeconds, 10) + "s"
	}
	return text
}

// requirementWords says what is required of a label.
func requirementWords(r *corev1.NodeSelectorRequirement) string {
	key := policy.Short(r.Key, policy.MaxKeyLength)
	values := policy.ShortList(r.Values, ", ", policy.Value)
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
		return key + " " + policy.Short(string(r.Operator), policy.Enum) + " [" + values + "]"
	}
}

func needsWords(requirements []corev1.NodeSelectorRequirement) string {
	words := make([]string, 0, len(requirements))
	for i := range requirements {
		words = append(words, requirementWords(&requirements[i]))
	}
	return policy.Short(strings.Join(words, " and "), maxNeeds)
}
