package operate

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// approves runs the command line on a cluster.
func approves(t *testing.T, clients *cli.Clients, line string) (out, notes string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd, c := NewApproveCommand(), &approveCommand{command: command{clock: clocktesting.NewFakePassiveClock(noon), in: &stdout, out: &stdout, notes: &stderr}}
	cmd.ResetFlags()
	c.addFlags(cmd)
	require.NoError(t, cmd.ParseFlags(strings.Fields(line)))
	if err := c.complete(cmd.Flags().Args()); err != nil {
		return "", "", err
	}
	err = c.run(t.Context(), clients)
	return stdout.String(), stderr.String(), err
}

var update = flag.Bool("update", false, "write the golden files anew")

// The manual shows what they have.
func TestWritesWhatTheGoldenFilesHave(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"node":    "node n1 --taint example.com/broken --dry-run",
		"yaml":    "rule hot --for 30m --dry-run -o yaml",
		"list":    "policy default --dry-run=client -o yaml",
		"policy":  "policy default --dry-run=client",
		"to-come": "rule quarantine --taint example.com/broken --pods 120 --dry-run",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients := clientsOf(t, true, world(t)...)
			out, notes, err := approves(t, clients, line)
			require.NoError(t, err)
			require.Empty(t, created(t, clients))
			path := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(notes+out), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), notes+out)
		})
	}
}

// unwrapped returns notes with each sentence in a line of its own.
func unwrapped(notes string) string { return strings.ReplaceAll(notes, "\n  ", " ") }

// created returns the specs of the approvals that there are.
func created(t *testing.T, clients *cli.Clients) []v1alpha1.EvictionApprovalSpec {
	t.Helper()
	list, err := clients.Dynamic.Resource(approvalKind).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var specs []v1alpha1.EvictionApprovalSpec
	for i := range list.Items {
		var approval v1alpha1.EvictionApproval
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &approval))
		specs = append(specs, approval.Spec)
	}
	return specs
}

func specOf(key string, pods int32) v1alpha1.EvictionApprovalSpec {
	return v1alpha1.EvictionApprovalSpec{
		Taint: v1alpha1.ApprovedTaint{Key: key, Effect: "NoExecute"}, MaxPods: pods, ExpiresAfter: metav1.Duration{Duration: time.Hour},
	}
}

func TestApprovesWhatIsHeld(t *testing.T) {
	t.Parallel()
	for line, c := range map[string]struct {
		notes string
		want  func(*v1alpha1.EvictionApprovalSpec)
		key   string
		pods  int32
	}{
		"node n1 --taint example.com/broken --yes": {
			"Taint example.com/broken of node n1: 7 pods held (web/web-0, web/web-1, web/web-2, web/web-3, web/web-4, 2 more); up to 7 pods may go, until 2026-03-01T13:00:00Z\n",
			func(s *v1alpha1.EvictionApprovalSpec) { s.Node = "n1" }, "example.com/broken", 7,
		},
		"no n2 -y --pods 12 --for 30m": {
			"Taint example.com/broken of node n2: 1 pod held (web/other); up to 12 pods may go, until 2026-03-01T12:30:00Z\n",
			func(s *v1alpha1.EvictionApprovalSpec) { s.Node, s.ExpiresAfter.Duration = "n2", 30*time.Minute }, "example.com/broken", 12,
		},
		"rule hot --yes": {
			"Taint example.com/hot of rule hot: 1 pod held (web/gpu-0); up to 1 pod may go, until 2026-03-01T13:00:00Z\n",
			func(s *v1alpha1.EvictionApprovalSpec) { s.DeviceTaintRule = "hot" }, "example.com/hot", 1,
		},
		"devicetaintrule racks-1 --yes": {
			"Taint example.com/moved of rule racks-1: 1 pod held (web/gpu-1); up to 1 pod may go, until 2026-03-01T13:00:00Z\n",
			func(s *v1alpha1.EvictionApprovalSpec) { s.DeviceTaintRule = "racks-1" }, "example.com/moved", 1,
		},
		"patch racks --yes": {
			"Taint example.com/moved of patch racks: 1 pod held (web/gpu-1); up to 1 pod may go, until 2026-03-01T13:00:00Z\n",
			func(s *v1alpha1.EvictionApprovalSpec) { s.ResourceSlicePatch = "racks" }, "example.com/moved", 1,
		},
		"node n2 --taint example.com/new --pods 120 --yes": {
			"Taint example.com/new of node n2: 0 pods held; up to 120 pods may go, until 2026-03-01T13:00:00Z\n",
			func(s *v1alpha1.EvictionApprovalSpec) { s.Node = "n2" }, "example.com/new", 120,
		},
		"rule new --taint example.com/broken --pods 120 --yes": {
			"warning: devicetaintrules \"new\" not found: the approval is for one that is created with this name\n" +
				"Taint example.com/broken of rule new: 0 pods held; up to 120 pods may go, until 2026-03-01T13:00:00Z\n",
			func(s *v1alpha1.EvictionApprovalSpec) { s.DeviceTaintRule = "new" }, "example.com/broken", 120,
		},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			clients := clientsOf(t, true, world(t)...)
			out, notes, err := approves(t, clients, line)
			require.NoError(t, err)
			require.Equal(t, c.notes, unwrapped(notes))
			require.Regexp(t, `^evictionapproval\.tollgate\.dev/\S+ created\n$`, out)
			want := specOf(c.key, c.pods)
			c.want(&want)
			require.Equal(t, []v1alpha1.EvictionApprovalSpec{want}, created(t, clients))
		})
	}
}

func TestSaysWhatIsCreated(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"name": "evictionapproval.tollgate.dev/n2-broken-*\n",
		"json": "    \"kind\": \"EvictionApproval\",\n",
	} {
		out, _, err := approves(t, clientsOf(t, true, world(t)...), "node n2 --dry-run=client -o "+output)
		require.NoError(t, err)
		require.Contains(t, out, want)
	}
}

func TestTheAPIServerIsAskedToCreateNothing(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, true, world(t)...)
	var asked []string
	clients.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "evictionapprovals", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked = action.(clienttesting.CreateActionImpl).CreateOptions.DryRun
		return true, action.(clienttesting.CreateActionImpl).Object, nil
	})
	out, _, err := approves(t, clients, "node n2 --dry-run=server")
	require.NoError(t, err)
	require.Contains(t, out, "created (server dry run)\n")
	require.Equal(t, []string{metav1.DryRunAll}, asked)
}

func TestSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"node n1 --pods 3 --yes":                      "--pods is 3 for 2 taints (example.com/broken of node n1, example.com/Hot_Spot of node n1): name one, with --taint if need be",
		"node n3 --yes":                               `nodes "n3" not found`,
		"node n3 --taint other --pods 3 --yes":        `nodes "n3" not found`,
		"rule nosuch --yes":                           "no pod is held by a breaker because of rule nosuch: give --taint and --pods for a taint that is yet to come",
		"node n1 --taint other --yes":                 "no pod is held by a breaker for taint other because of node n1: give --taint and --pods for a taint that is yet to come",
		"policy gentle --yes":                         `evictionpolicies "gentle" not found`,
		"policy default --taint other --yes":          "the breaker of EvictionPolicy default holds no pod for taint other",
		"policy default --taint gpu.example.com/sick": "1 pod held by EvictionPolicy default because of taints that drivers publish, for which there are no approvals: raise spec.breaker, or run kubectl tollgate release default",
		"pod web-0":                                   `cannot approve "pod" web-0: want one of node, rule, patch, policy`,
		"node n1 -o wide":                             `--output is "wide", want one of name, yaml, json`,
		"node n1 --dry-run=maybe":                     `--dry-run is "maybe", want one of none, client, server`,
		"node n1 --pods -1":                           "--pods is -1, want 1 or more, or 0 for the pods that are held",
		"node n1 --for 200h":                          "--for is 200h0m0s, want more than 0s and at most 168h0m0s",
		"node n1":                                     "nobody can be asked, since the input is no terminal: give --yes",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			clients := clientsOf(t, true, world(t)...)
			_, _, err := approves(t, clients, line)
			require.EqualError(t, err, want)
			require.Equal(t, cli.ExitError, cli.ExitCode(err))
			require.Empty(t, created(t, clients))
		})
	}
}

func TestWhatWasCreatedBeforeAnErrorIsWritten(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{"": "created\n", "name": "evictionapproval.tollgate.dev/n1-broken-*\n", "yaml": "apiVersion: tollgate.dev/v1alpha1\nkind: EvictionApproval\n"} {
		clients, requests := clientsOf(t, true, world(t)...), 0
		clients.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "evictionapprovals", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if requests++; requests > 1 {
				return true, nil, errors.New("down")
			}
			return true, action.(clienttesting.CreateActionImpl).Object, nil
		})
		out, _, err := approves(t, clients, strings.TrimSuffix("policy default --yes -o "+output, " -o "))
		require.EqualError(t, err, "create EvictionApproval: down")
		require.Equal(t, 2, requests)
		require.Contains(t, out, want)
		require.Equal(t, 1, strings.Count(out, "n1-broken-"), out)
	}
}

func TestErrorsOfTheAPIServerAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: "tollgate.dev", Resource: "evictionapprovals"}
	for err, want := range map[error]string{
		apierrors.NewForbidden(resource, "", errors.New(`User "eve" cannot create resource "evictionapprovals"`)): "(ask for a ClusterRole with the verb create on evictionapprovals of API group tollgate.dev)",
		errors.New(`admission webhook "evictionapprovals.tollgate.dev" denied the request: spec.taint.key: no`):   `create EvictionApproval: admission webhook "evictionapprovals.tollgate.dev" denied the request: spec.taint.key: no`,
	} {
		clients := clientsOf(t, true, world(t)...)
		clients.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("create", "evictionapprovals", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		_, _, got := approves(t, clients, "node n2 --yes")
		require.ErrorContains(t, got, want)
	}
	_, _, err := approves(t, clientsOf(t, false), "node n2 --taint a --pods 1 --yes")
	require.EqualError(t, err, "the API server does not serve EvictionApprovals: Tollgate holds nothing here until its CustomResourceDefinitions are installed, and it runs")
}

func TestRefusesWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	cmd := NewApproveCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs([]string{"node"})
	require.EqualError(t, cmd.ExecuteContext(context.WithoutCancel(t.Context())), "accepts 2 arg(s), received 1")
}
