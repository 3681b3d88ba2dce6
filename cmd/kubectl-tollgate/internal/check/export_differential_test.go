package check

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// exportAll returns what policies are exported as.
func exportAll(tb testing.TB, found *policies) []runtime.Object {
	tb.Helper()
	var objects []runtime.Object
	for i := range found.tolerations {
		exported, err := vap.Tolerations(&found.tolerations[i], vap.DefaultSettings())
		require.NoError(tb, err)
		require.Empty(tb, exported.Missing())
		objects = append(objects, exported.Objects...)
	}
	for i := range found.taints {
		exported, err := vap.Taints(&found.taints[i], found.taints, vap.DefaultSettings())
		require.NoError(tb, err)
		objects = append(objects, exported.Objects...)
	}
	return objects
}

func (d dice) namespaces() map[string]*corev1.Namespace {
	all := map[string]*corev1.Namespace{}
	for _, name := range names {
		labels := map[string]string{corev1.LabelMetadataName: name}
		maps.Copy(labels, d.labels())
		all[name] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	return all
}

func TestTheAPIServerSaysOfTolerationsWhatTollgateSays(t *testing.T) {
	t.Parallel()
	d := newDice(t)
	tally := tally{}
	for range 15 {
		found := policies{}
		for _, name := range []string{"a", "b", "c"} {
			found.tolerations = append(found.tolerations, d.tolerationPolicy(name, d.IntN(3) == 0))
		}
		namespaces := d.namespaces()
		compare(t, d, &found, namespaces, 40, &tally, func() *request {
			switch d.IntN(8) {
			case 0:
				return d.ofNamespaces()
			case 1, 2:
				return d.ofClaims(namespaces[pick(d, names...)])
			default:
				return d.ofPods(namespaces[pick(d, names...)])
			}
		})
	}
	tally.require(t)
}

func TestTheAPIServerSaysOfTaintsWhatTollgateSays(t *testing.T) {
	t.Parallel()
	d := newDice(t)
	tally := tally{}
	for range 15 {
		found := policies{}
		for _, name := range []string{"a", "b"} {
			found.taints = append(found.taints, d.taintPolicy(name, d.IntN(2) == 0))
		}
		compare(t, d, &found, nil, 40, &tally, func() *request {
			if d.IntN(2) == 0 {
				return d.ofRules()
			}
			return d.ofNodes()
		})
	}
	tally.require(t)
}

// tally counts the answers.
type tally struct{ Asked, Denied, Warned, Allowed, Costly int }

func (n *tally) require(t *testing.T) {
	t.Helper()
	t.Logf("%+v", *n)
	require.Greater(t, n.Denied, n.Asked/50)
	require.Greater(t, n.Allowed, n.Asked/50)
	require.LessOrEqual(t, n.Costly, n.Asked/10, "what is refused because of its cost is the exception")
}

// asksAuthorizer reports whether an expression of a policy asks what is authorized, for each thing that
// it judges: an export says that the API server does that twice at most.
func asksAuthorizer(found *policies) bool {
	authorized := func(expression string) bool { return strings.Contains(expression, "authorizer.") }
	return slices.ContainsFunc(found.tolerations, func(p v1alpha1.TolerationPolicy) bool {
		return slices.ContainsFunc(p.Spec.Grants, func(g v1alpha1.TolerationGrant) bool { return authorized(g.Expression) })
	}) || slices.ContainsFunc(found.taints, func(p v1alpha1.TaintPolicy) bool {
		return slices.ContainsFunc(p.Spec.Setters, func(s v1alpha1.TaintSetter) bool { return authorized(s.Expression) })
	})
}

// compare asks Tollgate and the exported policies the same.
func compare(t *testing.T, d dice, found *policies, namespaces map[string]*corev1.Namespace, times int, n *tally, next func() *request) {
	t.Helper()
	by := d.permissions()
	exported, webhook := enforce(t, exportAll(t, found)), tollgate(found, namespaces, by)
	for range times {
		r := next()
		if outside(r) {
			continue
		}
		want, got := judge(t, webhook, r), askPolicies(t, exported, r, by)
		if want.denied != got.denied || !want.denied && want.warned != got.warned {
			if got.tooCostly() && asksAuthorizer(found) {
				n.Costly++
				continue
			}
			require.Failf(t, "they disagree", "Tollgate: denied %t, warned %t: %s\nAPI server: denied %t, warned %t: %s\nby %s\nrequest %s\nof %s\npolicies %s",
				want.denied, want.warned, &want, got.denied, got.warned, &got, r.UserInfo.Username, text(t, r.AdmissionRequest), text(t, []any{r.old, r.object, r.namespace}), text(t, append(anys(found.tolerations), anys(found.taints)...)))
		}
		n.Asked++
		switch {
		case want.denied:
			n.Denied++
		case want.warned:
			n.Warned++
		default:
			n.Allowed++
		}
	}
}

func anys[T any](list []T) []any {
	all := make([]any, len(list))
	for i := range list {
		all[i] = list[i]
	}
	return all
}

func text(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return string(data)
}

// outside reports whether a request is by those whom the export lets pass, as it says, or
// of whom Tollgate's webhook is not asked.
func outside(r *request) bool {
	return strings.HasSuffix(r.UserInfo.Username, ":replicaset-controller") && r.Resource.Resource != "nodes" && r.Resource.Resource != "devicetaintrules" ||
		r.Resource.Resource == "nodes" && r.Operation == "UPDATE" && strings.HasSuffix(r.UserInfo.Username, ":node-controller")
}

func (d dice) taintPolicy(name string, device bool) v1alpha1.TaintPolicy {
	p := v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for range 1 + d.IntN(3) {
		p.Spec.Taints = append(p.Spec.Taints, d.selector(device, true))
	}
	for range d.IntN(4) {
		p.Spec.Setters = append(p.Spec.Setters, d.setter())
	}
	if device && d.IntN(3) == 0 {
		p.Spec.Limits = &v1alpha1.TaintLimits{RequireSelector: true, RequirePreview: d.IntN(2) == 0, Window: metav1.Duration{Duration: time.Minute}}
	}
	p.Spec.MatchConditions, p.Spec.ValidationActions = d.conditions(), d.actions()
	return p
}

// setterExpressions are setters of users.
var setterExpressions = []string{
	"taint.key.startsWith('example.com/') && operation != 'Remove'",
	"has(taint.value) || request.userInfo.username == 'jim'",
	"has(taint.timeAdded)",
	"taint.timeAdded < timestamp('2023-11-14T22:13:21Z')", // fails where there is none
	"oldObject == null || object != null && object.metadata.?labels == oldObject.metadata.?labels",
	"authorizer.group('tollgate.dev').resource('taints').name(taint.key).check('taint').allowed()",
}

func (d dice) setter() v1alpha1.TaintSetter {
	var s v1alpha1.TaintSetter
	switch d.IntN(3) {
	case 0:
		s.RBAC = true
	case 1:
		s.Expression = pick(d, setterExpressions...)
	default:
		s.Subjects = d.subjects()
	}
	s.Operations = some(d, 2, v1alpha1.TaintAdd, v1alpha1.TaintChange, v1alpha1.TaintRemove)
	return s
}
