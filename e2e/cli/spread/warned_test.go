package spread

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// warning is what is said of a pod over zones a and b, and c with a taint.
const warning = "topologySpreadConstraints[0]: topologyKey " + zoneKey + " counts c, where every node has a taint that the pod does not tolerate (" + gpu +
	":NoSchedule): if there are more than 2 such pods, the rest stays pending while none is there, because no more fit in the 2 other domains (maxSkew 1); " +
	"set nodeTaintsPolicy: Honor to leave out such domains"

func byZone() corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		TopologyKey: zoneKey, WhenUnsatisfiable: corev1.DoNotSchedule, MaxSkew: 1,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
}

func deployment(replicas int32) *appsv1.Deployment {
	pod := web("", byZone())
	pod.Labels["app"] = "web"
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}
}

// A pod waits for a zone that it cannot use, as the warning said. What a PlacementPolicy
// gives lets it go, and nothing is warned of any more.
func TestTS06AWarningComesTrueAndAPlacementPolicyHelps(t *testing.T) {
	namespace, elsewhere := namespaceOf(t), namespaceOf(t)
	dress(t, namespace, func(i int) look {
		l := look{labels: map[string]*string{zoneKey: new(string("abc"[i/2])), rackKey: nil, diskKey: nil}}
		if i/2 == 2 {
			l.taints = []corev1.Taint{{Key: gpu, Effect: corev1.TaintEffectNoSchedule}}
		}
		return l
	})
	as := admin(t)
	warned := func(in string) []string {
		t.Helper()
		as.heard.take()
		_, err := as.CoreV1().Pods(in).Create(t.Context(), web("dry", byZone()), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		return as.heard.take()
	}
	eventually(t, "Tollgate knows the nodes", func(context.Context) error {
		if got := warned(namespace); len(got) != 1 || got[0] != "spec."+warning {
			return fmt.Errorf("it warns %q", got)
		}
		return nil
	})

	create := func(name string) *corev1.Pod {
		t.Helper()
		pod, err := as.CoreV1().Pods(namespace).Create(t.Context(), web(name, byZone()), metav1.CreateOptions{})
		require.NoError(t, err)
		return tried(t, as, pod)
	}
	require.NotEmpty(t, create("first").Spec.NodeName)
	require.NotEmpty(t, create("second").Spec.NodeName)
	stuck := create("third")
	require.Contains(t, refusal(stuck), "4 node(s) didn't match pod topology spread constraints")

	// Nobody waits for Tollgate longer than a second, so it is asked until it answers.
	warnedOfDeployment := func(what string) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) error {
			as.heard.take()
			_, err := as.AppsV1().Deployments(elsewhere).Create(ctx, deployment(3), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if got := as.heard.take(); err != nil || len(got) != 1 || got[0] != "spec.template.spec."+warning {
				return fmt.Errorf("it warns %q: %w", got, err)
			}
			return nil
		})
	}
	warnedOfDeployment("a warning of a Deployment")

	place(t, namespace)
	eventually(t, "the policy is in force", func(context.Context) error {
		if got := warned(namespace); len(got) > 0 {
			return fmt.Errorf("it warns %q", got)
		}
		return nil
	})
	require.Len(t, warned(elsewhere), 1, "the policy is for one namespace")
	remove(t, as, stuck)
	require.NotEmpty(t, create("third").Spec.NodeName)

	warnedOfDeployment("Tollgate is there to ask")
	_, err := as.AppsV1().Deployments(namespace).Create(t.Context(), deployment(4), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Empty(t, as.heard.take())
	warnedOfDeployment("Tollgate still is")
	eventually(t, "all pods of the Deployment are placed", func(ctx context.Context) error {
		list, err := as.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == "" {
				return fmt.Errorf("%s waits: %s", list.Items[i].Name, refusal(&list.Items[i]))
			}
		}
		if len(list.Items) != 3+4 {
			return fmt.Errorf("there are %d pods", len(list.Items))
		}
		return nil
	})
}

// place creates a PlacementPolicy for a namespace that lets constraints honour taints.
func place(t *testing.T, namespace string) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c, err := client.New(shared.RESTConfig(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	policy := &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PlacementMatch{Namespaces: []string{namespace}},
			Pod:   &v1alpha1.PodPlacement{TopologySpread: &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor)}},
		},
	}
	require.NoError(t, c.Create(t.Context(), policy))
	t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), policy)) })
}
