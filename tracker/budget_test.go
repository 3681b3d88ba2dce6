package tracker_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

func budget(namespace, name, uid, version string, selector *metav1.LabelSelector) tracker.Budget {
	return tracker.BudgetOf(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: version},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector},
	})
}

func TestWhomABudgetGuards(t *testing.T) {
	t.Parallel()
	web := &tracker.Pod{
		Key:    tracker.Key{Namespace: "ns", Name: "web-1"},
		Origin: &tracker.Origin{Labels: tracker.LabelsOf(map[string]string{"app": "web", "tier": ""})},
	}
	bare := &tracker.Pod{Key: tracker.Key{Namespace: "ns", Name: "bare"}}
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	for name, test := range map[string]struct {
		namespace string
		selector  *metav1.LabelSelector
		web, bare bool
	}{
		"an empty selector is every pod of the namespace": {"ns", &metav1.LabelSelector{}, true, true},
		"no selector is no pod":                           {"ns", nil, false, false},
		"a budget of another namespace is about others":   {"other", &metav1.LabelSelector{}, false, false},
		"a label that the pod has":                        {"ns", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, true, false},
		"a label that the pod has with another value":     {"ns", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, false, false},
		"a label without a value":                         {"ns", expression("tier", metav1.LabelSelectorOpExists), true, false},
		"a label that the pod must not have":              {"ns", expression("app", metav1.LabelSelectorOpDoesNotExist), false, true},
		"one value of several":                            {"ns", expression("app", metav1.LabelSelectorOpIn, "db", "web"), true, false},
		"a selector that cannot be read is no pod":        {"ns", expression("app", "Resembles", "w"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := budget(test.namespace, "b", "1", "1", test.selector)
			require.Equal(t, test.web, b.Guards(web))
			require.Equal(t, test.bare, b.Guards(bare))
		})
	}
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	names := func(tr *tracker.Tracker, namespace string) []string {
		var found []string
		for _, b := range tr.Budgets(namespace) {
			found = append(found, b.Name+"@"+b.ResourceVersion)
		}
		return found
	}
	tr := tracker.New()
	require.Empty(t, tr.Budgets("ns"))
	tr.SetBudget(budget("ns", "b", "1", "1", nil))
	tr.SetBudget(budget("ns", "a", "2", "2", nil))
	tr.SetBudget(budget("other", "a", "3", "3", nil))
	require.Equal(t, []string{"a@2", "b@1"}, names(tr, "ns"))
	handed := tr.Budgets("ns")

	tr.SetBudget(budget("ns", "b", "1", "5", nil))
	tr.SetBudget(budget("ns", "b", "1", "4", nil))
	require.Equal(t, []string{"a@2", "b@5"}, names(tr, "ns"), "an older version never replaces a newer one")
	tr.DeleteBudget("ns", "a", "another")
	tr.DeleteBudget("ns", "c", "2")
	require.Len(t, tr.Budgets("ns"), 2, "one that was created anew stays")
	tr.DeleteBudget("ns", "a", "2")
	require.Equal(t, []string{"b@5"}, names(tr, "ns"))
	tr.DeleteBudget("ns", "b", "1")
	require.Empty(t, tr.Budgets("ns"))
	require.Len(t, tr.Budgets("other"), 1)
	require.Equal(t, "a", handed[0].Name, "what was handed out is not written to")
	require.Equal(t, "1", handed[1].ResourceVersion)
}
