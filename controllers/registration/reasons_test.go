package registration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/registration"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

func TestPoliciesGiveReasons(t *testing.T) {
	tolerations := func(grants ...v1alpha1.TolerationGrant) *policyset.Set {
		return policyset.None().WithTolerations([]v1alpha1.TolerationPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}}, Grants: grants},
		}})
	}
	guarding := func(key string) *policyset.Set {
		return policyset.None().WithTolerations([]v1alpha1.TolerationPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}, {Key: key}}},
		}})
	}
	placement := func(pod *v1alpha1.PodPlacement, claim *v1alpha1.ClaimPlacement, match v1alpha1.PlacementMatch) *policyset.Set {
		return policyset.None().WithPlacement([]v1alpha1.PlacementPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.PlacementPolicySpec{Match: match, Pod: pod, Claim: claim},
		}})
	}
	windows := func(target v1alpha1.TaintTarget, seconds int64) *policyset.Set {
		return policyset.None().WithEvictions([]v1alpha1.EvictionPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Spec: v1alpha1.EvictionPolicySpec{
				Taints: []v1alpha1.TaintSelector{{Target: target, Key: "k"}}, Inject: &v1alpha1.EvictionInjection{Seconds: seconds},
			},
		}})
	}
	pod := &v1alpha1.PodPlacement{Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}}
	claim := &v1alpha1.ClaimPlacement{Tolerations: []resourcev1.DeviceToleration{{Key: "dedicated", Operator: resourcev1.DeviceTolerationOpExists}}}
	somewhere := v1alpha1.PlacementMatch{Namespaces: []string{"apple"}}
	byLabels := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	for name, tt := range map[string]struct {
		policies       *policyset.Set
		window         bool
		want, doubtful registration.Reasons
	}{
		"no policy":                          {policies: policyset.None()},
		"a TolerationPolicy":                 {policies: tolerations(v1alpha1.TolerationGrant{Namespaces: []string{"apple"}}), want: registration.Tolerations},
		"one that grants nothing":            {policies: tolerations(), want: registration.Tolerations},
		"one that grants by labels":          {policies: tolerations(v1alpha1.TolerationGrant{NamespaceSelector: byLabels}), want: registration.Tolerations | registration.NamespaceLabels},
		"one whose selector cannot be read":  {policies: tolerations(v1alpha1.TolerationGrant{NamespaceSelector: broken}), want: registration.Tolerations | registration.DefaultTolerations, doubtful: registration.NamespaceLabels},
		"one for a system taint":             {policies: guarding("node.kubernetes.io/disk-pressure"), want: registration.Tolerations},
		"one for nodes that are not ready":   {policies: guarding("node.kubernetes.io/not-ready"), want: registration.Tolerations | registration.DefaultTolerations},
		"one for all of the domain":          {policies: guarding("node.kubernetes.io/*"), want: registration.Tolerations | registration.DefaultTolerations},
		"one for every other taint":          {policies: guarding("*"), want: registration.Tolerations},
		"a TaintPolicy needs nothing more":   {policies: policyset.None().WithTaints([]v1alpha1.TaintPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}})},
		"a GatePolicy":                       {policies: policyset.None().WithGates([]v1alpha1.GatePolicy{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}), want: registration.Gates},
		"a PlacementPolicy for pods":         {policies: placement(pod, nil, somewhere), want: registration.Pods},
		"one for claims":                     {policies: placement(nil, claim, somewhere), want: registration.Claims},
		"one for both":                       {policies: placement(pod, claim, somewhere), want: registration.Pods | registration.Claims},
		"one whose match cannot be read":     {policies: placement(pod, nil, v1alpha1.PlacementMatch{NamespaceSelector: broken}), doubtful: registration.Pods | registration.Claims},
		"one with a guard that is not valid": {policies: policyset.None().WithTolerations(nil).WithPlacement([]v1alpha1.PlacementPolicy{guarded(somewhere, pod)}), want: registration.Pods | registration.Tolerations | registration.DefaultTolerations, doubtful: registration.NamespaceLabels | registration.Pods | registration.Claims},
		"an EvictionPolicy that injects":     {policies: windows(v1alpha1.TaintTargetNode, 60)},
		"one that injects in mode Window":    {policies: windows(v1alpha1.TaintTargetNode, 60), window: true, want: registration.PodWindows},
		"one that injects into claims":       {policies: windows(v1alpha1.TaintTargetDevice, 60), window: true, want: registration.ClaimWindows},
		"one that is not valid":              {policies: policyset.None().WithEvictions([]v1alpha1.EvictionPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}), window: true, doubtful: registration.PodWindows | registration.ClaimWindows},
	} {
		t.Run(name, func(t *testing.T) {
			reasons, doubtful := registration.Of(tt.policies, tt.window)
			require.Equal(t, tt.want.String(), reasons.String())
			require.Equal(t, tt.doubtful.String(), (doubtful&^reasons | doubtful&tt.doubtful).String())
		})
	}
}

func guarded(match v1alpha1.PlacementMatch, pod *v1alpha1.PodPlacement) v1alpha1.PlacementPolicy {
	return v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       v1alpha1.PlacementPolicySpec{Match: match, Pod: pod, Guard: &v1alpha1.PlacementGuard{}},
	}
}

func TestReasonsAreReadAsTheyAreWritten(t *testing.T) {
	for r := range registration.All + 1 {
		require.Equal(t, r, registration.Parse(r.String()))
	}
	require.Equal(t, registration.Gates, registration.Parse("later,gates,"))
	require.Zero(t, registration.Parse(""))
}
