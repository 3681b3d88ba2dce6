package tolerations

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// FuzzCouldTolerate holds CouldTolerate against one taint at a time: where
// Kubernetes says that a toleration tolerates a taint that the selector selects,
// CouldTolerate must say so too. And a Set must refuse exactly what it says.
func FuzzCouldTolerate(f *testing.F) {
	f.Add("dedicated", "Equal", "banana", "NoExecute", "dedicated", "banana", "NoExecute", "banana", "NoExecute", "banana")
	f.Add("", "Exists", "", "", "*", "", "", "x", "NoSchedule", "example.com/gpu")
	f.Add("", "Equal", "5", "", "example.com/*", "5", "", "5", "NoSchedule", "example.com/gpu")
	f.Add("tier", "Lt", "6", "", "tier", "5", "NoExecute", "5", "NoExecute", "tier")
	f.Add("tier", "Gt", "-9223372036854775808", "", "tier", "", "", "0", "NoExecute", "tier")
	f.Add("a/b/c", "Like", "05", "NoAdmit", "a/b/*", "", "NoAdmit", "05", "NoAdmit", "a/b/c")
	f.Add("node.kubernetes.io/x", "", "", "", "node*", "", "", "", "NoExecute", "node.kubernetes.io/x")
	f.Fuzz(func(t *testing.T, key, operator, value, effect, selKey, selValue, selEffect, taintValue, taintEffect, taintKey string) {
		tol := corev1.Toleration{Key: key, Operator: corev1.TolerationOperator(operator), Value: value, Effect: corev1.TaintEffect(effect)}
		sel := v1alpha1.TaintSelector{Key: selKey}
		if selValue != "" {
			sel.Values = []string{selValue, "other"}
		}
		if selEffect != "" {
			sel.Effects = []corev1.TaintEffect{corev1.TaintEffect(selEffect), noSchedule}
		}
		taint := corev1.Taint{Key: taintKey, Value: taintValue, Effect: corev1.TaintEffect(taintEffect)}
		could := CouldTolerate(tol, sel)
		if oracleSelects(&sel, &taint) && oracleTolerates(&tol, &taint) {
			require.True(t, could, "toleration %+v, selector %+v, taint %+v", tol, sel, taint)
		}

		p := v1alpha1.TolerationPolicy{Spec: v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{sel}}}
		p.Name = "p"
		in := inputOf("apple", tol)
		if !in.system(&tol) {
			got := Compile([]v1alpha1.TolerationPolicy{p}).Judge(in)
			require.Equal(t, could, got.Verdict == policy.Denied, "toleration %+v, selector %+v", tol, sel)
		}
	})
}
