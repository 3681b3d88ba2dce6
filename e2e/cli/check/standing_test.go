package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// standing is what stands in the namespaces STANDING and GRANTED before there is a policy. The
// audit is about pods that have a node.
const standing = `
apiVersion: v1
kind: Pod
metadata: {name: violates, namespace: STANDING}
spec: {tolerations: [{key: standing.example.com/x, operator: Exists}], containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: violates-by-all, namespace: STANDING}
spec: {tolerations: [{operator: Exists}], containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: harmless, namespace: STANDING}
spec: {tolerations: [{key: other.example.com/x, operator: Exists}], containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: granted, namespace: GRANTED}
spec: {tolerations: [{key: standing.example.com/x, operator: Exists}], containers: [{name: c, image: i}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: template, namespace: STANDING}
spec:
  replicas: 0
  selector: {matchLabels: {app: template}}
  template:
    metadata: {labels: {app: template}}
    spec: {tolerations: [{key: standing.example.com/x, operator: Exists}], containers: [{name: c, image: i}]}
`

// standingPolicy guards the key.
const standingPolicy = `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: standing}
spec: {taints: [{key: standing.example.com/x}], grants: [{namespaces: [GRANTED]}]}
`

func TestWhatStandsAndViolatesIsWhatTheAuditSays(t *testing.T) {
	var names [2]string
	for i := range names {
		var err error
		names[i], err = shared.CreateNamespace(t.Context(), "standing-")
		require.NoError(t, err)
	}
	text := strings.NewReplacer("STANDING", names[0], "GRANTED", names[1])
	admin := dynamicFor(t, shared.RESTConfig())
	for document := range strings.SplitSeq(text.Replace(standing), "---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
		_, err := resourceOf(admin, object).Create(t.Context(), object, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, resourceOf(admin, object).Delete(context.WithoutCancel(t.Context()), object.GetName(), metav1.DeleteOptions{}))
		})
	}
	policy := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text.Replace(standingPolicy)), &policy.Object))
	foretold := deniedIn(t, names[0], "-p", writeText(t, "policy.yaml", text.Replace(standingPolicy)))
	require.Equal(t, []string{"Deployment template", "Pod violates", "Pod violates-by-all"}, foretold)
	enforce(t, []*unstructured.Unstructured{policy})

	var listed []string
	eventually(t, "the audit lists what violates", func(ctx context.Context) error {
		found, err := violationsOf(ctx, "standing")
		if err != nil || found.Count != 2 {
			return errors.Join(err, fmt.Errorf("it has %+v", found))
		}
		listed = nil
		for i := range found.Sample {
			listed = append(listed, "Pod "+found.Sample[i].Name)
		}
		return nil
	})
	require.Equal(t, foretold, deniedIn(t, names[0]), "the same by the policies of the cluster")
	templates := func(name string) bool { return !strings.HasPrefix(name, "Pod ") }
	require.Equal(t, slices.DeleteFunc(foretold, templates), listed, "the audit is about pods")
	require.Empty(t, deniedIn(t, names[1]))
}

// deniedIn returns kinds and names of what check --cluster refuses in a namespace.
func deniedIn(t *testing.T, namespace string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.Plugin(), append([]string{"check", "--cluster", "-n", namespace, "-o", "json"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
	out, err := cmd.Output()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code, err = exit.ExitCode(), nil
	}
	require.NoError(t, err)
	var report struct{ Results []result }
	require.NoError(t, json.Unmarshal(out, &report))
	var denied []string
	for i := range report.Results {
		if r := &report.Results[i]; r.Verdict == "denied" {
			require.Equal(t, "TolerationPolicy/standing", r.Findings[0].Policy)
			denied = append(denied, r.Kind+" "+r.Name)
		}
	}
	require.Equal(t, len(denied) > 0, code == 2, "exit code %d", code)
	slices.Sort(denied)
	return denied
}

// violationsOf returns what the status of a policy lists.
func violationsOf(ctx context.Context, policy string) (v1alpha1.TolerationViolations, error) {
	admin, err := dynamic.NewForConfig(shared.RESTConfig())
	if err != nil {
		return v1alpha1.TolerationViolations{}, err
	}
	resource := schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: "tolerationpolicies"}
	object, err := admin.Resource(resource).Get(ctx, policy, metav1.GetOptions{})
	if err != nil {
		return v1alpha1.TolerationViolations{}, err
	}
	var stored v1alpha1.TolerationPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &stored); err != nil {
		return v1alpha1.TolerationViolations{}, err
	}
	if stored.Status.Violations == nil {
		return v1alpha1.TolerationViolations{}, errors.New("there are none yet")
	}
	return *stored.Status.Violations, nil
}
