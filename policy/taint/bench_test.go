package taint

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// BenchmarkJudge judges one taint by policies of which one in a hundred governs it,
// and one at least.
func BenchmarkJudge(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("%d policies", n), func(b *testing.B) {
			policies := make([]v1alpha1.TaintPolicy, n)
			for i := range policies {
				key := fmt.Sprintf("team-%d.example.com/*", i)
				if i%100 == 0 {
					key = "example.com/*"
				}
				policies[i] = newPolicy(fmt.Sprintf("p%d", i), key, setBy("sre"))
			}
			set := Compile(policies)
			in := input(sre, []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}, nil)
			b.ReportAllocs()
			for b.Loop() {
				decision, err := set.Judge(b.Context(), in)
				require.NoError(b, err)
				require.Empty(b, decision.Findings)
			}
		})
	}
}

// BenchmarkRegister asks which taints a node gets, as its creation does.
func BenchmarkRegister(b *testing.B) {
	policies := make([]v1alpha1.TaintPolicy, 1000)
	for i := range policies {
		pool := fmt.Sprintf("pool-%d", i)
		policies[i] = newPolicy(pool, "dedicated", registering(true, map[string]string{"pool": pool}, bananaTaint))
	}
	set, labels := Compile(policies), map[string]string{"pool": "pool-500", "a": "b", "c": "d"}
	b.ReportAllocs()
	for b.Loop() {
		require.Len(b, set.Register(labels), 1)
	}
}

// BenchmarkCompile reads 10,000 policies with an expression each, as after a start, and
// again when one of them has changed.
func BenchmarkCompile(b *testing.B) {
	policies := make([]v1alpha1.TaintPolicy, 10_000)
	for i := range policies {
		policies[i] = newPolicy(fmt.Sprintf("p%d", i), "example.com/*", setBy("sre"), setWhere(`operation == 'Add' && taint.key.startsWith('example.com/')`))
		policies[i].UID, policies[i].Generation = types.UID(policies[i].Name), 1
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			require.Equal(b, len(policies), Compile(policies).Len())
		}
	})
	b.Run("one", func(b *testing.B) {
		set := Compile(policies)
		for b.Loop() {
			policies[500].Generation++
			set = set.Next(policies)
		}
		require.Equal(b, len(policies), set.Len())
	})
}
