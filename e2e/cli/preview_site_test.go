package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

const (
	// slack is how much later than its time a pod may leave on a machine that runs a whole
	// control plane beside the test.
	slack = 30 * time.Second
	// settling is for how long nobody else may leave after the last who was to.
	settling = 3 * time.Second
)

// previewSite is where one scenario plays: a namespace, and a node or a driver of its own.
type previewSite struct {
	namespace, node string
	client          kubernetes.Interface
	// dir is where manifests are written. Its name has no comma, which for kubectl is
	// between two files.
	dir string
}

func newPreviewSite(t *testing.T, node string) *previewSite {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	namespace, err := shared.CreateNamespace(t.Context(), "preview-")
	require.NoError(t, err)
	return &previewSite{namespace: namespace, node: node, client: client, dir: t.TempDir()}
}

// fill puts the names of the site into a text: NS, NODE, KEY and DRIVER.
func (s *previewSite) fill(text string) string {
	return strings.NewReplacer(
		"NS", s.namespace, "NODE", s.node, "KEY", s.namespace+".example.com/k", "DRIVER", s.namespace+".example.com",
	).Replace(text)
}

func (s *previewSite) filled(texts []string) []string {
	var all []string
	for _, text := range texts {
		all = append(all, s.fill(text))
	}
	return all
}

// file writes a manifest and returns its name.
func (s *previewSite) file(t *testing.T, manifest string) string {
	t.Helper()
	file, err := os.CreateTemp(s.dir, "manifest-*.yaml")
	require.NoError(t, err)
	_, err = file.WriteString(s.fill(manifest))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return file.Name()
}

func kubectl(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := install.Kubectl(t.Context(), shared, arguments...)
	require.NoError(t, err, string(out))
	return string(out)
}

// tollgate runs a command of Tollgate and returns what it writes.
func tollgate(t *testing.T, arguments ...string) (out, notes string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.Plugin(), append(arguments, "--kubeconfig", shared.Kubeconfig())...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// foretold is what is read of a preview.
type foretold struct {
	Going    int `json:"going"`
	Previews []struct {
		Summary   string         `json:"summary"`
		Mere      bool           `json:"evictsNobodyAsItStands"`
		Pods      []previewedPod `json:"pods"`
		Ends      []previewedPod `json:"ends"`
		Protected []struct {
			Policy string `json:"evictionPolicy"`
			Pods   int    `json:"pods"`
		} `json:"protected"`
	} `json:"previews"`
	Missing []string `json:"missing"`
}

type previewedPod struct {
	Namespace   string   `json:"namespace"`
	Name        string   `json:"name"`
	WaitSeconds int      `json:"waitSeconds"`
	Held        bool     `json:"held"`
	Budgets     []string `json:"podDisruptionBudgets"`
	Controller  string   `json:"controller"`
}

// preview asks for a preview, shows it to whoever reads the log, and returns it.
func (s *previewSite) preview(t *testing.T, arguments ...string) foretold {
	t.Helper()
	arguments = append([]string{"preview"}, arguments...)
	out, notes, err := tollgate(t, append(arguments, "-o", "wide")...)
	require.NoError(t, err, notes)
	t.Logf("tollgate %s\n%s%s", strings.Join(arguments, " "), out, notes)
	out, notes, err = tollgate(t, append(arguments, "-o", "json")...)
	require.NoError(t, err, notes)
	var f foretold
	require.NoError(t, json.Unmarshal([]byte(out), &f))
	require.Empty(t, f.Missing)
	return f
}

// waitRun waits until all pods run, as far as they can.
func (s *previewSite) waitRun(t *testing.T) {
	t.Helper()
	eventually(t, "pods run", func(ctx context.Context) error {
		list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Status.Phase != corev1.PodRunning && p.Annotations[corev1.MirrorPodAnnotationKey] == "" {
				return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
		}
		return nil
	})
}

// alive returns the names of the pods that are not on their way out.
func (s *previewSite) alive(ctx context.Context) (map[string]bool, error) {
	list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	names := map[string]bool{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			names[list.Items[i].Name] = true
		}
	}
	return names, nil
}

// deletions returns when Tollgate deleted pods, by name.
func (s *previewSite) deletions(t *testing.T) map[string]time.Time {
	t.Helper()
	events, err := audit.Read(func(event *auditv1.Event) bool { return event.ObjectRef.Namespace == s.namespace })
	require.NoError(t, err)
	times := map[string]time.Time{}
	for _, deletion := range auditlog.Deletions(events) {
		times[deletion.Name] = deletion.At
	}
	return times
}

// requireLeft fails unless those pods leave that were foretold, when it was, after a write
// that was made between from and to, and all others stay.
func (s *previewSite) requireLeft(t *testing.T, before map[string]bool, goes map[string]int, from, to time.Time) {
	t.Helper()
	eventually(t, "those leave who are to", func(ctx context.Context) error {
		left := s.deletions(t)
		for name := range goes {
			if _, gone := left[name]; !gone {
				return fmt.Errorf("pod %s has not left", name)
			}
		}
		return ctx.Err()
	})
	time.Sleep(settling)
	left := s.deletions(t)
	for name, at := range left {
		seconds, was := goes[name]
		require.True(t, was, "pod %s was not to leave", name)
		due := time.Duration(seconds) * time.Second
		require.GreaterOrEqual(t, at.Sub(from), due-time.Second, "pod %s left early", name)
		require.LessOrEqual(t, at.Sub(to), due+slack, "pod %s left late", name)
	}
	alive, err := s.alive(t.Context())
	require.NoError(t, err)
	for name := range before {
		_, went := goes[name]
		require.Equal(t, !went, alive[name], "pod %s", name)
	}
}

// deviceNode is the node of pods that use devices. Nobody taints it.
var deviceNode = controlplane.NodeName(nodeOfPreviewedDevices)
