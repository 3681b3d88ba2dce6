package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// key is that of all taints of evictionSites.
const key = "cli.example.com/broken"

// evictionSite is where one test works: a namespace and a node. In texts NAMESPACE and NODE stand
// for them.
type evictionSite struct {
	client    client.Client
	pods      kubernetes.Interface
	namespace string
	node      string
}

func newEvictionSite(t *testing.T, node int) *evictionSite {
	t.Helper()
	config := shared.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	objects, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	typed, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	namespace, err := shared.CreateNamespace(t.Context(), "cli-")
	require.NoError(t, err)
	return &evictionSite{client: objects, pods: typed, namespace: namespace, node: controlplane.NodeName(node)}
}

func (s *evictionSite) text(text string) string {
	return strings.NewReplacer("NAMESPACE", s.namespace, "NODE", s.node, "KEY", key).Replace(text)
}

// create creates objects from YAML documents. They go when the test is over.
func (s *evictionSite) create(t *testing.T, documents ...string) {
	t.Helper()
	for _, text := range documents {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(s.text(text)), &object.Object), text)
		require.NoError(t, s.client.Create(t.Context(), object), text)
		t.Cleanup(func() {
			require.NoError(t, client.IgnoreNotFound(s.client.Delete(context.WithoutCancel(t.Context()), object)))
		})
		if object.GetKind() == "EvictionPolicy" {
			s.waitReady(t, object.GetName())
		}
	}
}

// waitReady waits until a policy is in force.
func (s *evictionSite) waitReady(t *testing.T, name string) {
	t.Helper()
	eventually(t, "policy "+name, func(ctx context.Context) error {
		var policy v1alpha1.EvictionPolicy
		err := s.client.Get(ctx, client.ObjectKey{Name: name}, &policy)
		if err == nil && !meta.IsStatusConditionTrue(policy.Status.Conditions, v1alpha1.ConditionReady) {
			err = errors.New("not Ready")
		}
		return err
	})
}

// policy returns an EvictionPolicy of the site's namespace and of the taint of nodes.
func policy(name string, lines ...string) string {
	return "apiVersion: tollgate.dev/v1alpha1\nkind: EvictionPolicy\nmetadata: {name: NAMESPACE-" + name + "}\nspec:\n  taints: [{key: KEY}, {target: Device, key: \"*\"}]\n" +
		"  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}\n  " + strings.Join(lines, "\n  ") + "\n"
}

// podOfApp returns a pod on the site's node, with the label app, that tolerates the taint for
// some seconds, or not at all.
func podOfApp(name, app string, seconds int) string {
	tolerations := "[]"
	if seconds > 0 {
		tolerations = "[{key: KEY, operator: Exists, effect: NoExecute, tolerationSeconds: " + strconv.Itoa(seconds) + "}]"
	}
	return "apiVersion: v1\nkind: Pod\nmetadata: {namespace: NAMESPACE, name: " + name + ", labels: {app: " + app + "}}\n" +
		"spec: {nodeName: NODE, tolerations: " + tolerations + ", containers: [{name: c, image: image}]}"
}

// taint puts the taint on the site's node until the test is over.
func (s *evictionSite) taint(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { s.patchNode(t, `{"spec":{"taints":null}}`) })
	s.patchNode(t, s.text(`{"spec":{"taints":[{"key":"KEY","effect":"NoExecute"}]}}`))
}

func (s *evictionSite) patchNode(t *testing.T, patch string) {
	t.Helper()
	_, err := s.pods.CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), s.node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// waitPods waits until so many pods of the namespace run and are not on their way out.
func (s *evictionSite) waitPods(t *testing.T, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods", want), func(ctx context.Context) error {
		list, err := s.pods.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		running := 0
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil && list.Items[i].Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != want {
			return fmt.Errorf("%d run", running)
		}
		return nil
	})
}

// output is what the program wrote.
type output struct {
	out, notes string
	code       int
}

// run runs the program as the administrator. In arguments NAMESPACE and NODE are the
// site's.
func (s *evictionSite) run(ctx context.Context, arguments string) (output, error) {
	cmd := exec.CommandContext(ctx, programs.Plugin(), strings.Fields(s.text(arguments))...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return output{out.String(), notes.String(), exit.ExitCode()}, nil
	}
	return output{out.String(), notes.String(), 0}, err
}

// does runs the program, which must not fail.
func (s *evictionSite) does(t *testing.T, arguments string) output {
	t.Helper()
	got, err := s.run(t.Context(), arguments)
	require.NoError(t, err)
	require.Zero(t, got.code, got.notes)
	return got
}

// row is what the program says of a pod.
type row struct {
	Pod            string    `json:"pod"`
	State          string    `json:"state"`
	Due            time.Time `json:"due"`
	EvictedBy      string    `json:"evictedBy"`
	EvictionPolicy string    `json:"evictionPolicy"`
	AccordingTo    string    `json:"accordingTo"`
	Hold           struct{ Reason, By, Message string }
	Taints         []struct{ Source, WrittenFor, Device string }
}

// rows returns what the program says of the pods of the namespace, by name.
func (s *evictionSite) rows(ctx context.Context, arguments string) (map[string]row, error) {
	got, err := s.run(ctx, "evictions -n NAMESPACE -o json "+arguments)
	if err != nil {
		return nil, err
	}
	if got.code != 0 {
		return nil, errors.New(got.notes)
	}
	var list struct{ Items []row }
	if err := json.Unmarshal([]byte(got.out), &list); err != nil {
		return nil, fmt.Errorf("decode %s: %w", got.out, err)
	}
	rows := map[string]row{}
	for _, r := range list.Items {
		rows[r.Pod] = r
	}
	return rows, nil
}

// waitStates waits until so many pods are in each state, as in "Held 4", and returns what
// is said of each.
func (s *evictionSite) waitStates(t *testing.T, want map[string]int) map[string]row {
	t.Helper()
	var rows map[string]row
	eventually(t, fmt.Sprintf("states %v", want), func(ctx context.Context) (err error) {
		if rows, err = s.rows(ctx, ""); err != nil {
			return err
		}
		states := map[string]int{}
		for _, r := range rows {
			states[r.State]++
		}
		if fmt.Sprint(states) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v", states)
		}
		return nil
	})
	return rows
}
