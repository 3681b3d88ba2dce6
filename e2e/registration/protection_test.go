package registration

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/controllers/registration"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// protection returns the policies that the overlay self-signed has for webhooks, in a file.
func protection(t *testing.T) string {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, "kustomize", filepath.Join(programs.Root, "deploy", "overlays", "self-signed"))
	require.NoError(t, err, string(out))
	var kept []string
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		if strings.Contains(document, "kind: ValidatingAdmissionPolicy") && strings.Contains(document, "\n  name: tollgate-webhooks\n") {
			kept = append(kept, document)
		}
	}
	require.Len(t, kept, 2)
	file := filepath.Join(t.TempDir(), "protection.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(kept, "\n---\n")), 0o600))
	return file
}

func TestTheTokenOfTollgateWritesNothingElse(t *testing.T) {
	require.NoError(t, tollgate.Terminate(t.Context()))
	file := protection(t)
	out, err := install.Kubectl(t.Context(), shared, "apply", "-f", file)
	require.NoError(t, err, string(out))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		out, err := install.Kubectl(ctx, shared, "delete", "-f", file)
		require.NoError(t, err, string(out))
		require.NoError(t, tollgate.Start(ctx))
	})
	token, err := client.New(shared.As("system:serviceaccount:tollgate-system:tollgate", "system:serviceaccounts", "system:authenticated"), client.Options{Scheme: api(t).Scheme()})
	require.NoError(t, err)
	deriver, err := registration.NewDeriver(registration.Settings{
		Namespace: "tollgate-system", Service: "tollgate", Window: true, NodeTaintTimestamps: true, DeviceTaintAdmission: true,
		WarnsOfComparisons: true, DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 300},
		ExcludedNamespaces: []string{"elsewhere"},
	})
	require.NoError(t, err)

	type webhooks struct{ Validating, Mutating []registration.Webhook }
	// write writes webhooks as the leader does, as a dry run.
	write := func(change func(*webhooks)) error {
		all := webhooks{
			Validating: deriver.Derive(registration.Validating, registration.All, []byte("bundle")),
			Mutating:   deriver.Derive(registration.Mutating, registration.All, []byte("bundle")),
		}
		change(&all)
		patch := func(object client.Object, webhooks []registration.Webhook) error {
			object.SetName(install.Name)
			body, err := json.Marshal(map[string]any{
				"metadata": map[string]any{"annotations": map[string]string{"tollgate.dev/registered-for": "pods"}}, "webhooks": webhooks,
			})
			require.NoError(t, err)
			return token.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, body), client.DryRunAll)
		}
		if err := patch(&admissionregistrationv1.ValidatingWebhookConfiguration{}, all.Validating); err != nil {
			return err
		}
		return patch(&admissionregistrationv1.MutatingWebhookConfiguration{}, all.Mutating)
	}
	// A policy is in force a moment after it was written.
	eventually(t, patience, func() error {
		if write(func(w *webhooks) { w.Validating[0].Name = "pods.example.com" }) == nil {
			t.Log("not in force yet")
			return os.ErrNotExist
		}
		return nil
	})
	require.NoError(t, write(func(*webhooks) {}), "all that it registers")
	for name, change := range map[string]func(*webhooks){
		"a name": func(w *webhooks) { w.Validating[0].Name = "pods.example.com" },
		"a URL": func(w *webhooks) {
			w.Validating[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://example.com/validate")}
		},
		"a Service":   func(w *webhooks) { w.Validating[0].ClientConfig.Service.Name = "other" },
		"a namespace": func(w *webhooks) { w.Mutating[0].ClientConfig.Service.Namespace = "other" },
		"a path":      func(w *webhooks) { w.Mutating[0].ClientConfig.Service.Path = new("/validate") },
		"a resource":  func(w *webhooks) { w.Validating[0].Rules[0].Resources = []string{"secrets"} },
		"a wildcard":  func(w *webhooks) { w.Validating[0].Rules[0].Resources = []string{"*"} },
		"any group":   func(w *webhooks) { w.Validating[0].Rules[0].APIGroups = []string{"*"} },
		"any operation": func(w *webhooks) {
			w.Validating[0].Rules[0].Operations = []admissionregistrationv1.OperationType{"*"}
		},
		"CONNECT": func(w *webhooks) {
			w.Validating[0].Rules[0].Operations = []admissionregistrationv1.OperationType{"CONNECT"}
		},
		"templates that are mutated": func(w *webhooks) { w.Mutating[0].Rules[0].Resources = []string{"podtemplates"} },
		"all namespaces":             func(w *webhooks) { w.Validating[0].NamespaceSelector = &metav1.LabelSelector{} },
		"kube-system": func(w *webhooks) {
			w.Validating[0].NamespaceSelector.MatchExpressions[0].Values = []string{"tollgate-system"}
		},
		"a long timeout": func(w *webhooks) { w.Validating[0].TimeoutSeconds = new(int32(30)) },
	} {
		require.ErrorContains(t, write(change), "the webhooks of Tollgate are changed", name)
	}
	gone := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.Name}}
	require.Error(t, token.Delete(t.Context(), gone))
	require.ErrorContains(t, token.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}}), "cannot create")
}
