package vap

import (
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// everyKey is the pattern of every key, and what selects every key below a prefix ends with
// it.
const everyKey = "*"

// systemPrefixes begin the keys of nodes that the pattern of every key leaves out, as
// selector.System has them.
var systemPrefixes = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// SystemKey returns whether a key is one that Kubernetes itself sets on nodes.
func SystemKey(key string) string {
	terms := make([]string, len(systemPrefixes))
	for i, prefix := range systemPrefixes {
		terms[i] = startsWith(key, prefix)
	}
	return Or(terms...)
}

func startsWith(text, prefix string) string { return text + ".startsWith(" + Quote(prefix) + ")" }

// Could returns whether a toleration t, a map in which each field has a value, comes under a
// selector without faults, as selector.Selector.Could says. Operators that compare have a
// number, because the API server takes no others; where one does, the request is refused.
func Could(s *v1alpha1.TaintSelector, t string) string {
	return And(couldKey(s, t), couldEffect(s, t), couldValue(s, t), couldClass(s, t))
}

// CouldOutlast returns whether t may tolerate a taint of effect NoExecute that s selects.
func CouldOutlast(s *v1alpha1.TaintSelector, t string) string {
	if len(s.Effects) > 0 && !slices.Contains(s.Effects, corev1.TaintEffectNoExecute) {
		return "false"
	}
	others := slices.DeleteFunc(effectsOf(s), func(e corev1.TaintEffect) bool { return e == corev1.TaintEffectNoExecute })
	return And(Not(In(t+".effect", others)), couldKey(s, t), couldValue(s, t), couldClass(s, t))
}

func couldKey(s *v1alpha1.TaintSelector, t string) string {
	key, prefix := t+".key", strings.TrimSuffix(s.Key, everyKey)
	switch {
	case s.Key != everyKey && prefix != s.Key:
		return Or(key+` == ""`, startsWith(key, prefix))
	case s.Key != everyKey:
		return In(key, []string{"", s.Key})
	case selector.TargetOf(s.Target) == v1alpha1.TaintTargetDevice:
		return "true"
	default:
		return Not(SystemKey(key))
	}
}

// couldEffect leaves out the effects that are known and not selected. No effect is every
// one, and one that is not known may be any.
func couldEffect(s *v1alpha1.TaintSelector, t string) string {
	if len(s.Effects) == 0 {
		return "true"
	}
	others := slices.DeleteFunc(effectsOf(s), func(e corev1.TaintEffect) bool { return slices.Contains(s.Effects, e) })
	if len(others) == 0 {
		return "true"
	}
	return Not(In(t+".effect", others))
}

// effectsOf returns the effects that a taint may have which s selects.
func effectsOf(s *v1alpha1.TaintSelector) []corev1.TaintEffect {
	first := corev1.TaintEffectPreferNoSchedule
	if selector.TargetOf(s.Target) == v1alpha1.TaintTargetDevice {
		first = corev1.TaintEffect(resourcev1.DeviceTaintEffectNone)
	}
	return []corev1.TaintEffect{first, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
}

func couldValue(s *v1alpha1.TaintSelector, t string) string {
	operator, value := t+".operator", t+".value"
	if selector.TargetOf(s.Target) == v1alpha1.TaintTargetDevice {
		if len(s.Values) == 0 {
			return "true"
		}
		return Or(operator+` != "Equal"`, In(value, s.Values))
	}
	if len(s.Values) == 0 {
		beyond := func(op string, limit int64) string {
			return Not(operator + " == " + Quote(op) + " && " + value + " == " + Quote(strconv.FormatInt(limit, 10)))
		}
		return And(beyond("Lt", math.MinInt64), beyond("Gt", math.MaxInt64))
	}
	below, above := "false", "false"
	if least, most, ok := extremes(s.Values); ok {
		below = strconv.FormatInt(least, 10) + " < int(" + value + ")"
		above = strconv.FormatInt(most, 10) + " > int(" + value + ")"
	}
	return operator + ` == "Equal" ? ` + In(value, s.Values) + " : " + operator + ` == "Lt" ? ` + below +
		" : " + operator + ` == "Gt" ? ` + above + " : true"
}

// extremes returns the smallest and the largest of the values that are numbers as taints
// write them, if there are any.
func extremes(values []string) (least, most int64, ok bool) {
	least, most = math.MaxInt64, math.MinInt64
	for _, value := range values {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && strconv.FormatInt(n, 10) == value {
			least, most, ok = min(least, n), max(most, n), true
		}
	}
	return least, most, ok
}

// couldClass returns whether a request may be for a class that s selects: one without a
// class may be for any.
func couldClass(s *v1alpha1.TaintSelector, t string) string {
	if selector.TargetOf(s.Target) != v1alpha1.TaintTargetDevice || len(s.DeviceClasses) == 0 {
		return "true"
	}
	return In(t+".class", append([]string{""}, s.DeviceClasses...))
}

// Selects returns whether a selector without faults selects a taint t, a map in which each
// field has a value, as selector.Selector.Selects says.
func Selects(s *v1alpha1.TaintSelector, t string) string {
	terms := []string{selectsKey(s, t+".key")}
	if len(s.Values) > 0 {
		terms = append(terms, In(t+".value", s.Values))
	}
	if len(s.Effects) > 0 {
		terms = append(terms, In(t+".effect", s.Effects))
	}
	if selector.TargetOf(s.Target) == v1alpha1.TaintTargetDevice && len(s.Drivers) > 0 {
		terms = append(terms, In(t+".driver", append([]string{""}, s.Drivers...)))
	}
	return And(terms...)
}

func selectsKey(s *v1alpha1.TaintSelector, key string) string {
	prefix := strings.TrimSuffix(s.Key, everyKey)
	switch {
	case s.Key != everyKey && prefix != s.Key:
		return startsWith(key, prefix)
	case s.Key != everyKey:
		return key + " == " + Quote(s.Key)
	case selector.TargetOf(s.Target) == v1alpha1.TaintTargetDevice:
		return "true"
	default:
		return Not(SystemKey(key))
	}
}

// Any returns whether one of the selectors of a target does what of says, with selectors
// that are alike taken once.
func Any(list []v1alpha1.TaintSelector, target v1alpha1.TaintTarget, of func(*v1alpha1.TaintSelector) string) string {
	var terms []string
	for i := range list {
		if selector.TargetOf(list[i].Target) != target {
			continue
		}
		if term := of(&list[i]); !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return Or(terms...)
}

// Has reports whether a selector of the target is in the list.
func Has(list []v1alpha1.TaintSelector, target v1alpha1.TaintTarget) bool {
	return slices.ContainsFunc(list, func(s v1alpha1.TaintSelector) bool { return selector.TargetOf(s.Target) == target })
}
