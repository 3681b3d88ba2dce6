package admission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// createPolicyFrom creates a policy from YAML, of which a client knows nothing.
func createPolicyFrom(t *testing.T, spec, fieldValidation string) error {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: invalid}, spec: `+spec+`}`),
		&object.Object))
	client, err := dynamic.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	_, err = client.Resource(v1alpha1.GroupVersion.WithResource("tolerationpolicies")).
		Create(t.Context(), object, metav1.CreateOptions{FieldValidation: fieldValidation, DryRun: dryRun})
	return err
}

func TestD03APolicyThatWouldNotBeInForceToTheLetterIsRefused(t *testing.T) {
	const taints = `taints: [{key: invalid.example.com/x}]`
	tests := map[string]struct {
		spec    string
		refused []string
	}{
		"a key that is none":                          {`{taints: [{key: "a//b"}]}`, []string{"spec.taints[0].key", `"a//b"`}},
		"a pattern that is none":                      {`{taints: [{key: "example.com/a*"}]}`, []string{"spec.taints[0].key", `a pattern is "prefix/*" or "*"`}},
		"a value that is none":                        {`{taints: [{key: a, values: ["no value"]}]}`, []string{"spec.taints[0].values[0]"}},
		"an effect of devices on a node":              {`{taints: [{key: a, effects: [None]}]}`, []string{"spec.taints[0].effects[0]"}},
		"an effect that is none":                      {`{taints: [{key: a, effects: [NoAdmit]}]}`, []string{"spec.taints[0].effects[0]", "Unsupported value"}},
		"an effect of nodes on a device":              {`{taints: [{target: Device, key: a, effects: [PreferNoSchedule]}]}`, []string{"spec.taints[0].effects[0]"}},
		"drivers":                                     {`{taints: [{key: a, drivers: [d]}]}`, []string{"spec.taints[0].drivers"}},
		"device classes":                              {`{taints: [{key: a, deviceClasses: [d]}]}`, []string{"spec.taints[0].deviceClasses"}},
		"no taint":                                    {`{taints: []}`, []string{"spec.taints"}},
		"a grant to nobody":                           {`{` + taints + `, grants: [{}]}`, []string{"spec.grants[0]", "a grant names who it is for"}},
		"a grant that only narrows":                   {`{` + taints + `, grants: [{maxTolerationSeconds: 1}]}`, []string{"spec.grants[0]", "a grant names who it is for"}},
		"a grant to all by an empty selector":         {`{` + taints + `, grants: [{namespaceSelector: {}}]}`, []string{"spec.grants[0].namespaceSelector", "an empty selector"}},
		"a grant to a namespace that cannot be":       {`{` + taints + `, grants: [{namespaces: [Team]}]}`, []string{"spec.grants[0].namespaces[0]"}},
		"a grant for less than no time":               {`{` + taints + `, grants: [{namespaces: [a], maxTolerationSeconds: -1}]}`, []string{"spec.grants[0].maxTolerationSeconds"}},
		"a grant to a subject that is none":           {`{` + taints + `, grants: [{subjects: [{kind: Robot, name: alice}]}]}`, []string{"spec.grants[0].subjects[0].kind"}},
		"a grant to nobody by RBAC":                   {`{` + taints + `, grants: [{rbac: false}]}`, []string{"spec.grants[0]", "a grant names who it is for"}},
		"a grant by an expression that is none":       {`{` + taints + `, grants: [{expression: "tru"}]}`, []string{"spec.grants[0].expression", "line 1"}},
		"a grant that only selects objects":           {`{` + taints + `, grants: [{objectSelector: {matchLabels: {a: b}}}]}`, []string{"spec.grants[0]", "a grant names who it is for"}},
		"a match condition that is none":              {`{` + taints + `, matchConditions: [{name: a, expression: "1"}]}`, []string{"spec.matchConditions[0].expression"}},
		"a message expression that is no text":        {`{` + taints + `, messageExpression: "1"}`, []string{"spec.messageExpression"}},
		"Deny and Warn at once":                       {`{` + taints + `, validationActions: [Deny, Warn]}`, []string{"spec.validationActions", "Deny and Warn exclude each other"}},
		"an action that is none":                      {`{` + taints + `, validationActions: [Log]}`, []string{"spec.validationActions[0]"}},
		"a message of two lines":                      {`{` + taints + `, message: "a\nb"}`, []string{"spec.message"}},
		"a value of the wrong type":                   {`{` + taints + `, grants: [{namespaces: a}]}`, []string{"spec.grants[0].namespaces"}},
		"a field of a grant that is misspelt, pruned": {`{` + taints + `, grants: [{namespace: [a]}]}`, []string{"spec.grants[0]", "a grant names who it is for"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := createPolicyFrom(t, tt.spec, metav1.FieldValidationIgnore)
			require.Error(t, err)
			for _, part := range tt.refused {
				require.ErrorContains(t, err, part)
			}
		})
	}
	t.Run("a field that is unknown, asked to be strict", func(t *testing.T) {
		err := createPolicyFrom(t, `{`+taints+`, grant: [{namespaces: [a]}]}`, metav1.FieldValidationStrict)
		require.ErrorContains(t, err, `unknown field "spec.grant"`)
	})
	t.Run("a field that is unknown, as kubectl asks", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		require.NoError(t, os.WriteFile(file, []byte(
			`{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: invalid}, spec: {`+taints+`, grant: [{namespaces: [a]}]}}`), 0o600))
		out, err := install.Kubectl(t.Context(), shared, "apply", "-f", file)
		require.Error(t, err)
		require.Contains(t, string(out), `unknown field "spec.grant"`)
	})
	t.Run("one that is right is let in", func(t *testing.T) {
		require.NoError(t, createPolicyFrom(t, `{`+taints+`, grants: [{namespaces: [a, "b-*", "*"]}]}`, metav1.FieldValidationStrict))
	})
}

func TestD03AnUpdateIsHeldToTheSame(t *testing.T) {
	policy := enforce(t, "update-held", guarding("held.example.com/x"))
	before := policy.DeepCopy()
	policy.Spec.MessageExpression = "1 + 1"
	err := policiesOf(t).Patch(t.Context(), policy, client.MergeFrom(before))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "spec.messageExpression")
}

// withoutValidation removes the validating webhooks for as long as do takes, and
// puts them back as the administrator would, without a caBundle. The API server hears of
// either through a watch.
func withoutValidation(t *testing.T, do func()) {
	t.Helper()
	configurations := clientOf(t).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	saved, err := configurations.Get(t.Context(), install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, configurations.Delete(t.Context(), install.Name, metav1.DeleteOptions{}))
	// Nobody but Tollgate objects to it.
	write := func() error {
		return createPolicyFrom(t, `{taints: [{key: invalid.example.com/x}], messageExpression: "1"}`, metav1.FieldValidationStrict)
	}
	defer func() {
		again := &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: saved.Name, Annotations: saved.Annotations, Labels: saved.Labels}, Webhooks: saved.Webhooks,
		}
		for i := range again.Webhooks {
			again.Webhooks[i].ClientConfig.CABundle = nil
		}
		ctx := afterwards(t)
		_, err := configurations.Create(ctx, again, metav1.CreateOptions{})
		require.NoError(t, err)
		eventually(ctx, t, "Tollgate is asked again", func(context.Context) error {
			if err := write(); err == nil || !strings.Contains(err.Error(), "denied the request") {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		eventually(ctx, t, "pods are let in again", func(ctx context.Context) error {
			return admit(ctx, clientOf(t), metav1.NamespaceDefault, podWith())
		})
	}()
	eventually(t.Context(), t, "nobody is asked", func(context.Context) error { return write() })
	do()
}

// readyOf returns the condition Ready of a policy as soon as it is about the policy
// as it is stored.
func readyOf(t *testing.T, name string) *metav1.Condition {
	t.Helper()
	var found *metav1.Condition
	eventually(t.Context(), t, "policy "+name+" has a condition", func(ctx context.Context) error {
		var policy v1alpha1.TolerationPolicy
		if err := policiesOf(t).Get(ctx, keyOf(name), &policy); err != nil {
			return err
		}
		found = meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady)
		if found == nil || found.ObservedGeneration != policy.Generation || policy.Status.ObservedGeneration != policy.Generation {
			return fmt.Errorf("its status is %+v", policy.Status)
		}
		return nil
	})
	return found
}

func TestD03APolicyThatIsStoredAllTheSameIsReportedAndTheOthersStay(t *testing.T) {
	namespace := namespaceOf(t, "stored-")
	enforce(t, "stored-good", guarding("good.stored.example.com/x"))
	broken := granting(guarding("broken.stored.example.com/x"),
		v1alpha1.TolerationGrant{Namespaces: []string{namespace}, Expression: "nobody.knows"})
	broken.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "nobody.knows"}}
	withoutValidation(t, func() { enforce(t, "stored-broken", broken) })

	good, bad := readyOf(t, "stored-good"), readyOf(t, "stored-broken")
	require.Equal(t, metav1.ConditionTrue, good.Status)
	require.Equal(t, "InForce", good.Reason)
	require.Equal(t, metav1.ConditionFalse, bad.Status)
	require.Equal(t, "PartlyInForce", bad.Reason)
	require.Contains(t, bad.Message, "spec.matchConditions")
	require.Contains(t, bad.Message, "spec.grants[0].expression")

	client := clientOf(t)
	err := admit(t.Context(), client, namespace, podWith(exists("good.stored.example.com/x", "")))
	require.ErrorContains(t, err, "TolerationPolicy/stored-good")
	// What cannot be evaluated only ever narrows what the policy lets through.
	err = admit(t.Context(), client, namespace, podWith(exists("broken.stored.example.com/x", "")))
	require.ErrorContains(t, err, "TolerationPolicy/stored-broken")
	require.ErrorContains(t, err, "the policy is not fully in force, see its status")
	require.NoError(t, admit(t.Context(), client, namespace, podWith(exists("free.example.com/x", ""))))

	t.Run("it may be labelled as it is", func(t *testing.T) {
		kubectl(t, "label", "tolerationpolicy", "stored-broken", "example.com/a=b")
	})
	t.Run("repaired it is in force", func(t *testing.T) {
		c := policiesOf(t)
		require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // Tollgate writes its status, too
			var policy v1alpha1.TolerationPolicy
			if err := c.Get(t.Context(), keyOf("stored-broken"), &policy); err != nil {
				return err
			}
			policy.Spec.MatchConditions, policy.Spec.Grants[0].Expression = nil, ""
			return c.Update(t.Context(), &policy)
		}))
		require.Equal(t, metav1.ConditionTrue, readyOf(t, "stored-broken").Status)
		eventually(t.Context(), t, "the grant counts", func(ctx context.Context) error {
			return admit(ctx, client, namespace, podWith(exists("broken.stored.example.com/x", "")))
		})
	})
}

func keyOf(name string) client.ObjectKey { return client.ObjectKey{Name: name} }
