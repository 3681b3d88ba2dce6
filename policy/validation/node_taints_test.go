package validation_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// taint writes a taint as kubectl does, with its time as seconds from now, if any:
// "gpu=broken:NoExecute".
func taint(tb testing.TB, spec string, offset ...float64) corev1.Taint {
	tb.Helper()
	var out corev1.Taint
	for i := len(spec) - 1; i >= 0; i-- {
		switch spec[i] {
		case ':':
			out.Effect, spec = corev1.TaintEffect(spec[i+1:]), spec[:i]
		case '=':
			out.Value, spec = spec[i+1:], spec[:i]
		}
	}
	out.Key = spec
	if len(offset) > 0 {
		out.TimeAdded = at(offset[0])
	}
	return out
}

func at(offset float64) *metav1.Time {
	return new(metav1.NewTime(now.Add(time.Duration(offset * float64(time.Second)))))
}

// apply returns the taints with the times that Stamp gives them.
func apply(list []corev1.Taint, times []validation.NodeTimeAdded) []corev1.Taint {
	out := make([]corev1.Taint, len(list))
	for i := range list {
		out[i] = *list[i].DeepCopy()
	}
	for _, stamp := range times {
		out[stamp.Index].TimeAdded = new(stamp.TimeAdded)
	}
	return out
}

// draw returns a list of taints in which keys, values and times meet often.
func draw(r *rand.Rand, n int) []corev1.Taint {
	list := make([]corev1.Taint, n)
	keys := []string{"gpu", "disk", corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	for i := range list {
		list[i] = corev1.Taint{
			Key: keys[r.IntN(len(keys))], Effect: effects[r.IntN(len(effects))], Value: []string{"", "v"}[r.IntN(2)],
		}
		if r.IntN(3) > 0 {
			list[i].TimeAdded = at([]float64{-3600, -60.5, -6, -5, -4.5, -0.25, 0, 3, 5, 6, 60, 61, 86400}[r.IntN(13)])
		}
	}
	return list
}

// drawWrite returns the taints of a node before and after a write that keeps some,
// changes some, adds and removes some and reorders them.
func drawWrite(r *rand.Rand) validation.StampInput {
	in := validation.StampInput{Old: draw(r, r.IntN(5)), NodeLifecycleController: r.IntN(2) == 0, Now: now}
	for _, t := range in.Old {
		if r.IntN(4) > 0 {
			in.New = append(in.New, *t.DeepCopy())
		}
	}
	for i := range in.New {
		switch r.IntN(6) {
		case 0:
			in.New[i].TimeAdded = nil
		case 1:
			in.New[i].TimeAdded = at(0)
		case 2:
			in.New[i].Value = "changed"
		}
	}
	in.New = append(in.New, draw(r, r.IntN(3))...)
	r.Shuffle(len(in.New), func(i, j int) { in.New[i], in.New[j] = in.New[j], in.New[i] })
	return in
}

// eachWrite runs check for many writes, and names the seed if it fails.
func eachWrite(t *testing.T, check func(t *testing.T, r *rand.Rand, in validation.StampInput)) {
	t.Helper()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	for range 5_000 {
		check(t, r, drawWrite(r))
	}
}

func BenchmarkTaints(b *testing.B) {
	var many []corev1.Taint
	for i := range 1_000 {
		many = append(many, taint(b, fmt.Sprintf("key-%d=v:NoSchedule", i), -100))
	}
	heartbeat := []corev1.Taint{taint(b, "gpu=broken:NoExecute", -100), taint(b, "dedicated=a:NoSchedule", -1000)}
	added := append([]corev1.Taint{taint(b, "disk=full:NoExecute")}, heartbeat...)
	addedToMany := append([]corev1.Taint{taint(b, "disk=full:NoExecute")}, many...)
	for _, write := range []struct {
		name     string
		new, old []corev1.Taint
	}{
		{"nothing changes", heartbeat, heartbeat},
		{"one taint is added", added, heartbeat},
		{"one taint is added to 1,000", addedToMany, many},
	} {
		b.Run("stamp/"+write.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				validation.StampNode(validation.StampInput{Old: write.old, New: write.new, Now: now})
			}
		})
		b.Run("validate/"+write.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				validation.ValidateNode(write.new, write.old, now, time.Minute)
			}
		})
	}
}

func FuzzWrite(f *testing.F) {
	f.Add("gpu", "NoExecute", "v", int64(0), uint8(7), uint64(1))
	f.Add(corev1.TaintNodeNotReady, "NoExecute", "", int64(-100), uint8(2), uint64(2))
	f.Add("", "", "", int64(1)<<62, uint8(0), uint64(3))
	f.Fuzz(func(t *testing.T, key, effect, value string, offset int64, shape uint8, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		in := drawWrite(r)
		odd := corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect), Value: value}
		if shape&1 != 0 {
			odd.TimeAdded = new(metav1.NewTime(now.Add(time.Duration(offset))))
		}
		if shape&2 != 0 {
			in.Old = append(in.Old, odd)
		}
		if shape&4 != 0 {
			in.New = append(in.New, odd, odd)
		}
		stamped := apply(in.New, validation.StampNode(in))
		validation.ValidateNode(stamped, in.Old, in.Now, time.Minute)
		validation.NodeWarnings(stamped, in.Old, in.Now)
		in.New = stamped
		require.Empty(t, validation.StampNode(in), "stamped twice")
	})
}
