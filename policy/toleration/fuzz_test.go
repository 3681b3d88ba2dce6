package toleration

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
)

// FuzzJudge holds a Set of one policy against its selector: it must refuse exactly
// what could tolerate one of the taints.
func FuzzJudge(f *testing.F) {
	f.Add("dedicated", "Equal", "banana", "NoExecute", "dedicated", "banana", "NoExecute", "banana", "NoExecute", "banana")
	f.Add("", "Exists", "", "", "*", "", "", "x", "NoSchedule", "example.com/gpu")
	f.Add("", "Equal", "5", "", "example.com/*", "5", "", "5", "NoSchedule", "example.com/gpu")
	f.Add("tier", "Lt", "6", "", "tier", "5", "NoExecute", "5", "NoExecute", "tier")
	f.Add("tier", "Gt", "-9223372036854775808", "", "tier", "", "", "0", "NoExecute", "tier")
	f.Add("a/b/c", "Like", "05", "NoAdmit", "a/b/*", "", "NoAdmit", "05", "NoAdmit", "a/b/c")
	f.Add("node.kubernetes.io/x", "", "", "", "node*", "", "", "", "NoExecute", "node.kubernetes.io/x")
	f.Fuzz(func(t *testing.T, key, operator, value, effect, selKey, selValue, selEffect, class, classes, action string) {
		sel := v1alpha1.TaintSelector{Key: selKey}
		if selValue != "" {
			sel.Values = []string{selValue, "other"}
		}
		if selEffect != "" {
			sel.Effects = []corev1.TaintEffect{corev1.TaintEffect(selEffect), noSchedule}
		}
		tol := corev1.Toleration{Key: key, Operator: corev1.TolerationOperator(operator), Value: value, Effect: corev1.TaintEffect(effect)}
		in := inputOf("apple", tol)
		read := selector.OfPod(&tol)
		if !in.system(&read) {
			compareWithSelector(t, in, sel, &read)
		}

		in = inputOf("apple")
		in.OfDevices = true
		in.Asked = []Asked{{Path: specTolerations, New: []corev1.Toleration{tol}, Class: class}}
		read = selector.OfDevice(&tol, class)
		sel.Target, sel.DeviceClasses = v1alpha1.TaintTargetDevice, []string{classes}
		compareWithSelector(t, in, sel, &read)
	})
}

func compareWithSelector(t *testing.T, in Input, sel v1alpha1.TaintSelector, read *selector.Toleration) {
	t.Helper()
	p := v1alpha1.TolerationPolicy{Spec: v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{sel}}}
	p.Name = "p"
	compiled, set := selector.Compile(&sel), Compile([]v1alpha1.TolerationPolicy{p})
	could := compiled.Could(read)
	require.Equal(t, could, judge(t, set, in).Verdict == policy.Denied, "toleration %+v, selector %+v", read, sel)
	require.Equal(t, could, set.Concerns(in))
}
