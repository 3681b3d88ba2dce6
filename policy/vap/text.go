package vap

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// The functions of this file return expressions of CEL. Selectors and subjects that they are
// given have no faults.

// objectName returns the part of the name of an object that names a policy. The name of a
// policy that a guard stands for has a slash after the kind of its PlacementPolicy.
func objectName(policy string) string { return strings.ToLower(strings.ReplaceAll(policy, "/", "-")) }

// quote returns text as a literal.
func quote(text string) string { return strconv.Quote(text) }

func enclose(term string) string { return "(" + term + ")" }

// and is true if all terms are.
func and(terms ...string) string { return join(terms, ") && (", "true", "false") }

// or is true if one of the terms is.
func or(terms ...string) string { return join(terms, ") || (", "false", "true") }

// join leaves out neutral terms, and is the deciding term where there is one.
func join(terms []string, operator, neutral, deciding string) string {
	terms = slices.DeleteFunc(slices.Clone(terms), func(term string) bool { return term == neutral })
	switch {
	case slices.Contains(terms, deciding):
		return deciding
	case len(terms) == 0:
		return neutral
	case len(terms) == 1:
		return terms[0]
	}
	return enclose(strings.Join(terms, operator))
}

// not is true if the term is false.
func not(term string) string {
	switch term {
	case "true":
		return "false"
	case "false":
		return "true"
	default:
		return "!" + enclose(term)
	}
}

// in is true if a text is in a list.
func in[T ~string](text string, list []T) string {
	quoted := make([]string, len(list))
	for i, item := range list {
		quoted[i] = quote(string(item))
	}
	switch len(list) {
	case 0:
		return "false"
	case 1:
		return text + " == " + quoted[0]
	default:
		return text + " in [" + strings.Join(quoted, ", ") + "]"
	}
}

// inAny is true if a text is in a list, or if the list is empty.
func inAny[T ~string](text string, list ...T) string {
	if len(list) == 0 {
		return "true"
	}
	return in(text, list)
}

func startsWith(text, prefix string) string { return text + ".startsWith(" + quote(prefix) + ")" }

// bind is an expression of type bool in which a name stands for a value.
func bind(name, value, expression string) string {
	return "[" + value + "].exists(" + name + ", " + expression + ")"
}

// bindText is bind for an expression of type string.
func bindText(name, value, expression string) string {
	return "[" + value + "].map(" + name + ", " + expression + ")[0]"
}

// subjects is true if the requester is one of the subjects, or if there are none.
func subjects(list []rbacv1.Subject) string {
	if len(list) == 0 {
		return "true"
	}
	var users, groups []string
	for _, s := range list {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			users = append(users, serviceaccount.MakeUsername(s.Namespace, s.Name))
		}
	}
	inGroup := "false"
	if len(groups) > 0 {
		inGroup = "request.userInfo.?groups.orValue([]).exists(g, " + in("g", groups) + ")"
	}
	return or(in("request.userInfo.username", users), inGroup)
}

// labelled is true if labels, which are a map or an optional one, match a selector, or if it
// is nil.
func labelled(s *metav1.LabelSelector, labels string) string {
	if s == nil {
		return "true"
	}
	var terms []string
	// has is true if there is a label with a key and one of some values, or with any value if there are none.
	has := func(key string, values ...string) string {
		label := labels + "[?" + quote(key) + "]"
		if len(values) == 0 {
			return label + ".hasValue()"
		}
		return label + ".optMap(v, " + in("v", values) + ").orValue(false)"
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		terms = append(terms, has(key, s.MatchLabels[key]))
	}
	for _, e := range s.MatchExpressions {
		term := has(e.Key, e.Values...)
		if e.Operator == metav1.LabelSelectorOpNotIn || e.Operator == metav1.LabelSelectorOpDoesNotExist {
			term = not(term)
		}
		terms = append(terms, term)
	}
	return and(terms...)
}

// inNamespaces is true if a namespace is one of some names and prefixes, or if there are none.
func inNamespaces(patterns []string, namespace string) string {
	if len(patterns) == 0 || slices.Contains(patterns, "*") {
		return "true"
	}
	var names, terms []string
	for _, pattern := range patterns {
		if prefix, open := strings.CutSuffix(pattern, "*"); open {
			terms = append(terms, startsWith(namespace, prefix))
		} else {
			names = append(names, pattern)
		}
	}
	return or(append([]string{in(namespace, names)}, terms...)...)
}

// system is true if a key is one that Kubernetes itself sets on nodes, as selector.System has
// them.
func system(key string) string {
	return or(startsWith(key, "node.kubernetes.io/"), startsWith(key, "node.cloudprovider.kubernetes.io/"))
}

func ofDevice(s *v1alpha1.TaintSelector) bool {
	return selector.TargetOf(s.Target) == v1alpha1.TaintTargetDevice
}

// hasTarget reports whether a selector of the target is in the list.
func hasTarget(list []v1alpha1.TaintSelector, target v1alpha1.TaintTarget) bool {
	return slices.ContainsFunc(list, func(s v1alpha1.TaintSelector) bool { return selector.TargetOf(s.Target) == target })
}

// anySelector is true if the term of one of the selectors of a target is. Equal terms are
// written once.
func anySelector(list []v1alpha1.TaintSelector, target v1alpha1.TaintTarget, termOf func(*v1alpha1.TaintSelector) string) string {
	var terms []string
	for i := range list {
		if selector.TargetOf(list[i].Target) != target {
			continue
		}
		if term := termOf(&list[i]); !slices.Contains(terms, term) {
			terms = append(terms, term)
		}
	}
	return or(terms...)
}

// selectsKey is true if a selector selects a key, or if the key is one of others.
func selectsKey(s *v1alpha1.TaintSelector, key string, others ...string) string {
	prefix, open := strings.CutSuffix(s.Key, "*")
	switch {
	case !open:
		return in(key, append(others, s.Key))
	case prefix != "":
		return or(in(key, others), startsWith(key, prefix))
	case ofDevice(s):
		return "true"
	default:
		return not(system(key))
	}
}

// inOrEmpty is true if a text is in a list, or empty, or if the list is empty.
func inOrEmpty(text string, list []string) string {
	if len(list) == 0 {
		return "true"
	}
	return in(text, append([]string{""}, list...))
}

// selects is selector.Selector.Selects for a taint t, a map in which each field has a value.
func selects(s *v1alpha1.TaintSelector, t string) string {
	return and(selectsKey(s, t+".key"), inAny(t+".value", s.Values...), inAny(t+".effect", s.Effects...), inOrEmpty(t+".driver", s.Drivers))
}

// could is selector.Selector.Could for a toleration t, a map in which each field has a value. The empty
// key tolerates every key, and a request without a class may be for any.
// Operators that compare have a number, because the API server takes no others; where one
// does, the request is refused.
func could(s *v1alpha1.TaintSelector) string {
	return and(selectsKey(s, "t.key", ""), noOtherEffect(s, s.Effects), couldValue(s), inOrEmpty("t.class", s.DeviceClasses))
}

// couldOutlast is true if t could tolerate a taint of effect NoExecute that s selects.
func couldOutlast(s *v1alpha1.TaintSelector) string {
	if len(s.Effects) > 0 && !slices.Contains(s.Effects, corev1.TaintEffectNoExecute) {
		return "false"
	}
	effect := noOtherEffect(s, []corev1.TaintEffect{corev1.TaintEffectNoExecute})
	return and(effect, selectsKey(s, "t.key", ""), couldValue(s), inOrEmpty("t.class", s.DeviceClasses))
}

// noOtherEffect is false if the effect of t is a known one that is not in a list. The empty list has them
// all, the empty effect is every one, and an unknown effect may be any.
func noOtherEffect(s *v1alpha1.TaintSelector, list []corev1.TaintEffect) string {
	effects := []corev1.TaintEffect{corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	if ofDevice(s) {
		effects[0] = corev1.TaintEffect(resourcev1.DeviceTaintEffectNone)
	}
	others := slices.DeleteFunc(effects, func(e corev1.TaintEffect) bool { return len(list) == 0 || slices.Contains(list, e) })
	return not(in("t.effect", others))
}

// couldValue is true if t could tolerate a value that s selects. A comparison with the least or the
// greatest number is true of no value.
func couldValue(s *v1alpha1.TaintSelector) string {
	switch {
	case ofDevice(s):
		return or(`t.operator != "Equal"`, inAny("t.value", s.Values...))
	case len(s.Values) == 0:
		return `(!(t.operator == "Lt" && t.value == "-9223372036854775808")) && (!(t.operator == "Gt" && t.value == "9223372036854775807"))`
	}
	var numbers []int64 // as taints write them
	for _, v := range s.Values {
		if n, ok := selector.CanonicalInt(v); ok {
			numbers = append(numbers, n)
		}
	}
	below, above := "false", "false"
	if len(numbers) > 0 {
		below = fmt.Sprintf("%d < int(t.value)", slices.Min(numbers))
		above = fmt.Sprintf("%d > int(t.value)", slices.Max(numbers))
	}
	return fmt.Sprintf(`t.operator == "Equal" ? %s : t.operator == "Lt" ? %s : t.operator == "Gt" ? %s : true`, in("t.value", s.Values), below, above)
}
