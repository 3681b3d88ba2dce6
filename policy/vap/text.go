package vap

import (
	"maps"
	"math"
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
func and(terms ...string) string { return join(terms, " && ", "true", "false") }

// or is true if one of the terms is.
func or(terms ...string) string { return join(terms, " || ", "false", "true") }

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
	for i, term := range terms {
		terms[i] = enclose(term)
	}
	return strings.Join(terms, operator)
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
	if len(quoted) == 1 {
		return text + " == " + quoted[0]
	}
	return text + " in [" + strings.Join(quoted, ", ") + "]"
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
	var users, groups, terms []string
	for i := range list {
		switch list[i].Kind {
		case rbacv1.UserKind:
			users = append(users, list[i].Name)
		case rbacv1.GroupKind:
			groups = append(groups, list[i].Name)
		case rbacv1.ServiceAccountKind:
			users = append(users, serviceaccount.MakeUsername(list[i].Namespace, list[i].Name))
		}
	}
	if len(users) > 0 {
		terms = append(terms, in("request.userInfo.username", users))
	}
	if len(groups) > 0 {
		terms = append(terms, "request.userInfo.?groups.orValue([]).exists(g, "+in("g", groups)+")")
	}
	return or(terms...)
}

// labelled is true if labels, which are a map or an optional one, match a selector, or if it
// is nil.
func labelled(s *metav1.LabelSelector, labels string) string {
	if s == nil {
		return "true"
	}
	var terms []string
	has := func(key string) string { return labels + "[?" + quote(key) + "]" }
	one := func(key string, values []string) string {
		return has(key) + ".optMap(v, " + in("v", values) + ").orValue(false)"
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		terms = append(terms, one(key, []string{s.MatchLabels[key]}))
	}
	for _, e := range s.MatchExpressions {
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			terms = append(terms, one(e.Key, e.Values))
		case metav1.LabelSelectorOpNotIn:
			terms = append(terms, not(one(e.Key, e.Values)))
		case metav1.LabelSelectorOpExists:
			terms = append(terms, has(e.Key)+".hasValue()")
		case metav1.LabelSelectorOpDoesNotExist:
			terms = append(terms, not(has(e.Key)+".hasValue()"))
		}
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
	if len(names) > 0 {
		terms = append([]string{in(namespace, names)}, terms...)
	}
	return or(terms...)
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

// selectsKey is true if a selector selects a key. With orEmpty it selects the empty key too,
// with which a toleration tolerates every key.
func selectsKey(s *v1alpha1.TaintSelector, key string, orEmpty bool) string {
	prefix, open := strings.CutSuffix(s.Key, "*")
	switch {
	case !open && orEmpty:
		return in(key, []string{"", s.Key})
	case !open:
		return key + " == " + quote(s.Key)
	case prefix != "" && orEmpty:
		return or(key+` == ""`, startsWith(key, prefix))
	case prefix != "":
		return startsWith(key, prefix)
	case ofDevice(s):
		return "true"
	default:
		return not(system(key))
	}
}

// selects is selector.Selector.Selects for a taint t, a map in which each field has a value.
func selects(s *v1alpha1.TaintSelector, t string) string {
	terms := []string{selectsKey(s, t+".key", false)}
	if len(s.Values) > 0 {
		terms = append(terms, in(t+".value", s.Values))
	}
	if len(s.Effects) > 0 {
		terms = append(terms, in(t+".effect", s.Effects))
	}
	if ofDevice(s) && len(s.Drivers) > 0 {
		terms = append(terms, in(t+".driver", append([]string{""}, s.Drivers...)))
	}
	return and(terms...)
}

// could is selector.Selector.Could for a toleration t, a map in which each field has a value.
// Operators that compare have a number, because the API server takes no others; where one
// does, the request is refused.
func could(s *v1alpha1.TaintSelector, t string) string {
	effect := "true"
	if len(s.Effects) > 0 {
		effect = noOtherEffect(s, t, s.Effects)
	}
	return and(selectsKey(s, t+".key", true), effect, couldValue(s, t), couldClass(s, t))
}

// couldOutlast is true if t could tolerate a taint of effect NoExecute that s selects.
func couldOutlast(s *v1alpha1.TaintSelector, t string) string {
	if len(s.Effects) > 0 && !slices.Contains(s.Effects, corev1.TaintEffectNoExecute) {
		return "false"
	}
	effect := noOtherEffect(s, t, []corev1.TaintEffect{corev1.TaintEffectNoExecute})
	return and(effect, selectsKey(s, t+".key", true), couldValue(s, t), couldClass(s, t))
}

// noOtherEffect is false if the effect of t is a known one that is not in a list. The empty
// effect is every one, and an unknown effect may be any.
func noOtherEffect(s *v1alpha1.TaintSelector, t string, list []corev1.TaintEffect) string {
	effects := []corev1.TaintEffect{corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	if ofDevice(s) {
		effects[0] = corev1.TaintEffect(resourcev1.DeviceTaintEffectNone)
	}
	effects = slices.DeleteFunc(effects, func(e corev1.TaintEffect) bool { return slices.Contains(list, e) })
	if len(effects) == 0 {
		return "true"
	}
	return not(in(t+".effect", effects))
}

func couldValue(s *v1alpha1.TaintSelector, t string) string {
	operator, value := t+".operator", t+".value"
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	switch {
	case ofDevice(s) && len(s.Values) == 0:
		return "true"
	case ofDevice(s):
		return or(operator+` != "Equal"`, in(value, s.Values))
	case len(s.Values) == 0:
		compares := func(by string, limit int64) string {
			return operator + " == " + quote(by) + " && " + value + " == " + quote(number(limit))
		}
		return and(not(compares("Lt", math.MinInt64)), not(compares("Gt", math.MaxInt64)))
	}
	// The smallest and the largest of the values that are numbers as taints write them.
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	below, above := "false", "false"
	for _, v := range s.Values {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && number(n) == v {
			least, most = min(least, n), max(most, n)
			below, above = number(least)+" < int("+value+")", number(most)+" > int("+value+")"
		}
	}
	return operator + ` == "Equal" ? ` + in(value, s.Values) + " : " + operator + ` == "Lt" ? ` + below +
		" : " + operator + ` == "Gt" ? ` + above + " : true"
}

// couldClass is true if a request may be for a class that s selects. A request without a
// class may be for any.
func couldClass(s *v1alpha1.TaintSelector, t string) string {
	if !ofDevice(s) || len(s.DeviceClasses) == 0 {
		return "true"
	}
	return in(t+".class", append([]string{""}, s.DeviceClasses...))
}
