package placement

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// BenchmarkPod gives one pod what 1 % of the policies, and one at least, have for it
// (PA5). They match by namespace, by a label of it, or by a resource.
func BenchmarkPod(b *testing.B) {
	matches := map[string]func(i int) v1alpha1.PlacementMatch{
		"namespace": func(i int) v1alpha1.PlacementMatch {
			return v1alpha1.PlacementMatch{Namespaces: []string{fmt.Sprintf("team-%d", i%100)}}
		},
		"label": func(i int) v1alpha1.PlacementMatch {
			return v1alpha1.PlacementMatch{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": strconv.Itoa(i % 100)}}}
		},
		"resource": func(i int) v1alpha1.PlacementMatch {
			return v1alpha1.PlacementMatch{Resources: []string{fmt.Sprintf("example.com/%d", i%100)}}
		},
		"prefix": func(i int) v1alpha1.PlacementMatch {
			return v1alpha1.PlacementMatch{Namespaces: []string{fmt.Sprintf("team-%d*", i%100)}}
		},
	}
	for _, by := range []string{"namespace", "label", "resource", "prefix"} {
		for _, n := range []int{0, 1, 100, 1000} {
			b.Run(fmt.Sprintf("by=%s/policies=%d", by, n), func(b *testing.B) {
				policies := make([]v1alpha1.PlacementPolicy, n)
				for i := range policies {
					policies[i] = gives(fmt.Sprintf("p%04d", i), v1alpha1.PodPlacement{
						Tolerations:  []corev1.Toleration{{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}},
						NodeSelector: map[string]string{"dedicated": "banana"},
					})
					policies[i].Spec.Match = matches[by](i)
				}
				set := Compile(policies)
				require.Empty(b, set.Problems())
				subject := &Subject{
					Namespace: "team-0", NamespaceLabels: map[string]string{"team": "0"}, Labels: map[string]string{"app": "web"},
					Resources: func() ([]string, error) { return []string{"cpu", "example.com/0"}, nil },
				}
				spec := corev1.PodSpec{Tolerations: []corev1.Toleration{tolerates60("node.kubernetes.io/not-ready", new(int64(300)))}}
				b.ReportAllocs()
				for b.Loop() {
					matching, err := set.MatchPod(b.Context(), subject)
					if err != nil {
						b.Fatal(err)
					}
					additions := matching.GivePod(Pod{Spec: &spec})
					if additions.Empty() != (n == 0) {
						b.Fatal("the wrong policies matched")
					}
				}
			})
		}
	}
}

// BenchmarkCompile reads 10,000 policies (D02).
func BenchmarkCompile(b *testing.B) {
	policies := make([]v1alpha1.PlacementPolicy, 10_000)
	for i := range policies {
		policies[i] = steers(fmt.Sprintf("p%05d", i), "dedicated", fmt.Sprintf("team-%d", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		Compile(policies)
	}
}
