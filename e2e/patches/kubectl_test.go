package patches

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, args...)
	require.NoError(t, err, string(out))
	return string(out)
}

func TestKubectlShowsWhichDevicesPatchesAreForAndWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	named := s.patch(t, "a", `{filter: {deviceClassName: DRIVER, driver: DRIVER, pool: p0, device: d0}, priority: -5}`)
	s.publish(t, "pool", gpu("a", 0), gpu("b", 1))
	judged := s.patch(t, "b", `{filter: {driver: DRIVER, selectors: [{cel: {expression: 'device.attributes["DRIVER"].nobody == "has it"'}}]}, taints: [{key: example.com/k, effect: None}]}`)
	eventually(t, "the table says what the patches say", func(ctx context.Context) error {
		if err := s.patches.Get(ctx, client.ObjectKeyFromObject(judged), judged); err != nil {
			return err
		}
		out, err := install.Kubectl(ctx, shared, "get", "resourceslicepatches", named.Name, judged.Name)
		require.NoError(t, err, string(out))
		table := strings.Split(strings.TrimSpace(string(out)), "\n")
		require.Len(t, table, 3)
		require.Equal(t, []string{"NAME", "CLASS", "DRIVER", "POOL", "DEVICE", "PRIORITY", "MATCHED", "FAILED", "READY", "AGE"}, strings.Fields(table[0]))
		require.Equal(t, []string{named.Name, s.driver, s.driver, "p0", "d0", "-5"}, strings.Fields(table[1])[:6])
		want := []string{judged.Name, s.driver, "0", "2", "False"}
		if got := strings.Fields(table[2]); !slices.Equal(got[:len(got)-1], want) {
			return fmt.Errorf("it says %q, not %q", got, want)
		}
		if ready := meta.FindStatusCondition(judged.Status.Conditions, "Ready"); ready == nil || ready.Reason != "ExpressionFailed" {
			return fmt.Errorf("its condition is %v", ready)
		}
		return nil
	})

	require.Contains(t, kubectl(t, "get", "rsp", "-o", "name"), "resourceslicepatch.tollgate.dev/"+named.Name+"\n")
	require.Contains(t, kubectl(t, "get", "tollgate", "-o", "name"), "resourceslicepatch.tollgate.dev/"+judged.Name+"\n")
	explained := kubectl(t, "explain", "resourceslicepatches.spec.devices.capacity")
	require.Contains(t, explained, "FIELD: capacity <map[string]Object>")
	require.NotContains(t, explained, "<empty>", "every field has a description")
}

func TestPodsAreScheduledByAPatchThatKubectlAppliesEditsAndDeletes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(t, "pool", gpu("a", 0), gpu("b", 1))
	name, manifest := s.patchName("applied"), filepath.Join(t.TempDir(), "patch.yaml")
	t.Cleanup(func() {
		patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, client.IgnoreNotFound(s.patches.Delete(afterwards(t), patch)))
	})
	apply := func(attributes string) {
		t.Helper()
		require.NoError(t, os.WriteFile(manifest, []byte(s.text(`
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: `+name+`}
spec:
  devices:
    filter: {driver: DRIVER, device: b}
    attributes: {`+attributes+`}
`)), 0o600))
		kubectl(t, "apply", "-f", manifest)
		s.settle(t)
	}

	apply(`DRIVER/model: {string: B}`)
	s.run(t, "first", modelB)
	s.requireOn(t, "first", "pool/b")
	s.run(t, "second", modelB)
	s.requireWaiting(t, "second")
	// What is written as nothing must come through all the same.
	apply(`DRIVER/model: {"null": {}}`)
	s.run(t, "third", modelA)
	s.requireOn(t, "third", "pool/a")
	s.run(t, "fourth", modelA)
	s.requireWaiting(t, "fourth")

	// In YAML null without quotes is not the name of a field.
	require.NoError(t, os.WriteFile(manifest+".unquoted", []byte(`
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: unquoted}
spec: {devices: {attributes: {a.b/c: {null: {}}}}}
`), 0o600))
	out, err := install.Kubectl(t.Context(), shared, "apply", "-f", manifest+".unquoted")
	require.Error(t, err)
	require.Contains(t, string(out), "unsupported map key")

	require.NoError(t, s.client.CoreV1().Pods(s.namespace).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	require.NoError(t, s.client.ResourceV1().ResourceClaims(s.namespace).Delete(t.Context(), "first", metav1.DeleteOptions{}))
	kubectl(t, "delete", "-f", manifest)
	s.requireOn(t, "fourth", "pool/b")
	s.stillWaiting(t, "second")
}
