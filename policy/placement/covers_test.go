package placement

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/selector"
)

func TestCovers(t *testing.T) {
	exists, equal := corev1.TolerationOpExists, corev1.TolerationOpEqual
	noExecute, noSchedule := corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule
	tests := []struct {
		name       string
		have, want corev1.Toleration
		covers     bool
	}{
		{"itself", corev1.Toleration{Key: "k", Operator: equal, Value: "v"}, corev1.Toleration{Key: "k", Operator: equal, Value: "v"}, true},
		{"AV-23 no operator is Equal", corev1.Toleration{Key: "k", Value: "v"}, corev1.Toleration{Key: "k", Operator: equal, Value: "v"}, true},
		{"Exists covers Equal", corev1.Toleration{Key: "k", Operator: exists}, corev1.Toleration{Key: "k", Value: "v"}, true},
		{"Equal does not cover Exists", corev1.Toleration{Key: "k", Value: "v"}, corev1.Toleration{Key: "k", Operator: exists}, false},
		{"TP-06 Exists covers Lt", corev1.Toleration{Key: "k", Operator: exists}, corev1.Toleration{Key: "k", Operator: corev1.TolerationOpLt, Value: "5"}, true},
		{"Lt covers only itself", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpLt, Value: "6"}, corev1.Toleration{Key: "k", Operator: corev1.TolerationOpLt, Value: "5"}, false},
		{"another value", corev1.Toleration{Key: "k", Value: "v"}, corev1.Toleration{Key: "k", Value: "w"}, false},
		{"another key", corev1.Toleration{Key: "k", Operator: exists}, corev1.Toleration{Key: "l", Operator: exists}, false},
		{"a wildcard covers every key", corev1.Toleration{Operator: exists}, corev1.Toleration{Key: "l", Value: "v", Effect: noExecute}, true},
		{"no effect covers every effect", corev1.Toleration{Key: "k", Operator: exists}, corev1.Toleration{Key: "k", Operator: exists, Effect: noSchedule}, true},
		{"an effect does not cover all", corev1.Toleration{Key: "k", Operator: exists, Effect: noSchedule}, corev1.Toleration{Key: "k", Operator: exists}, false},
		{"another effect", corev1.Toleration{Key: "k", Operator: exists, Effect: noExecute}, corev1.Toleration{Key: "k", Operator: exists, Effect: noSchedule}, false},
		{"for ever covers for a while", tolerates60("k", nil), tolerates60("k", new(int64(5))), true},
		{"for a while does not cover for ever", tolerates60("k", new(int64(5))), tolerates60("k", nil), false},
		{"longer covers shorter", tolerates60("k", new(int64(6))), tolerates60("k", new(int64(5))), true},
		{"shorter does not cover longer", tolerates60("k", new(int64(4))), tolerates60("k", new(int64(5))), false},
		{"D09 negative seconds are none", tolerates60("k", new(int64(-4))), tolerates60("k", new(int64(0))), true},
		{"an operator that is not known covers itself", corev1.Toleration{Key: "k", Operator: "Near", Value: "1"}, corev1.Toleration{Key: "k", Operator: "Near", Value: "1"}, true},
		{"an operator that is not known covers nothing else", corev1.Toleration{Key: "k", Operator: "Near"}, corev1.Toleration{Key: "k"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.covers, covers(&tt.have, &tt.want)) })
	}
}

func TestSecondsOfDeviceTolerationsNeedNoExecute(t *testing.T) {
	have := resourcev1.DeviceToleration{Key: "k", Operator: resourcev1.DeviceTolerationOpExists, TolerationSeconds: new(int64(5))}
	want := resourcev1.DeviceToleration{Key: "k", Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute}
	require.True(t, covers(selector.FromDevice(&have), selector.FromDevice(&want)), "without an effect the seconds are ignored, and it lasts for ever")
	have.Effect = resourcev1.DeviceTaintEffectNoExecute
	require.False(t, covers(selector.FromDevice(&have), selector.FromDevice(&want)))
}

// randomToleration returns a valid one of few keys and values.
func randomToleration(random *rand.Rand) corev1.Toleration {
	var t corev1.Toleration
	t.Effect = []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}[random.IntN(4)]
	t.Key = []string{"", "a", "b"}[random.IntN(3)]
	t.Operator = corev1.TolerationOpExists
	if t.Key != "" && random.IntN(2) == 0 {
		t.Operator, t.Value = []corev1.TolerationOperator{"", corev1.TolerationOpEqual}[random.IntN(2)], []string{"", "x", "y"}[random.IntN(3)]
	}
	if t.Effect == corev1.TaintEffectNoExecute && random.IntN(2) == 0 {
		t.TolerationSeconds = new(int64(random.IntN(4)))
	}
	return t
}

// A toleration covers another exactly where it tolerates, for at least as long, every
// taint that the other does.
func TestCoversAgainstAllTaints(t *testing.T) {
	forever := int64(1 << 40)
	lasts := func(toleration *corev1.Toleration, taint *corev1.Taint) int64 {
		switch {
		case toleration.Key != "" && toleration.Key != taint.Key,
			toleration.Effect != "" && toleration.Effect != taint.Effect,
			toleration.Operator != corev1.TolerationOpExists && toleration.Value != taint.Value:
			return -1
		case toleration.TolerationSeconds != nil:
			return *toleration.TolerationSeconds
		default:
			return forever
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		have, want := randomToleration(random), randomToleration(random)
		wider := true
		for _, key := range []string{"a", "b", "c"} {
			for _, value := range []string{"", "x", "y", "z"} {
				for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute} {
					taint := &corev1.Taint{Key: key, Value: value, Effect: effect}
					wider = wider && lasts(&have, taint) >= lasts(&want, taint)
				}
			}
		}
		require.Equal(t, wider, covers(&have, &want), "%+v covers %+v", have, want)
	}
}
