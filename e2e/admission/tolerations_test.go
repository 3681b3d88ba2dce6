package admission

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// The match condition of the entry for pods relies on this: it does not look at the value or the effect of a
// toleration with tolerationSeconds.
func TestAV23TheAPIServerRefusesInvalidTolerationsBeforeTollgateIsAsked(t *testing.T) {
	const notReady = "node.kubernetes.io/not-ready"
	valued := forSeconds(notReady, 300)
	valued.Value = "x"
	everywhere := forSeconds(notReady, 300)
	everywhere.Effect = ""
	for name, toleration := range map[string]corev1.Toleration{
		"a value with Exists": valued, "seconds for all effects": everywhere,
	} {
		t.Run(name, func(t *testing.T) {
			err := admit(t.Context(), clientOf(t), "default", podWith(toleration))
			require.True(t, apierrors.IsInvalid(err), "%v", err)
		})
	}
}

func TestAPolicyGrantsByNameByPrefixAndByLabels(t *testing.T) {
	const key = "grants.example.com/dedicated"
	named, prefixed := namespaceOf(t, "granted-"), namespaceOf(t, "team-")
	labelled, other := namespaceOf(t, "labelled-"), namespaceOf(t, "other-")
	label(t, labelled, "grants.example.com/tier", "system")
	spec := granting(guarding("grants.example.com/*"),
		v1alpha1.TolerationGrant{Namespaces: []string{named, "team-*"}},
		v1alpha1.TolerationGrant{
			NamespaceSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"grants.example.com/tier": "system"}},
			MaxTolerationSeconds: new(int64(600)),
		})
	spec.Message = "ask the platform team"
	enforce(t, "grants", spec)

	tests := map[string]struct {
		namespace  string
		toleration corev1.Toleration
		// refused holds what the refusal says; none where there is none.
		refused []string
	}{
		"a namespace that is named may":                {named, exists(key, ""), nil},
		"a namespace with the prefix may":              {prefixed, exists(key, corev1.TaintEffectNoExecute), nil},
		"a namespace with the labels may for a while":  {labelled, forSeconds(key, 600), nil},
		"it may tolerate NoSchedule without end":       {labelled, exists(key, corev1.TaintEffectNoSchedule), nil},
		"it may not for longer":                        {labelled, forSeconds(key, 601), []string{"for 601s", "tolerationSeconds of at most 600"}},
		"nor for ever":                                 {labelled, exists(key, corev1.TaintEffectNoExecute), []string{"tolerationSeconds of at most 600"}},
		"nor for ever by leaving the effect out":       {labelled, exists(key, ""), []string{"tolerationSeconds of at most 600"}},
		"another namespace may not":                    {other, exists(key, ""), []string{"not granted to namespace " + other}},
		"nor by a wildcard":                            {other, exists("", ""), []string{"operator=Exists (every taint)"}},
		"nor by a wildcard for one effect":             {other, exists("", corev1.TaintEffectNoSchedule), []string{"effect=NoSchedule"}},
		"a wildcard is granted as what it could reach": {named, exists("", ""), nil},
		"a key that is not guarded is nobody's matter": {other, exists("free.example.com/x", ""), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := admit(t.Context(), clientOf(t), tt.namespace, podWith(tt.toleration))
			if len(tt.refused) == 0 {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			everything := []string{
				`admission webhook "validate.tollgate.dev" denied the request`, "TolerationPolicy/grants",
				"spec.tolerations[0]", "operator=Exists", "ask the platform team",
			}
			for _, part := range append(everything, tt.refused...) {
				require.ErrorContains(t, err, part)
			}
		})
	}
	t.Run("a refusal says who may", func(t *testing.T) {
		err := admit(t.Context(), clientOf(t), other, podWith(exists(key, "")))
		require.ErrorContains(t, err, "allowed in namespaces "+named+", team-* or namespaces labelled grants.example.com/tier=system")
	})
}

func TestWhatAViolationLeadsToIsForThePolicyToSay(t *testing.T) {
	namespace := namespaceOf(t, "actions-")
	withActions := func(key string, actions ...v1alpha1.ValidationAction) v1alpha1.TolerationPolicySpec {
		spec := guarding(key)
		spec.ValidationActions = actions
		return spec
	}
	enforce(t, "actions-deny", withActions("deny.example.com/x", v1alpha1.Deny))
	enforce(t, "actions-warn", withActions("warn.example.com/x", v1alpha1.Warn))
	enforce(t, "actions-audit", withActions("audit.example.com/x", v1alpha1.Audit))
	client, heard := clientWithWarnings(t)
	create := func(key string) (*corev1.Pod, error) {
		pod := podWith(exists(key, ""))
		pod.Name, _, _ = strings.Cut(key, ".") // the audit log knows no names that were generated
		return client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	}

	t.Run("Deny refuses", func(t *testing.T) {
		_, err := create("deny.example.com/x")
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "nobody is allowed to tolerate it")
		require.Empty(t, heard.take())
	})
	t.Run("Warn lets pass and tells the client", func(t *testing.T) {
		_, err := create("warn.example.com/x")
		require.NoError(t, err)
		told := heard.take()
		require.Len(t, told, 1)
		require.Contains(t, told[0], "TolerationPolicy/actions-warn: spec.tolerations[0] (key=warn.example.com/x operator=Exists)")
	})
	t.Run("Audit lets pass and tells the audit log alone", func(t *testing.T) {
		pod, err := create("audit.example.com/x")
		require.NoError(t, err)
		require.Empty(t, heard.take())
		require.Contains(t, auditedViolations(t, pod), "TolerationPolicy/actions-audit: spec.tolerations[0] (key=audit.example.com/x")
	})
	t.Run("nothing is said of what violates nothing", func(t *testing.T) {
		_, err := create("free.example.com/x")
		require.NoError(t, err)
		require.Empty(t, heard.take())
	})
}

// auditedViolations returns what the audit log says about the creation of a pod.
func auditedViolations(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	file, err := os.Open(auditLog)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		// The last line may be half written: controllers create pods all the time.
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.ObjectRef.Namespace == pod.Namespace && event.ObjectRef.Name == pod.Name {
			return event.Annotations["validate.tollgate.dev/violations"]
		}
	}
	require.NoError(t, lines.Err())
	require.Fail(t, "the audit log has no event for pod "+pod.Name)
	return ""
}

func TestB15ADryRunGetsTheSameVerdictAndStoresNothing(t *testing.T) {
	namespace := namespaceOf(t, "dryrun-")
	enforce(t, "dryrun", guarding("dryrun.example.com/x"))
	ctx, pods := t.Context(), clientOf(t).CoreV1().Pods(namespace)
	refused := podWith(exists("dryrun.example.com/x", ""))
	refused.Name = "refused"
	_, stored := pods.Create(ctx, refused, metav1.CreateOptions{})
	_, dry := pods.Create(ctx, refused, metav1.CreateOptions{DryRun: dryRun})
	require.True(t, apierrors.IsForbidden(stored), "%v", stored)
	require.Equal(t, stored.Error(), dry.Error())

	const counted = `tollgate_admission_requests_total{dry_run="true",endpoint="validate",operation="CREATE",resource="pods",verdict="allowed"}`
	before, err := metric(ctx, counted)
	if err != nil {
		before = 0
	}
	allowed := podWith()
	allowed.Name = "allowed"
	_, err = pods.Create(ctx, allowed, metav1.CreateOptions{DryRun: dryRun})
	require.NoError(t, err)
	after, err := metric(ctx, counted)
	require.NoError(t, err)
	require.InDelta(t, before+1, after, 0, "dry runs are counted as such")
	list, err := pods.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items)
}

func TestC09TheLabelsOfANamespaceAreFollowed(t *testing.T) {
	namespace := namespaceOf(t, "labels-")
	enforce(t, "labels", granting(guarding("labels.example.com/x"), v1alpha1.TolerationGrant{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"labels.example.com/trusted": "yes"}},
	}))
	client, pod := clientOf(t), podWith(exists("labels.example.com/x", ""))
	require.Error(t, admit(t.Context(), client, namespace, pod))
	label(t, namespace, "labels.example.com/trusted", "yes")
	eventually(t.Context(), t, "the pod is let in", func(ctx context.Context) error {
		return admit(ctx, client, namespace, pod)
	})
	label(t, namespace, "labels.example.com/trusted", "null")
	eventually(t.Context(), t, "the pod is refused", func(ctx context.Context) error {
		err := admit(ctx, client, namespace, pod)
		switch {
		case apierrors.IsForbidden(err):
			return nil
		case err == nil:
			return errors.New("it is let in")
		default:
			return err
		}
	})
}

func TestC10ANamespaceThatIsNewIsJudgedByItsLabels(t *testing.T) {
	enforce(t, "newcomers", granting(guarding("newcomers.example.com/x"), v1alpha1.TolerationGrant{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"newcomers.example.com/trusted": "yes"}},
	}))
	client := clientOf(t)
	pod := podWith(exists("newcomers.example.com/x", ""))
	// A pod that brings its token needs no service account, which a controller is
	// only about to make.
	pod.Spec.ServiceAccountName = "default"
	for _, trusted := range []bool{true, false} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "newcomer-"}}
		if trusted {
			object.Labels = map[string]string{"newcomers.example.com/trusted": "yes"}
		}
		object, err := client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = client.CoreV1().ServiceAccounts(object.Name).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
		err = admit(t.Context(), client, object.Name, pod)
		if trusted {
			require.NoError(t, err)
		} else {
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		}
		require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), object.Name, metav1.DeleteOptions{}))
	}
}

func TestAPolicyThatIsDeletedHasNoEffectAnyMore(t *testing.T) {
	namespace := namespaceOf(t, "deleted-")
	client, pod := clientOf(t), podWith(exists("deleted.example.com/x", ""))
	enforce(t, "deleted", guarding("deleted.example.com/x"))
	require.Error(t, admit(t.Context(), client, namespace, pod))
	withdraw(t.Context(), t, "deleted")
	require.NoError(t, admit(t.Context(), client, namespace, pod))
}
