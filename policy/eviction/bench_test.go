package eviction

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// ofTeams returns policies of which each is about the keys of one team, and one over
// everything.
func ofTeams(n int) *Set {
	list := []v1alpha1.EvictionPolicy{newPolicy("default", "*", prioritized(-1000), limited(500, selected), protecting(nil, "system-node-critical"))}
	for i := range n {
		list = append(list, newPolicy(fmt.Sprintf("p%d", i), fmt.Sprintf("team-%d.example.com/*", i), inNamespaces(labelled("team", "shop"))))
	}
	return Compile(list)
}

// BenchmarkFor asks how a pod leaves, as each pod that is due does.
func BenchmarkFor(b *testing.B) {
	for _, bench := range []struct {
		name string
		set  *Set
		key  string
	}{
		{"no policy", nil, "a"},
		{"the default alone", ofTeams(0), "a"},
		{"none of the default", ofTeams(0), "node.kubernetes.io/not-ready"},
		{"the default among 100", ofTeams(100), "a"},
		{"one of 100 and the default", ofTeams(100), "team-7.example.com/broken"},
		{"one of 10000 and the default", ofTeams(10_000), "team-7.example.com/broken"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			taint, subject := nodeTaint(bench.key), web()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bench.set.For(taint, subject); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCompile compiles as a change of one policy does.
func BenchmarkCompile(b *testing.B) {
	list := make([]v1alpha1.EvictionPolicy, 1000)
	for i := range list {
		list[i] = newPolicy(fmt.Sprintf("p%d", i), fmt.Sprintf("team-%d.example.com/*", i), inNamespaces(labelled("team", "shop")))
	}
	b.ReportAllocs()
	for b.Loop() {
		require.Equal(b, 1000, Compile(list).Len())
	}
}

func TestAskingAllocatesNothing(t *testing.T) {
	set, subject := ofTeams(100), web()
	for name, taint := range map[string]*Taint{
		"where no policy selects":       nodeTaint("node.kubernetes.io/not-ready"),
		"where the default does":        nodeTaint("a"),
		"where another one does too":    nodeTaint("team-7.example.com/broken"),
		"where no policy is of devices": deviceTaint("gpu.example.com", "a"),
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := set.For(taint, subject); err != nil {
				t.Fatal(err)
			}
		}), name)
	}
}
