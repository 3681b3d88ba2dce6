package selector

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// FuzzCould holds Could against one taint at a time: where Kubernetes says that a
// toleration tolerates a taint that the selector selects, Could must say so too, and
// so must the index.
func FuzzCould(f *testing.F) {
	f.Add("dedicated", "Equal", "banana", "NoExecute", "dedicated", "banana", "NoExecute", "banana", "NoExecute", "banana")
	f.Add("", "Exists", "", "", "*", "", "", "x", "NoSchedule", "example.com/gpu")
	f.Add("", "Equal", "5", "", "example.com/*", "5", "", "5", "NoSchedule", "example.com/gpu")
	f.Add("tier", "Lt", "6", "", "tier", "5", "NoExecute", "5", "NoExecute", "tier")
	f.Add("tier", "Gt", "-9223372036854775808", "", "tier", "", "", "0", "NoExecute", "tier")
	f.Add("a/b/c", "Like", "05", "NoAdmit", "a/b/*", "", "NoAdmit", "05", "NoAdmit", "a/b/c")
	f.Add("node.kubernetes.io/x", "", "", "", "node*", "", "", "", "NoExecute", "node.kubernetes.io/x")
	f.Fuzz(func(t *testing.T, key, operator, value, effect, selKey, selValue, selEffect, taintValue, taintEffect, taintKey string) {
		sel := v1alpha1.TaintSelector{Key: selKey}
		if selValue != "" {
			sel.Values = []string{selValue, "other"}
		}
		if selEffect != "" {
			sel.Effects = []corev1.TaintEffect{corev1.TaintEffect(selEffect), noSchedule}
		}
		tol := corev1.Toleration{Key: key, Operator: corev1.TolerationOperator(operator), Value: value, Effect: corev1.TaintEffect(effect)}
		taint := corev1.Taint{Key: taintKey, Value: taintValue, Effect: corev1.TaintEffect(taintEffect)}
		read := OfPod(&tol)
		checkCould(t, &sel, &read, oracleSelects(&sel, taint.Key, taint.Value, taint.Effect) && oracleTolerates(&tol, &taint))

		device := resourcev1.DeviceToleration{Key: key, Operator: resourcev1.DeviceTolerationOperator(operator), Value: value, Effect: resourcev1.DeviceTaintEffect(effect)}
		deviceTaint := resourcev1.DeviceTaint{Key: taintKey, Value: taintValue, Effect: resourcev1.DeviceTaintEffect(taintEffect)}
		sel.Target = v1alpha1.TaintTargetDevice
		read = OfDevice(FromDevice(&device), "gpu")
		checkCould(t, &sel, &read, oracleSelects(&sel, taint.Key, taint.Value, taint.Effect) && resourceclaim.ToleratesTaint(device, deviceTaint))
	})
}

// checkCould checks that what must match does, and that the index finds what could.
func checkCould(t *testing.T, sel *v1alpha1.TaintSelector, tol *Toleration, must bool) {
	t.Helper()
	compiled := Compile(sel)
	could := compiled.Could(tol)
	if must {
		require.True(t, could, "toleration %+v, selector %+v", tol, sel)
	}
	if !could {
		return
	}
	index := Index{}
	index.add(7, &compiled)
	require.Equal(t, []int{7}, slices.Collect(index.Candidates(tol)), "toleration %+v, selector %+v", tol, sel)
}
