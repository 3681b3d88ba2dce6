package check

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// runVAP runs the command on a file.
func runVAP(t *testing.T, file, stdin string, args ...string) (out, notes string, err error) {
	t.Helper()
	cmd := NewExportCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(append([]string{"vap", "-f", file}, args...))
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", "export", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -update writes it")
}

func TestTheSamplesAreExportedAsTheFilesInTestdata(t *testing.T) {
	t.Parallel()
	samples := filepath.Join("..", "..", "..", "..", "deploy", "samples")
	for file, left := range map[string]int{
		"tolerationpolicy": 0, "system-taints": 0, "maintenance-pod": 0,
		"dedicated-nodes": 1, "shared-nodes": 1, "spot-nodes": 1, "health-monitor": 1,
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			out, notes, err := runVAP(t, filepath.Join(samples, file+".yaml"), "")
			if left == 0 {
				require.NoError(t, err)
			} else {
				require.Equal(t, cli.ExitVerdict, cli.ExitCode(err))
			}
			golden(t, file+".yaml", out)
			golden(t, file+".txt", notes)
			for line := range strings.Lines(notes) {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), cli.Width)
			}
			all, err := readFile(filepath.Join(samples, file+".yaml"), nil)
			require.NoError(t, err)
			enforce(t, exportAllPartial(t, &all)) // what is left is in force with --partial
		})
	}
}

func exportAllPartial(t *testing.T, found *policies) []runtime.Object {
	t.Helper()
	o := exportOptions{partial: true, settings: vap.DefaultSettings()}
	r := result{partial: true}
	require.NoError(t, o.add(found, &r))
	return r.objects
}

func TestAPolicyIsNotExportedInPartUnlessThatIsAskedFor(t *testing.T) {
	t.Parallel()
	const limited = `
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: limited}
spec:
  taints: [{key: a}]
  setters: [{subjects: [{kind: Group, name: ops}]}]
  limits: {maxAffectedPods: 20}
  ttl: 1h
`
	out, notes, err := runVAP(t, "-", limited)
	require.EqualError(t, err, "1 of 1 policies not exported: --partial exports what can be")
	require.Equal(t, cli.ExitVerdict, cli.ExitCode(err))
	require.Empty(t, out)
	require.Contains(t, notes, "TaintPolicy/limited: not exported, because of\n  spec.limits.maxAffectedPods: the API server does not count pods\n")
	require.NotContains(t, notes, "What Tollgate does")

	out, notes, err = runVAP(t, "-", limited, "--partial")
	require.NoError(t, err)
	require.Contains(t, out, "name: tollgate-taints-limited-nodes")
	require.Contains(t, out, "spec.limits.maxAffectedPods: the API server does not count pods")
	require.Contains(t, notes, "TaintPolicy/limited: exported, but without\n")
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ text, problem string }{
		"a file without policies": {"kind: Pod\napiVersion: v1\n", "there is no TolerationPolicy and no TaintPolicy in the file"},
		"a policy with a fault":   {"kind: TolerationPolicy\napiVersion: tollgate.dev/v1alpha1\nmetadata: {name: p}\nspec: {taints: [{key: '**'}]}\n", "spec.taints[0].key"},
		"two policies of one name": {"kind: TaintPolicy\napiVersion: tollgate.dev/v1alpha1\nmetadata: {name: p}\nspec: {taints: [{key: a}]}\n---\n" +
			"kind: TaintPolicy\napiVersion: tollgate.dev/v1alpha1\nmetadata: {name: p}\nspec: {taints: [{key: b}]}\n", "<stdin>:6: TaintPolicy/p is in <stdin>:1 already"},
		"a policy without a name":     {"kind: TolerationPolicy\napiVersion: tollgate.dev/v1alpha1\nspec: {taints: [{key: a}]}\n", "<stdin>:1: TolerationPolicy : metadata.name: a policy has to have a name"},
		"a policy in another version": {"kind: TolerationPolicy\napiVersion: tollgate.dev/v1\nmetadata: {name: p}\nspec: {taints: [{key: a}]}\n", "apiVersion is tollgate.dev/v1, want tollgate.dev/v1alpha1"},
		"a field with a typo":         {"kind: TolerationPolicy\napiVersion: tollgate.dev/v1alpha1\nspec: {taint: []}\n", `unknown field "spec.taint"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, _, err := runVAP(t, "-", c.text)
			require.ErrorContains(t, err, c.problem)
			require.Equal(t, cli.ExitError, cli.ExitCode(err))
		})
	}
	_, _, err := runVAP(t, filepath.Join(t.TempDir(), "none"), "")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSettingsOfTheClusterAreExportedToo(t *testing.T) {
	t.Parallel()
	const policy = "kind: TolerationPolicy\napiVersion: tollgate.dev/v1alpha1\nmetadata: {name: p}\nspec: {taints: [{key: node.kubernetes.io/not-ready}]}\n---\n" +
		"kind: TaintPolicy\napiVersion: tollgate.dev/v1alpha1\nmetadata: {name: p}\nspec: {taints: [{key: a}]}\n"
	out, _, err := runVAP(t, "-", policy, "--exempt-namespaces", "a,b", "--tollgate-user", "toll", "--default-not-ready-toleration-seconds", "17")
	require.NoError(t, err)
	found := strings.Join(strings.Fields(out), " ")
	require.Contains(t, found, "operator: NotIn values: - a - b")
	require.Contains(t, found, `request.userInfo.username != "toll"`)
	require.Contains(t, found, "optional.of(17)")
}

// cluster returns clients of a cluster that serves kinds and has policies.
func cluster(t *testing.T, served []string, texts ...string) *cli.Clients {
	t.Helper()
	typed := fake.NewClientset()
	discovery, ok := typed.Discovery().(*discoveryfake.FakeDiscovery)
	require.True(t, ok)
	list := &metav1.APIResourceList{GroupVersion: v1alpha1.GroupVersion.String()}
	for _, name := range served {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	discovery.Resources = append(discovery.Resources, list)
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersion.WithResource("tolerationpolicies"): "TolerationPolicyList",
		v1alpha1.GroupVersion.WithResource("taintpolicies"):      "TaintPolicyList",
		v1alpha1.GroupVersion.WithResource("placementpolicies"):  "PlacementPolicyList",
	})
	for _, text := range texts {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
		resource := v1alpha1.GroupVersion.WithResource(map[string]string{
			"TolerationPolicy": "tolerationpolicies", "TaintPolicy": "taintpolicies", "PlacementPolicy": "placementpolicies",
		}[object.GetKind()])
		_, err := custom.Resource(resource).Create(t.Context(), object, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return &cli.Clients{Kubernetes: typed, Dynamic: custom}
}

var servedKinds = []string{"tolerationpolicies", "taintpolicies", "placementpolicies"}

func TestPoliciesOfAClusterAreExported(t *testing.T) {
	t.Parallel()
	found, err := readCluster(t.Context(), cluster(t, servedKinds,
		"{kind: TolerationPolicy, apiVersion: tollgate.dev/v1alpha1, metadata: {name: a}, spec: {taints: [{key: a}]}}",
		"{kind: TaintPolicy, apiVersion: tollgate.dev/v1alpha1, metadata: {name: b}, spec: {taints: [{key: b}]}}",
		"{kind: PlacementPolicy, apiVersion: tollgate.dev/v1alpha1, metadata: {name: c}, spec: {match: {namespaces: [c]}, guard: {taints: [{key: c, effect: NoSchedule}]}}}",
		"{kind: PlacementPolicy, apiVersion: tollgate.dev/v1alpha1, metadata: {name: d}, spec: {match: {namespaces: [d]}, pod: {schedulingGates: [d]}}}"))
	require.NoError(t, err)
	var out, notes bytes.Buffer
	o := exportOptions{settings: vap.DefaultSettings()}
	require.NoError(t, o.export(found, &out, &notes))
	require.Contains(t, out.String(), "name: tollgate-tolerations-a-pods")
	require.Contains(t, out.String(), "name: tollgate-taints-b-nodes")
	require.Contains(t, out.String(), "name: tollgate-tolerations-placementpolicy-c-pods")
	require.NotContains(t, out.String(), "placementpolicy-d")
}

func TestPoliciesThatAreNotExportedMayHaveFaults(t *testing.T) {
	t.Parallel()
	out, _, err := runVAP(t, "-", "kind: EvictionPolicy\napiVersion: tollgate.dev/v1alpha1\nspec: {pace: fast}\n---\n"+
		"kind: TolerationPolicy\napiVersion: tollgate.dev/v1alpha1\nmetadata: {name: p}\nspec: {taints: [{key: a}]}\n")
	require.NoError(t, err)
	require.Contains(t, out, "name: tollgate-tolerations-p-pods")
}

func TestAnEmptyClusterHasNothingToExport(t *testing.T) {
	t.Parallel()
	found, err := readCluster(t.Context(), cluster(t, servedKinds))
	require.NoError(t, err)
	var out, notes bytes.Buffer
	o := exportOptions{settings: vap.DefaultSettings()}
	require.NoError(t, o.export(found, &out, &notes))
	require.Empty(t, out.String())
	require.Equal(t, "There are no TolerationPolicies and no TaintPolicies: nothing to export.\n", notes.String())
}

func TestWhoCannotReadPoliciesIsToldWhy(t *testing.T) {
	t.Parallel()
	_, err := readCluster(t.Context(), cluster(t, nil))
	require.ErrorContains(t, err, "the API server does not serve tolerationpolicies: name policies with -f, or install")

	clients := cluster(t, servedKinds)
	custom, ok := clients.Dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	custom.PrependReactor("list", "taintpolicies", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("taintpolicies").GroupResource(), "", nil)
	})
	_, err = readCluster(t.Context(), clients)
	require.ErrorContains(t, err, "ask for a ClusterRole with the verb list on taintpolicies of API group tollgate.dev")
	require.Equal(t, cli.ExitError, cli.ExitCode(err))
}

func TestAGuardIsExportedOnlyIfItsPolicyIsValid(t *testing.T) {
	t.Parallel()
	const guard = "{kind: PlacementPolicy, apiVersion: tollgate.dev/v1alpha1, metadata: {name: x}, spec: {match: {namespaces: [x]}, guard: {taints: [{key: x, effect: Never}], register: {nodeSelector: {matchLabels: {pool: x}}}}}}"
	out, _, err := runVAP(t, "-", guard)
	require.ErrorContains(t, err, "<stdin>:1: PlacementPolicy x: spec.guard.taints[0].effect: ")
	require.Equal(t, cli.ExitError, cli.ExitCode(err))
	require.Empty(t, out)
	_, err = runMap(t, guard, false)
	require.ErrorContains(t, err, "<stdin>:1: PlacementPolicy x: spec.guard.taints[0].effect: ")
	_, err = readCluster(t.Context(), cluster(t, servedKinds, guard))
	require.ErrorContains(t, err, "read PlacementPolicy/x: spec.guard.taints[0].effect: ")
}

func TestTwoPoliciesAreNotExportedUnderOneName(t *testing.T) {
	t.Parallel()
	const (
		guard = "{kind: PlacementPolicy, apiVersion: tollgate.dev/v1alpha1, metadata: {name: x}, spec: {match: {namespaces: [x]}, guard: {taints: [{key: x, effect: NoSchedule}], register: {nodeSelector: {matchLabels: {pool: x}}}}}}\n---\n"
		named = ", apiVersion: tollgate.dev/v1alpha1, metadata: {name: placementpolicy-x}, spec: {taints: [{key: a}]"
		taint = "{kind: TaintPolicy" + named + ", setters: [{rbac: true}], register: [{nodeSelector: {matchLabels: {pool: a}}, taints: [{key: a, effect: NoSchedule}]}]}}"
	)
	for text, problem := range map[string]string{
		"{kind: TolerationPolicy" + named + "}}": "PlacementPolicy/x and TolerationPolicy/placementpolicy-x would both be exported as ValidatingAdmissionPolicy tollgate-tolerations-placementpolicy-x-",
		taint:                                    "PlacementPolicy/x and TaintPolicy/placementpolicy-x would both be exported as ValidatingAdmissionPolicy tollgate-taints-placementpolicy-x-nodes",
	} {
		out, _, err := runVAP(t, "-", guard+text, "--partial")
		require.ErrorContains(t, err, problem)
		require.Equal(t, cli.ExitError, cli.ExitCode(err))
		require.Empty(t, out)
	}
	out, err := runMap(t, guard+taint, false)
	require.ErrorContains(t, err, "PlacementPolicy/x and TaintPolicy/placementpolicy-x would both be exported as MutatingAdmissionPolicy tollgate-register-placementpolicy-x-0")
	require.NotContains(t, out, "apiVersion")
	_, err = runMap(t, guard+"{kind: TolerationPolicy"+named+"}}", false)
	require.NoError(t, err, "TolerationPolicies are not exported by map")
}
