package selector

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// The oracle knows nothing of what was compiled: it has a list of every taint there
// is and asks Kubernetes which of them a toleration tolerates.

const (
	none       = corev1.TaintEffect(resourcev1.DeviceTaintEffectNone)
	noSchedule = corev1.TaintEffectNoSchedule
	prefer     = corev1.TaintEffectPreferNoSchedule
	noExecute  = corev1.TaintEffectNoExecute
)

var (
	universeKeys = []string{
		"dedicated", "other", "example.com/a", "example.com/b", "example.company/a",
		"node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/shutdown", "third.example/x",
	}
	universeValues = []string{"", "a", "b", "-1", "0", "5", "10", "05", "-9223372036854775808", "9223372036854775807"}
)

func oracleTolerates(tol *corev1.Toleration, taint *corev1.Taint) bool {
	return tol.ToleratesTaint(logr.Discard(), taint, true)
}

func oracleSelects(sel *v1alpha1.TaintSelector, taintKey, taintValue string, taintEffect corev1.TaintEffect) bool {
	prefix, name, slashed := strings.Cut(taintKey, "/")
	system := slashed && name != "" && (prefix == "node.kubernetes.io" || prefix == "node.cloudprovider.kubernetes.io")
	key := sel.Key == taintKey || (sel.Key == prefix+"/*" && slashed) ||
		(sel.Key == "*" && (!system || sel.Target == v1alpha1.TaintTargetDevice))
	value := len(sel.Values) == 0 || slices.Contains(sel.Values, taintValue)
	effect := len(sel.Effects) == 0 || slices.Contains(sel.Effects, taintEffect)
	return key && value && effect
}

type dice struct{ *rand.Rand }

func newDice(t *testing.T) dice {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return dice{rand.New(rand.NewPCG(seed, 1))}
}

func pick[T any](d dice, items ...T) T { return items[d.IntN(len(items))] }

func some[T any](d dice, most int, items []T) []T {
	picked := slices.Clone(items)
	d.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	return picked[:d.IntN(min(most, len(picked))+1)]
}

func (d dice) selector(effects []corev1.TaintEffect) v1alpha1.TaintSelector {
	patterns := append([]string{"*", "example.com/*", "node.kubernetes.io/*"}, universeKeys...)
	return v1alpha1.TaintSelector{
		Key:     pick(d, patterns...),
		Values:  some(d, 3, universeValues),
		Effects: some(d, 2, effects),
	}
}

func TestCouldAgreesWithEveryTaintThereIsOfNodes(t *testing.T) {
	effects := []corev1.TaintEffect{noSchedule, prefer, noExecute}
	d, seen := newDice(t), map[bool]int{}
	for range 3000 {
		sel := d.selector(effects)
		tol := corev1.Toleration{
			Key:      pick(d, append([]string{"", ""}, universeKeys...)...),
			Operator: pick[corev1.TolerationOperator](d, "", "Equal", "Exists", "Exists", "Lt", "Gt"),
			Effect:   pick(d, "", noSchedule, prefer, noExecute),
		}
		switch tol.Operator {
		case corev1.TolerationOpExists:
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			tol.Value = pick(d, "-1", "0", "5", "7", "10", "-9223372036854775808", "9223372036854775807")
		case corev1.TolerationOpEqual, "":
			tol.Value = pick(d, universeValues...)
		}
		compiled, read := Compile(&sel), OfPod(&tol)
		want, outlasts := false, false
		for taint := range everyTaint(effects) {
			tolerates := oracleTolerates(&tol, &taint)
			selects := oracleSelects(&sel, taint.Key, taint.Value, taint.Effect)
			require.Equal(t, tolerates, read.Tolerates(&taint), "toleration %+v, taint %+v", tol, taint)
			require.Equal(t, selects, compiled.Selects(v1alpha1.TaintTargetNode, "", taint.Key, taint.Value, taint.Effect))
			want = want || (tolerates && selects)
			outlasts = outlasts || (tolerates && selects && taint.Effect == noExecute)
		}
		require.Equal(t, want, compiled.Could(&read), "toleration %+v, selector %+v", tol, sel)
		require.Equal(t, outlasts, compiled.CouldOutlast(&read), "toleration %+v, selector %+v", tol, sel)
		seen[want]++
	}
	require.Greater(t, seen[true], 200)
	require.Greater(t, seen[false], 200)
}

func TestCouldAgreesWithEveryTaintThereIsOfDevices(t *testing.T) {
	effects := []corev1.TaintEffect{none, noSchedule, noExecute}
	classes := []string{"gpu", "nic", "disk"}
	d, seen := newDice(t), map[bool]int{}
	for range 3000 {
		sel := d.selector(effects)
		sel.Target, sel.DeviceClasses = v1alpha1.TaintTargetDevice, some(d, 2, classes)
		class := pick(d, classes...)
		tol := resourcev1.DeviceToleration{
			Key:      pick(d, append([]string{"", ""}, universeKeys...)...),
			Operator: pick[resourcev1.DeviceTolerationOperator](d, "", "Equal", "Exists"),
			Effect:   resourcev1.DeviceTaintEffect(pick(d, "", none, noSchedule, noExecute)),
		}
		if tol.Operator != resourcev1.DeviceTolerationOpExists {
			tol.Value = pick(d, universeValues...)
		}
		compiled, read := Compile(&sel), OfDevice(FromDevice(&tol), class)
		want := false
		for taint := range everyTaint(effects) {
			selects := oracleSelects(&sel, taint.Key, taint.Value, taint.Effect)
			require.Equal(t, selects, compiled.Selects(v1alpha1.TaintTargetDevice, "gpu.example.com", taint.Key, taint.Value, taint.Effect))
			want = want || (selects && resourceclaim.ToleratesTaint(tol, resourcev1.DeviceTaint{
				Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect),
			}))
		}
		want = want && (len(sel.DeviceClasses) == 0 || slices.Contains(sel.DeviceClasses, class))
		require.Equal(t, want, compiled.Could(&read), "toleration %+v of %s, selector %+v", tol, class, sel)
		seen[want]++
	}
	require.Greater(t, seen[true], 200)
	require.Greater(t, seen[false], 200)
}

func everyTaint(effects []corev1.TaintEffect) func(yield func(corev1.Taint) bool) {
	return func(yield func(corev1.Taint) bool) {
		for _, key := range universeKeys {
			for _, value := range universeValues {
				for _, effect := range effects {
					if !yield(corev1.Taint{Key: key, Value: value, Effect: effect}) {
						return
					}
				}
			}
		}
	}
}
