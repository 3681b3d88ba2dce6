package webhook

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// matching says for how many of n policies the typical pod is one that they are
// about.
type matching func(i int) bool

func onePercent(i int) bool { return i%100 == 0 }

func all(int) bool { return true }

var matchings = []struct {
	name    string
	matches matching
}{
	{"1%", onePercent},
	{"100%", all},
}

// guardingShare returns n policies that guard the taint that the typical pod tolerates, or
// another value of it, and grant it by namespace or by expression.
func guardingShare(n int, matches matching, expression string) []v1alpha1.TolerationPolicy {
	policies := make([]v1alpha1.TolerationPolicy, n)
	for i := range policies {
		value := "banana"
		if !matches(i) {
			value = fmt.Sprintf("team-%d", i)
		}
		policies[i] = v1alpha1.TolerationPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%05d", i)},
			Spec: v1alpha1.TolerationPolicySpec{
				Taints: []v1alpha1.TaintSelector{{Key: "dedicated", Values: []string{value}}},
				Grants: []v1alpha1.TolerationGrant{{Namespaces: []string{"banana"}, Expression: expression}},
			},
		}
	}
	return policies
}

// givingShare returns n policies that give pods of the typical pod's namespace, or of
// another, what it has already or a toleration more.
func givingShare(n int, matches matching) []v1alpha1.PlacementPolicy {
	policies := make([]v1alpha1.PlacementPolicy, n)
	for i := range policies {
		namespace := "banana"
		if !matches(i) {
			namespace = fmt.Sprintf("team-%d", i)
		}
		policies[i] = v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%05d", i)},
			Spec: v1alpha1.PlacementPolicySpec{
				Match: v1alpha1.PlacementMatch{Namespaces: []string{namespace}},
				Pod: &v1alpha1.PodPlacement{
					Tolerations:  []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana", Effect: corev1.TaintEffectNoSchedule}},
					NodeSelector: map[string]string{"dedicated": "banana"},
				},
			},
		}
	}
	return policies
}

func emptyHandler() http.Handler {
	return &admission.Webhook{Handler: admission.HandlerFunc(
		func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })}
}

// withPolicies is the configuration of the other tests with other policies.
func withPolicies(policies *policyset.Set) Config {
	config := testConfig()
	config.Handlers.Policies = fixedPolicies{policies}
	return config
}

// BenchmarkPolicies measures one review of a pod by how many policies there are and
// how many of them look at it (PA2 to PA6, PA9), beside a handler that decodes the
// envelope and allows.
func BenchmarkPolicies(b *testing.B) {
	b.Run("empty-handler", func(b *testing.B) { benchmarkHandler(b, emptyHandler()) })
	for _, kind := range []struct {
		name     string
		policies func(n int, matches matching) *policyset.Set
		endpoint func(Config) *Endpoint
	}{
		{"validate/namespaces", func(n int, matches matching) *policyset.Set {
			return policyset.None().WithTolerations(guardingShare(n, matches, ""))
		}, Validate},
		{"validate/expressions", func(n int, matches matching) *policyset.Set {
			return policyset.None().WithTolerations(guardingShare(n, matches, "toleration.key == 'dedicated' && pod.metadata.labels.app == 'web'"))
		}, Validate},
		{"mutate/placement", func(n int, matches matching) *policyset.Set {
			return policyset.None().WithPlacement(givingShare(n, matches))
		}, Mutate},
	} {
		for _, share := range matchings {
			for _, n := range []int{0, 1, 100, 1000} {
				b.Run(fmt.Sprintf("%s/matching=%s/policies=%d", kind.name, share.name, n), func(b *testing.B) {
					benchmarkHandler(b, kind.endpoint(withPolicies(kind.policies(n, share.matches))))
				})
			}
		}
	}
}
