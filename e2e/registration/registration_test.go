package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

const (
	// patience is far above what anything here takes.
	patience = time.Minute
	interval = 50 * time.Millisecond
	// ten is how long it may take until a deleted configuration is noticed.
	ten = 10 * time.Second
)

func clientOf() (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("add kinds: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("add kinds: %w", err)
	}
	return client.New(shared.RESTConfig(), client.Options{Scheme: scheme})
}

func api(t *testing.T) client.Client {
	t.Helper()
	c, err := clientOf()
	require.NoError(t, err)
	return c
}

func podWith(tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: metav1.NamespaceDefault},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, Tolerations: tolerations},
	}
}

// dedicated returns a toleration that no policy of these tests grants.
func dedicated() corev1.Toleration {
	return corev1.Toleration{Key: "registration.example.com/dedicated", Operator: corev1.TolerationOpExists}
}

// create creates a pod as a dry run.
func create(ctx context.Context, pod *corev1.Pod) error {
	c, err := clientOf()
	if err != nil {
		return err
	}
	return c.Create(ctx, pod, client.DryRunAll)
}

// nothingIsRefused returns an error if any pod is refused.
func nothingIsRefused(ctx context.Context) error {
	for _, pod := range []*corev1.Pod{podWith(), podWith(dedicated())} {
		if err := create(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}

func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	var last error
	require.Eventually(t, func() bool { last = check(); return last == nil }, within, interval, "%s", lazily(func() string { return fmt.Sprint(last) }))
}

// lazily is a text that is made when it is printed.
type lazily func() string

func (l lazily) String() string { return l() }

// registered returns the names of the webhooks of both configurations.
func registered(t *testing.T) []string {
	t.Helper()
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	key := types.NamespacedName{Name: install.Name}
	var names []string
	if err := api(t).Get(t.Context(), key, &validating); !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	if err := api(t).Get(t.Context(), key, &mutating); !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	for _, w := range validating.Webhooks {
		names = append(names, strings.TrimSuffix(w.Name, ".tollgate.dev"))
	}
	for _, w := range mutating.Webhooks {
		names = append(names, strings.TrimSuffix(w.Name, ".tollgate.dev"))
	}
	slices.Sort(names)
	return names
}

// has returns an error unless a webhook is registered.
func has(t *testing.T, name string, want bool) error {
	t.Helper()
	if names := registered(t); slices.Contains(names, name) != want {
		return fmt.Errorf("%s registered: %t is wanted, and there are %v", name, want, names)
	}
	return nil
}

// guard creates a TolerationPolicy without grants, and waits until it is Ready.
func guard(t *testing.T) *v1alpha1.TolerationPolicy {
	t.Helper()
	policy := &v1alpha1.TolerationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "registration"},
		Spec:       v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: dedicated().Key}}},
	}
	// A replica that has just started may not be the one that the API server calls yet.
	eventually(t, patience, func() error { return client.IgnoreAlreadyExists(api(t).Create(t.Context(), policy)) })
	t.Cleanup(func() {
		_ = api(t).Delete(context.WithoutCancel(t.Context()), policy)
	})
	eventually(t, patience, func() error { return ready(t, policy, metav1.ConditionTrue, "InForce") })
	return policy
}

// ready returns an error unless the condition Ready of a policy is as wanted.
func ready(t *testing.T, policy *v1alpha1.TolerationPolicy, status metav1.ConditionStatus, reason string) error {
	t.Helper()
	require.NoError(t, api(t).Get(t.Context(), client.ObjectKeyFromObject(policy), policy))
	condition := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady)
	if condition == nil || condition.Status != status || condition.Reason != reason {
		return fmt.Errorf("Ready is %+v", condition)
	}
	return nil
}

// refused returns an error unless the tolerant pod is refused by a policy.
func refused(t *testing.T) error {
	t.Helper()
	err := create(t.Context(), podWith(dedicated()))
	if err == nil || !strings.Contains(err.Error(), `"pods.tollgate.dev" denied the request: TolerationPolicy/registration`) {
		return fmt.Errorf("a refusal is wanted, not %w", err)
	}
	return nil
}

func TestPodsAreGuardedFromReadyOnAndPlainOnesDoNotCallOut(t *testing.T) {
	eventually(t, patience, func() error { return has(t, "pods", true) })
	// Those of an earlier test go a minute after its policy.
	eventually(t, 2*patience, func() error { return has(t, "mutate-pods", false) })
	eventually(t, 2*patience, func() error { return has(t, "templates", false) })
	guard(t)
	require.NoError(t, has(t, "templates", true))
	// API servers learn of webhooks a moment after they are written.
	eventually(t, ten, func() error { return refused(t) })

	require.NoError(t, tollgate.Kill(t.Context()))
	require.NoError(t, create(t.Context(), podWith()), "a plain pod is let in while nobody answers")
	require.ErrorContains(t, create(t.Context(), podWith(dedicated())), `failed calling webhook "pods.tollgate.dev"`)
	require.NoError(t, tollgate.Start(t.Context()))
	eventually(t, patience, func() error { return refused(t) })
}

func TestAPlacementPolicyBringsTheMutatingWebhookOfPods(t *testing.T) {
	policy := &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "registration"},
		Spec: v1alpha1.PlacementPolicySpec{
			Match: v1alpha1.PlacementMatch{Namespaces: []string{metav1.NamespaceDefault}},
			Pod:   &v1alpha1.PodPlacement{NodeSelector: map[string]string{"registration.example.com/pool": "a"}},
		},
	}
	eventually(t, patience, func() error { return api(t).Create(t.Context(), policy) })
	t.Cleanup(func() { _ = api(t).Delete(context.WithoutCancel(t.Context()), policy) })
	eventually(t, patience, func() error { return has(t, "mutate-pods", true) })
	eventually(t, patience, func() error {
		pod := podWith()
		if err := api(t).Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err
		}
		if pod.Spec.NodeSelector["registration.example.com/pool"] != "a" {
			return fmt.Errorf("it was given %v", pod.Spec.NodeSelector)
		}
		return nil
	})
	require.NoError(t, api(t).Delete(t.Context(), policy))
	time.Sleep(5 * time.Second)
	require.NoError(t, has(t, "mutate-pods", true), "another replica may have the policy")
	eventually(t, 2*patience, func() error { return has(t, "mutate-pods", false) })
}

func TestAnEditIsTakenBack(t *testing.T) {
	policy := guard(t)
	before := registered(t)
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, api(t).Get(t.Context(), types.NamespacedName{Name: install.Name}, &validating))
	for i := range validating.Webhooks {
		validating.Webhooks[i].FailurePolicy = new(admissionregistrationv1.Ignore)
		validating.Webhooks[i].MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
	}
	validating.Webhooks = append(validating.Webhooks[:1], validating.Webhooks[2:]...)
	require.NoError(t, api(t).Update(t.Context(), &validating))
	eventually(t, ten, func() error {
		var now admissionregistrationv1.ValidatingWebhookConfiguration
		require.NoError(t, api(t).Get(t.Context(), types.NamespacedName{Name: install.Name}, &now))
		for i := range now.Webhooks {
			for _, c := range now.Webhooks[i].MatchConditions {
				if c.Name == "never" {
					return fmt.Errorf("%s is edited", now.Webhooks[i].Name)
				}
			}
		}
		return nil
	})
	require.Equal(t, before, registered(t))
	eventually(t, ten, func() error { return refused(t) })
	require.NoError(t, ready(t, policy, metav1.ConditionTrue, "InForce"))
}

func TestADeletedConfigurationStaysDeleted(t *testing.T) {
	policy := guard(t)
	gone := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.Name}}
	require.NoError(t, api(t).Delete(t.Context(), gone))
	eventually(t, ten, func() error { return ready(t, policy, metav1.ConditionFalse, "NotRegistered") })
	eventually(t, ten, func() error { return create(t.Context(), podWith(dedicated())) })
	// A leader that comes now does not create it either.
	require.NoError(t, tollgate.Kill(t.Context()))
	start, cancel := context.WithTimeout(t.Context(), ten)
	defer cancel()
	require.Error(t, tollgate.Start(start), "it never admits")
	require.True(t, tollgate.Alive())
	require.True(t, apierrors.IsNotFound(api(t).Get(t.Context(), client.ObjectKeyFromObject(gone), gone)))

	require.NoError(t, install.Apply(t.Context(), shared, webhooks()))
	eventually(t, patience, func() error { return refused(t) })
	eventually(t, patience, func() error { return ready(t, policy, metav1.ConditionTrue, "InForce") })
}

func TestTheNextLeaderFinishes(t *testing.T) {
	guard(t)
	before := registered(t)
	require.NoError(t, tollgate.Kill(t.Context()))
	// As if the leader had ended after one of its two writes.
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.Name}}
	require.NoError(t, api(t).Patch(t.Context(), validating, client.RawPatch(types.MergePatchType, []byte(`{"webhooks":null}`))))
	require.NoError(t, create(t.Context(), podWith()))
	require.NoError(t, tollgate.Start(t.Context()))
	eventually(t, patience, func() error {
		if now := registered(t); !slices.Equal(before, now) {
			return fmt.Errorf("registered are %v", now)
		}
		return nil
	})
	eventually(t, ten, func() error { return refused(t) })
}

// An uninstallation deletes the configurations first.
func TestUninstallRefusesNothing(t *testing.T) {
	guard(t)
	for _, object := range []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.Name}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.Name}},
	} {
		require.NoError(t, api(t).Delete(t.Context(), object))
	}
	eventually(t, ten, func() error { return nothingIsRefused(t.Context()) })
	require.NoError(t, tollgate.Terminate(t.Context()))
	require.NoError(t, nothingIsRefused(t.Context()))
	require.Empty(t, registered(t))

	require.NoError(t, install.Apply(t.Context(), shared, webhooks()))
	require.NoError(t, tollgate.Start(t.Context()))
	eventually(t, patience, func() error { return refused(t) })
}
