package vap

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

// Subjects returns whether the requester is one of those in a list without faults; true for
// an empty list.
func Subjects(list []rbacv1.Subject) string {
	if len(list) == 0 {
		return "true"
	}
	var users, groups []string
	for i := range list {
		switch list[i].Kind {
		case rbacv1.UserKind:
			users = append(users, list[i].Name)
		case rbacv1.GroupKind:
			groups = append(groups, list[i].Name)
		case rbacv1.ServiceAccountKind:
			users = append(users, policy.ServiceAccount(list[i].Namespace, list[i].Name))
		}
	}
	var terms []string
	if len(users) > 0 {
		terms = append(terms, In("request.userInfo.username", users))
	}
	if len(groups) > 0 {
		terms = append(terms, "request.userInfo.?groups.orValue([]).exists(g, "+In("g", groups)+")")
	}
	return Or(terms...)
}

// Labels returns whether labels, which are a map or an optional one, come under a selector
// without faults; true for nil.
func Labels(selector *metav1.LabelSelector, labels string) string {
	if selector == nil {
		return "true"
	}
	terms := make([]string, 0, len(selector.MatchLabels)+len(selector.MatchExpressions))
	for _, key := range sortedKeys(selector.MatchLabels) {
		terms = append(terms, labelIn(labels, key, []string{selector.MatchLabels[key]}))
	}
	for _, e := range selector.MatchExpressions {
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			terms = append(terms, labelIn(labels, e.Key, e.Values))
		case metav1.LabelSelectorOpNotIn:
			terms = append(terms, Not(labelIn(labels, e.Key, e.Values)))
		case metav1.LabelSelectorOpExists:
			terms = append(terms, label(labels, e.Key)+".hasValue()")
		case metav1.LabelSelectorOpDoesNotExist:
			terms = append(terms, Not(label(labels, e.Key)+".hasValue()"))
		default:
			terms = append(terms, "false") // it selects nothing
		}
	}
	return And(terms...)
}

func label(labels, key string) string { return labels + "[?" + Quote(key) + "]" }

func labelIn(labels, key string, values []string) string {
	return label(labels, key) + ".optMap(v, " + In("v", values) + ").orValue(false)"
}
