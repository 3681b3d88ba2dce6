package preview

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// taintWorld is a node with a pod that uses gpu-0.
var taintWorld = []string{
	`{apiVersion: v1, kind: Node, metadata: {name: node-7, uid: node-7}}`,
	`
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: ml, uid: train, creationTimestamp: "2026-03-01T11:00:00Z"}
spec: {nodeName: node-7, resourceClaims: [{name: gpu, resourceClaimName: gpu}]}`,
	`
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpus, uid: gpus}
spec:
  driver: gpu.example.com
  nodeName: node-7
  pool: {name: node-7, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {model: {string: A100}}}, {name: gpu-1, attributes: {model: {string: H100}}, taints: [{key: xid, effect: NoSchedule}]}]`,
	`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: a100}
spec: {selectors: [{cel: {expression: "device.attributes['gpu.example.com'].model == 'A100'"}}]}`,
	`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: ml, uid: gpu}
status:
  allocation: {devices: {results: [{request: r, driver: gpu.example.com, pool: node-7, device: gpu-0}]}}
  reservedFor: [{resource: pods, name: train, uid: train}]`,
	`
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata:
  name: theirs
  uid: theirs
  managedFields:
  - {manager: tollgate, operation: Apply, subresource: status, time: "2026-03-01T11:00:00Z", fieldsV1: {"f:status": {}}}
  - {manager: janitor, operation: Apply, time: "2026-03-01T11:59:00Z", fieldsV1: {"f:spec": {"f:taint": {"f:value": {}}}}}
  - {manager: labeller, operation: Update, time: "2026-03-01T10:00:00Z", fieldsV1: {"f:metadata": {}}}
  - {manager: monitor, operation: Update, time: "2026-03-01T11:00:00Z", fieldsV1: {"f:spec": {}}}
spec: {deviceSelector: {driver: gpu.example.com}, taint: {key: hot, effect: NoSchedule}}`,
}

// taintTollgate returns the clients of a cluster with Tollgate.
func taintTollgate(tb testing.TB, more ...string) *cli.Clients {
	tb.Helper()
	clients := clientsOf(tb, allKinds, append(append(taintWorld, lease(settings.DefaultEviction(), noon)), more...)...)
	typed, ok := clients.Kubernetes.(*fake.Clientset)
	require.True(tb, ok)
	typed.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		review := &authenticationv1.SelfSubjectReview{}
		review.Status.UserInfo.Username = "alice"
		return true, review, nil
	})
	return clients
}

type taintResult struct {
	out, notes string
	err        error
}

// argumentTypes runs a command line at a terminal with the answer of a user; an empty answer
// means that there is no terminal.
func argumentTypes(t *testing.T, clients *cli.Clients, command func(edge) *cobra.Command, answer string, arguments ...string) taintResult {
	t.Helper()
	cmd := command(edge{
		clock: clocktesting.NewFakePassiveClock(noon), terminal: func(any) bool { return answer != "" },
		connect: func(io.Writer) (*cli.Clients, error) { return clients, nil },
	})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out, notes bytes.Buffer
	cmd.SetIn(strings.NewReader(answer))
	cmd.SetOut(&out)
	cmd.SetErr(&notes)
	cmd.SetArgs(append([]string{"device"}, arguments...))
	err := cmd.ExecuteContext(t.Context())
	return taintResult{out.String(), notes.String(), err}
}

// stored returns the objects of a kind by name.
func stored(t *testing.T, clients *cli.Clients, kind string) map[string]unstructured.Unstructured {
	t.Helper()
	list, err := clients.Dynamic.Resource(customKinds[kind]).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	all := map[string]unstructured.Unstructured{}
	for _, object := range list.Items {
		all[object.GetName()] = object
	}
	return all
}

const gpu0 = "gpu.example.com/node-7/gpu-0"

func TestATaintIsShownAskedForWrittenAndTakenAway(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	r := argumentTypes(t, clients, newTaint, "y\n", gpu0, "example.com/hot=fan:NoExecute")
	require.NoError(t, r.err)
	require.Equal(t, "device/gpu.example.com/node-7/gpu-0: evicts 1 pod in 1 namespace: 1 now; 1 without a controller\n"+
		"NAMESPACE  PODS  NOW  LATER  LATEST  GUARDED  NO CONTROLLER\n"+
		"ml         1     1    0      now     0        1\n"+
		"Taint gpu.example.com/node-7/gpu-0? [y/N] ", r.notes)
	name, found := strings.CutPrefix(strings.TrimSuffix(r.out, " created\n"), "devicetaintrule.resource.k8s.io/")
	require.True(t, found, r.out)
	require.Regexp(t, "^gpu-0-hot-[0-9a-f]{8}$", name)
	rule := stored(t, clients, "DeviceTaintRule")[name]
	require.Equal(t, map[string]string{"tollgate.dev/made-by": "kubectl-tollgate"}, rule.GetLabels())
	require.Equal(t, map[string]string{"tollgate.dev/author": "alice"}, rule.GetAnnotations())
	require.Equal(t, map[string]any{
		"deviceSelector": map[string]any{"driver": "gpu.example.com", "pool": "node-7", "device": "gpu-0"},
		"taint":          map[string]any{"key": "example.com/hot", "value": "fan", "effect": "NoExecute"},
	}, rule.Object["spec"])

	r = argumentTypes(t, clients, newTaint, "y\n", gpu0, "example.com/hot=pump:NoExecute")
	require.EqualError(t, r.err, "devicetaintrule.resource.k8s.io/"+name+" gives them a taint with the key example.com/hot and the effect NoExecute already, and --overwrite is not given")
	r = argumentTypes(t, clients, newTaint, "", gpu0, "example.com/hot=pump:NoExecute", "--overwrite", "--yes")
	require.NoError(t, r.err)
	require.Equal(t, "devicetaintrule.resource.k8s.io/"+name+" configured\n", r.out)
	require.Equal(t, "device/gpu.example.com/node-7/gpu-0: evicts no pods\n", r.notes, "it has to leave already")
	rule = stored(t, clients, "DeviceTaintRule")[name]
	value, _, err := unstructured.NestedString(rule.Object, "spec", "taint", "value")
	require.NoError(t, err)
	require.Equal(t, "pump", value)

	r = argumentTypes(t, clients, newUntaint, "", gpu0, "example.com/hot")
	require.NoError(t, r.err)
	require.Equal(t, "devicetaintrule.resource.k8s.io/"+name+" deleted\n", r.out)
	require.Len(t, stored(t, clients, "DeviceTaintRule"), 1)
}

func TestAnObjectThatChangedMeanwhileIsOverwrittenIfOnlyItsStatusDid(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		field     []string
		conflicts bool
	}{
		"a controller wrote the status": {[]string{"status", "note"}, false},
		"a user changed the taint":      {[]string{"spec", "taint", "value"}, true},
		"a user added a label":          {[]string{"metadata", "labels", "team"}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			clients := taintTollgate(t)
			require.NoError(t, argumentTypes(t, clients, newTaint, "", gpu0, "cold=a:NoExecute", "--yes").err)
			custom, ok := clients.Dynamic.(*dynamicfake.FakeDynamicClient)
			require.True(t, ok)
			custom.PrependReactor("update", "devicetaintrules", func(action clienttesting.Action) (bool, runtime.Object, error) {
				written, ok := action.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured)
				if !ok || written.GetResourceVersion() == "new" {
					return false, nil, nil
				}
				changed := written.DeepCopy()
				object, err := custom.Tracker().Get(customKinds["DeviceTaintRule"], "", written.GetName())
				if rule, ok := object.(*unstructured.Unstructured); ok {
					changed = rule.DeepCopy()
				}
				changed.SetResourceVersion("new")
				err = errors.Join(err, unstructured.SetNestedField(changed.Object, "theirs", c.field...),
					custom.Tracker().Update(customKinds["DeviceTaintRule"], changed, ""))
				if err == nil {
					err = apierrors.NewConflict(schema.GroupResource{Resource: "devicetaintrules"}, changed.GetName(), errors.New("it was changed"))
				}
				return true, nil, err
			})
			err := argumentTypes(t, clients, newTaint, "", gpu0, "cold=b:NoExecute", "--yes", "--overwrite").err
			if c.conflicts {
				require.ErrorContains(t, err, "it was changed")
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestUntaintTakesTheFlagThatTaintHas(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--yes"}, {"-y"}} {
		clients := taintTollgate(t)
		require.NoError(t, argumentTypes(t, clients, newTaint, "", gpu0, "cold:NoExecute", "--yes").err)
		r := argumentTypes(t, clients, newUntaint, "", append([]string{gpu0, "cold"}, flags...)...)
		require.NoError(t, r.err)
		require.Empty(t, r.notes, "it does not ask")
		require.Empty(t, ours(t, clients, "DeviceTaintRule"))
	}
}

func TestADeviceThatNobodyPublishesIsTaintedOnPurposeOnly(t *testing.T) {
	t.Parallel()
	const instead = `device "gpu.exmaple.com": no ResourceSlice publishes such a device; there are devices of gpu.example.com`
	for sentence, c := range map[string]struct {
		answer    string
		arguments []string
		// fails is the error, empty for none.
		fails string
	}{
		"nobody can be asked":            {"", nil, "nothing is written: " + instead + "; give --allow-unpublished"},
		"yes, which may be of a script":  {"", []string{"--yes"}, "nothing is written: " + instead + "; give --allow-unpublished"},
		"a dry run":                      {"y\n", []string{"--dry-run=server"}, "nothing is written: " + instead + "; give --allow-unpublished"},
		"it is agreed to":                {"y\n", nil, ""},
		"the answer is no":               {"n\n", nil, "nothing is written: the answer was no"},
		"they come later, and nobody is": {"", []string{"--allow-unpublished"}, "there is no terminal to ask on, give --yes"},
		"they come later":                {"", []string{"--allow-unpublished", "--yes"}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			clients := taintTollgate(t)
			r := argumentTypes(t, clients, newTaint, c.answer, append([]string{"gpu.exmaple.com", "cold:NoExecute"}, c.arguments...)...)
			if c.fails != "" {
				require.ErrorContains(t, r.err, c.fails)
				require.Equal(t, cli.ExitError, cli.ExitCode(r.err))
				require.Empty(t, ours(t, clients, "DeviceTaintRule"))
				return
			}
			require.NoError(t, r.err)
			require.Contains(t, r.notes, "warning: "+instead+"\n")
			require.Len(t, ours(t, clients, "DeviceTaintRule"), 1)
		})
	}
}

func TestAClassNeedsAPatch(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	flags := []string{"--class", "a100", "--selector", `device.driver == "gpu.example.com"`}
	r := argumentTypes(t, clients, newTaint, "", append(flags, "recall:NoExecute", "--yes", "-o", "yaml")...)
	require.NoError(t, r.err)
	require.Contains(t, r.notes, "evicts 1 pod in 1 namespace: 1 now")
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(r.out), &object))
	require.Equal(t, "ResourceSlicePatch", object["kind"])
	require.Equal(t, map[string]any{"devices": map[string]any{
		"filter": map[string]any{
			"deviceClassName": "a100", "selectors": []any{map[string]any{"cel": map[string]any{"expression": `device.driver == "gpu.example.com"`}}},
		},
		"taints": []any{map[string]any{"key": "recall", "effect": "NoExecute"}},
	}}, object["spec"])

	r = argumentTypes(t, clients, newTaint, "", append(flags, "recall=v2:NoExecute", "--yes", "--overwrite", "-o", "name")...)
	require.NoError(t, r.err)
	require.Regexp(t, `^resourceslicepatch.tollgate.dev/a100-recall-[0-9a-f]{8}\n$`, r.out)
	for _, patch := range stored(t, clients, "ResourceSlicePatch") {
		taints, _, err := unstructured.NestedSlice(patch.Object, "spec", "devices", "taints")
		require.NoError(t, err)
		require.Equal(t, []any{map[string]any{"key": "recall", "value": "v2", "effect": "NoExecute"}}, taints)
	}

	r = argumentTypes(t, clients, newUntaint, "", "--class", "a100", "recall")
	require.ErrorContains(t, r.err, "made by alice, by taint device: untaint the same devices", "not the same devices")
	r = argumentTypes(t, clients, newUntaint, "", append(flags, "recall", "-o", "name")...)
	require.NoError(t, r.err)
	require.Empty(t, stored(t, clients, "ResourceSlicePatch"))
}

func TestAStockClusterHasRulesAndNoPatches(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, plainKinds, taintWorld...)
	r := argumentTypes(t, clients, newTaint, "", gpu0, "cold:NoExecute", "--yes")
	require.NoError(t, r.err)
	require.Contains(t, r.notes, "note: Tollgate does not run here")
	r = argumentTypes(t, clients, newUntaint, "", gpu0, "cold")
	require.NoError(t, r.err)
	r = argumentTypes(t, clients, newTaint, "", "--class", "a100", "cold:NoExecute", "--yes")
	require.EqualError(t, r.err, "--class and --selector need a ResourceSlicePatch, which the API server does not serve: install Tollgate, or name driver, pool and device")

	r = argumentTypes(t, clientsOf(t, served{}, taintWorld[:2]...), newTaint, "", gpu0, "cold:NoExecute", "--yes")
	require.ErrorContains(t, r.err, "the API server does not serve DeviceTaintRules")
	r = argumentTypes(t, clientsOf(t, served{}), newUntaint, "", gpu0, "cold")
	require.EqualError(t, r.err, `taint "cold" of gpu.example.com/node-7/gpu-0: taint device made none for these devices`)
}

func TestNothingIsWrittenUnlessSomebodySaysYes(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		answer    string
		arguments []string
		want      string
		out       string
	}{
		"the answer is no":    {"n\n", nil, "nothing is written: the answer was no", ""},
		"no answer":           {"\n", nil, "nothing is written: the answer was no", ""},
		"the end of input":    {"y", []string{"--dry-run"}, "", " created (dry run)\n"},
		"nobody is there":     {"", nil, "nothing is written: there is no terminal to ask on, give --yes to taint without being asked", ""},
		"a dry run asks none": {"", []string{"--dry-run=client", "--yes"}, "", " created (dry run)\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			clients := taintTollgate(t)
			r := argumentTypes(t, clients, newTaint, c.answer, append([]string{gpu0, "cold:NoExecute"}, c.arguments...)...)
			if c.want == "" {
				require.NoError(t, r.err)
			} else {
				require.EqualError(t, r.err, c.want)
			}
			require.True(t, strings.HasSuffix(r.out, c.out))
			require.Contains(t, r.notes, "evicts 1 pod")
			require.Len(t, stored(t, clients, "DeviceTaintRule"), 1)
		})
	}
}

func TestADryRunOnTheServerIsSaidToIt(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	r := argumentTypes(t, clients, newTaint, "", gpu0, "cold:NoExecute", "hot:None", "--dry-run=server")
	require.NoError(t, r.err)
	require.Equal(t, 2, strings.Count(r.out, " created (server dry run)\n"))
	custom, ok := clients.Dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	dry := 0
	for _, action := range custom.Actions() {
		if create, ok := action.(clienttesting.CreateActionImpl); ok && len(create.CreateOptions.DryRun) > 0 {
			require.Equal(t, []string{metav1.DryRunAll}, create.CreateOptions.DryRun)
			dry++
		}
	}
	require.Equal(t, 2, dry)
}

func TestSeveralTaintsAreSeveralRules(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	r := argumentTypes(t, clients, newTaint, "", "gpu.example.com", "a:NoExecute", "b:NoSchedule", "--yes", "-o", "json")
	require.NoError(t, r.err)
	require.Contains(t, r.out, `"kind": "List"`)
	require.Len(t, stored(t, clients, "DeviceTaintRule"), 3)
	r = argumentTypes(t, clients, newUntaint, "", "gpu.example.com", "a", "c")
	require.EqualError(t, r.err, `taint "c" of gpu.example.com: taint device made none for these devices`)
	require.Len(t, stored(t, clients, "DeviceTaintRule"), 3, "all or nothing")
	r = argumentTypes(t, clients, newUntaint, "", "gpu.example.com", "a", "b:NoSchedule-", "--dry-run=client")
	require.NoError(t, r.err)
	require.Equal(t, 2, strings.Count(r.out, " deleted (dry run)\n"))
	require.Len(t, stored(t, clients, "DeviceTaintRule"), 3)
	r = argumentTypes(t, clients, newUntaint, "", "--driver", "gpu.example.com", "a")
	require.NoError(t, r.err, "a lone argument is a taint where flags name devices")
	require.Len(t, stored(t, clients, "DeviceTaintRule"), 2)
}

// forbid lets the user do nothing but one thing with one kind.
func forbid(t *testing.T, clients *cli.Clients, verb, resource string) {
	t.Helper()
	typed, ok := clients.Kubernetes.(*fake.Clientset)
	require.True(t, ok)
	custom, ok := clients.Dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked := action.GetResource().GroupResource()
		discovers := slices.Contains([]string{"group", "resource", "version"}, asked.Resource)
		allowed := discovers || asked.Resource == "selfsubjectreviews" || action.GetVerb() == verb && asked.Resource == resource
		return !allowed, nil, apierrors.NewForbidden(asked, "", errors.New(`User "monitor" cannot do that`))
	}
	typed.PrependReactor("*", "*", refuse)
	custom.PrependReactor("*", "*", refuse)
}

func TestWhoMayCreateAndSeeNothingTaintsUnasked(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		arguments []string
		may       string
		want      string
		notes     string
	}{
		"by names":              {[]string{gpu0, "cold:NoExecute", "--yes"}, "devicetaintrules", "", "note: not foretold: "},
		"by a class":            {[]string{"--class", "a100", "cold:NoExecute", "--yes"}, "resourceslicepatches", "", "note: not foretold: "},
		"who is asked":          {[]string{gpu0, "cold:NoExecute"}, "devicetaintrules", "ask for a ClusterRole with the verb get on devicetaintrules", ""},
		"who sees what stands":  {[]string{gpu0, "cold:NoExecute", "--yes", "--overwrite"}, "devicetaintrules", "ask for a ClusterRole with the verb get on devicetaintrules", ""},
		"who may do nothing":    {[]string{gpu0, "cold:NoExecute", "--yes"}, "", "ask for a ClusterRole with the verb create on devicetaintrules", "note: not foretold: "},
		"who may do it to none": {[]string{gpu0, "cold:NoExecute", "--yes"}, "resourceslicepatches", "ask for a ClusterRole with the verb create on devicetaintrules", "note: not foretold: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			clients := taintTollgate(t)
			forbid(t, clients, "create", c.may)
			r := argumentTypes(t, clients, newTaint, "y\n", c.arguments...)
			if c.want == "" {
				require.NoError(t, r.err)
				require.Contains(t, r.out, " created\n")
			} else {
				require.ErrorContains(t, r.err, c.want)
			}
			require.True(t, strings.HasPrefix(r.notes, c.notes), r.notes)
		})
	}
}

func TestWithoutClaimsOrSlicesNothingIsForetold(t *testing.T) {
	t.Parallel()
	for resource, arguments := range map[string][]string{
		"resourceclaims": {gpu0, "cold:NoExecute"},
		"resourceslices": {"--class", "a100", "cold:NoExecute"},
	} {
		clients := taintTollgate(t)
		typed, ok := clients.Kubernetes.(*fake.Clientset)
		require.True(t, ok)
		typed.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "resource.k8s.io", Resource: resource}, "", errors.New("eve may not"))
		})
		r := argumentTypes(t, clients, newTaint, "y\n", arguments...)
		require.Error(t, r.err)
		require.Empty(t, r.out)
		r = argumentTypes(t, clients, newTaint, "", append(arguments, "--yes")...)
		require.NoError(t, r.err)
		require.Contains(t, r.notes, "note: not foretold: ")
		require.Contains(t, r.out, " created\n")
	}
}

func TestUntaintAnswersWithoutTheRightToListSlices(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	typed, ok := clients.Kubernetes.(*fake.Clientset)
	require.True(t, ok)
	typed.PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(state.SliceResource, "", errors.New("eve may not"))
	})
	r := argumentTypes(t, clients, newUntaint, "", gpu0, "hot")
	require.ErrorContains(t, r.err, "taint device made none for these devices; devicetaintrule.resource.k8s.io/theirs gives it")
	require.ErrorContains(t, r.err, " (what drivers publish is not known: you may not list resourceslices)")
}

func TestATaintThatIsNamedTwiceGoesOnce(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	require.NoError(t, argumentTypes(t, clients, newTaint, "", gpu0, "cold:NoExecute", "--yes").err)
	r := argumentTypes(t, clients, newUntaint, "", gpu0, "cold", "cold:NoExecute")
	require.NoError(t, r.err)
	require.Equal(t, 1, strings.Count(r.out, " deleted\n"))
}

func TestWhatWentBeforeAnErrorIsSaid(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	require.NoError(t, argumentTypes(t, clients, newTaint, "", gpu0, "cold:NoExecute", "wet:NoExecute", "--yes").err)
	custom, ok := clients.Dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	custom.PrependReactor("delete", "devicetaintrules", func(action clienttesting.Action) (bool, runtime.Object, error) {
		deletion, ok := action.(clienttesting.DeleteAction)
		return ok && strings.HasPrefix(deletion.GetName(), "gpu-0-wet"), nil, errors.New("etcd is full")
	})
	r := argumentTypes(t, clients, newUntaint, "", gpu0, "cold", "wet", "-o", "yaml")
	require.ErrorContains(t, r.err, "etcd is full")
	require.Contains(t, r.out, "name: gpu-0-cold")
	require.NotContains(t, r.out, "name: gpu-0-wet")
}

func TestEachOfSeveralTaintsIsForetoldInThePlaceOfWhatStands(t *testing.T) {
	t.Parallel()
	clients := taintTollgate(t)
	both := []string{gpu0, "cold:NoExecute", "wet:NoExecute", "--yes"}
	r := argumentTypes(t, clients, newTaint, "", both...)
	require.NoError(t, r.err)
	for _, line := range []string{
		"device/gpu.example.com/node-7/gpu-0 cold:NoExecute: evicts 1 pod in 1 namespace: 1 now; 1 without a controller\n",
		"device/gpu.example.com/node-7/gpu-0 wet:NoExecute: evicts 1 pod in 1 namespace: 1 now; 1 without a controller\n",
		"pods that go because of any of them: 1\n",
	} {
		require.Contains(t, strings.Join(strings.Fields(r.notes), " "), strings.TrimSpace(line))
	}
	r = argumentTypes(t, clients, newTaint, "", append(both, "--overwrite")...)
	require.NoError(t, r.err)
	require.Equal(t, 2, strings.Count(r.notes, ": evicts no pods\n"), "they stand already: %s", r.notes)
	require.True(t, strings.HasSuffix(r.notes, "\npods that go because of any of them: 0\n"))
}

func TestWhatOthersMadeStaysAndIsNamed(t *testing.T) {
	t.Parallel()
	written := `
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: fans, uid: fans, annotations: {tollgate.dev/author: bob}}
spec: {devices: {taints: [{key: fan, effect: NoExecute}]}}`
	changed := `
apiVersion: tollgate.dev/v1alpha1
kind: ResourceSlicePatch
metadata: {name: two, uid: two, labels: {tollgate.dev/made-by: kubectl-tollgate}}
spec: {devices: {filter: {driver: gpu.example.com, pool: node-7, device: gpu-0}, taints: [{key: one, effect: NoExecute}, {key: other, effect: NoExecute}]}}`
	clients := taintTollgate(t, written, changed)
	for sentence, c := range map[string]struct {
		devices, taint string
		want           string
	}{
		"a rule of a monitor": {gpu0, "hot", "devicetaintrule.resource.k8s.io/theirs gives it to gpu.example.com; it was made by monitor: kubectl delete devicetaintrule.resource.k8s.io/theirs"},
		"a patch of a person": {gpu0, "fan", "resourceslicepatch.tollgate.dev/fans gives it to all devices; it was made by bob: kubectl delete resourceslicepatch.tollgate.dev/fans"},
		"a driver":            {"gpu.example.com/node-7/gpu-1", "xid", "a driver publishes it in ResourceSlice gpus, and has to take it back"},
		"another effect":      {gpu0, "hot:NoExecute", `taint "hot:NoExecute" of gpu.example.com/node-7/gpu-0: taint device made none for these devices`},
		"one that grew since": {gpu0, "one", "kubectl delete resourceslicepatch.tollgate.dev/two"},
		"another driver":      {"nic.example.com", "hot", `taint "hot" of nic.example.com: taint device made none for these devices`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			r := argumentTypes(t, clients, newUntaint, "", c.devices, c.taint)
			require.ErrorContains(t, r.err, c.want)
			require.Equal(t, cli.ExitError, cli.ExitCode(r.err))
		})
	}
}

func TestARuleOfThatNameIsNotTakenOver(t *testing.T) {
	t.Parallel()
	name := taintNameOf(&Target{Driver: "gpu.example.com"}, Taint{Key: "cold", Effect: "NoExecute"})
	clients := taintTollgate(t, "{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: "+name+"}, spec: {taint: {key: cold, effect: NoExecute}}}")
	r := argumentTypes(t, clients, newTaint, "", "gpu.example.com", "cold:NoExecute", "--yes", "--overwrite")
	require.EqualError(t, r.err, "devicetaintrule.resource.k8s.io/"+name+" exists, and taint device did not make it: delete it first")
}

func TestWhatWasChangedSinceIsNotOverwritten(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		devices []string
		kind    string
		value   any
		path    []string
	}{
		"the devices of a rule":     {[]string{gpu0}, "DeviceTaintRule", map[string]any{"driver": "gpu.example.com"}, []string{"spec", "deviceSelector"}},
		"no devices of a rule":      {[]string{gpu0}, "DeviceTaintRule", nil, []string{"spec", "deviceSelector"}},
		"the effect of a rule":      {[]string{gpu0}, "DeviceTaintRule", "NoSchedule", []string{"spec", "taint", "effect"}},
		"the key of a rule":         {[]string{gpu0}, "DeviceTaintRule", "colder", []string{"spec", "taint", "key"}},
		"the devices of a patch":    {[]string{"--class", "a100"}, "ResourceSlicePatch", map[string]any{"driver": "gpu.example.com"}, []string{"spec", "devices", "filter"}},
		"the taint of a patch":      {[]string{"--class", "a100"}, "ResourceSlicePatch", []any{map[string]any{"key": "cold", "effect": "NoSchedule"}}, []string{"spec", "devices", "taints"}},
		"the number of its taints":  {[]string{"--class", "a100"}, "ResourceSlicePatch", []any{}, []string{"spec", "devices", "taints"}},
		"a device of another class": {[]string{"--class", "a100"}, "ResourceSlicePatch", "h100", []string{"spec", "devices", "filter", "deviceClassName"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			clients := taintTollgate(t)
			arguments := slices.Concat(c.devices, []string{"cold:NoExecute", "--yes"})
			require.NoError(t, argumentTypes(t, clients, newTaint, "", arguments...).err)
			for _, object := range stored(t, clients, c.kind) {
				if isOurs(&object) {
					require.NoError(t, unstructured.SetNestedField(object.Object, c.value, c.path...))
					_, err := clients.Dynamic.Resource(customKinds[c.kind]).Update(t.Context(), &object, metav1.UpdateOptions{})
					require.NoError(t, err)
				}
			}
			before := stored(t, clients, c.kind)
			r := argumentTypes(t, clients, newTaint, "", append(arguments, "--overwrite")...)
			require.ErrorContains(t, r.err, " was changed: ")
			require.ErrorContains(t, r.err, strings.Join(c.path[:2], "."))
			require.ErrorContains(t, r.err, "delete it first")
			require.Equal(t, before, stored(t, clients, c.kind))
		})
	}
}

func TestTaintWithoutPermissionsItSaysWhatToAskFor(t *testing.T) {
	t.Parallel()
	rules := schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}
	for verb, c := range map[string]struct {
		make      func(edge) *cobra.Command
		arguments []string
	}{
		"create": {newTaint, []string{gpu0, "cold:NoExecute", "--yes"}},
		"get":    {newTaint, []string{gpu0, "cold:NoExecute", "--yes", "--overwrite"}},
		"list":   {newUntaint, []string{gpu0, "cold"}},
		"delete": {newUntaint, []string{gpu0, "cold"}},
	} {
		clients := taintTollgate(t)
		if verb == "delete" {
			require.NoError(t, argumentTypes(t, clients, newTaint, "", gpu0, "cold:NoExecute", "--yes").err)
		}
		custom, ok := clients.Dynamic.(*dynamicfake.FakeDynamicClient)
		require.True(t, ok)
		custom.PrependReactor(verb, rules.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(rules, "", errors.New(`User "eve" cannot do that`))
		})
		r := argumentTypes(t, clients, c.make, "", c.arguments...)
		require.ErrorContains(t, r.err, "ask for a ClusterRole with the verb "+verb+" on devicetaintrules of API group resource.k8s.io")
	}
}

func TestRefusesWhatItCannotWrite(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		make      func(edge) *cobra.Command
		arguments []string
		want      string
	}{
		"no devices":         {newTaint, []string{"cold:NoExecute"}, "no devices are named"},
		"no taint":           {newTaint, []string{gpu0}, "no taint is given, want KEY[=VALUE]:EFFECT"},
		"a removal":          {newTaint, []string{gpu0, "cold-"}, `taint "cold" is to go: that is what untaint device is for`},
		"an effect of nodes": {newTaint, []string{gpu0, "cold:PreferNoSchedule"}, "want key=value:EFFECT with one of None, NoSchedule, NoExecute"},
		"a format":           {newTaint, []string{gpu0, "cold:NoExecute", "-o", "xml"}, `--output is "xml", want one of name, yaml, json`},
		"a dry run":          {newTaint, []string{gpu0, "cold:NoExecute", "--dry-run=all"}, `--dry-run is "all", want one of none, client, server`},
		"a wrong expression": {newTaint, []string{"--selector", "device.", "cold:NoExecute", "--yes"}, "spec.devices.filter.selectors[0].cel.expression"},
		"nothing to remove":  {newUntaint, []string{gpu0}, "no taint is given, want KEY[:EFFECT]"},
		"a wrong effect":     {newUntaint, []string{gpu0, "cold:Never"}, `effect is "Never"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, argumentTypes(t, taintTollgate(t), c.make, "", c.arguments...).err, c.want)
		})
	}
}

func TestNamesAreAllowedAndTellTaintsApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	seen := map[string]bool{}
	for _, target := range []Target{
		{Driver: "d"},
		{Pool: "d"},
		{Driver: "d", Pool: "p/q"},
		{Driver: "d", Pool: "p", Device: "q"},
		{Class: "c"},
		{Selectors: []string{"a"}},
		{Selectors: []string{"b"}},
		{Driver: long},
	} {
		for _, key := range []string{"a", "example.com/a", "A_b", long + "/a"} {
			for _, valid := range OfDevices {
				effect := resourcev1.DeviceTaintEffect(valid)
				name := taintNameOf(&target, Taint{Key: key, Effect: effect})
				require.Regexp(t, "^[a-z0-9]([a-z0-9-]{0,68}[a-z0-9])$", name)
				if effect == none {
					require.Equal(t, taintNameOf(&target, Taint{Key: key, Effect: noExecute}), name, "it becomes that")
					continue
				}
				require.False(t, seen[name], name)
				seen[name] = true
				require.Equal(t, name, taintNameOf(&target, Taint{Key: key, Value: "v", Effect: effect}), "a value is overwritten")
			}
		}
	}
}

func TestWhatStandsAtNoneBecomesNoExecute(t *testing.T) {
	t.Parallel()
	for kind, devices := range map[string][]string{"DeviceTaintRule": {gpu0}, "ResourceSlicePatch": {"--class", "a100"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			clients := taintTollgate(t)
			taints := func(taint string, more ...string) error {
				return argumentTypes(t, clients, newTaint, "", slices.Concat(devices, []string{taint, "--yes"}, more)...).err
			}
			made := func() *unstructured.Unstructured {
				found := ours(t, clients, kind)
				require.Len(t, found, 1)
				return &found[0]
			}
			taint := func() map[string]any {
				object := made()
				if kind == "DeviceTaintRule" {
					fields, _, err := unstructured.NestedMap(object.Object, "spec", "taint")
					require.NoError(t, err)
					return fields
				}
				list, _, err := unstructured.NestedSlice(object.Object, "spec", "devices", "taints")
				require.NoError(t, err)
				require.Len(t, list, 1)
				return list[0].(map[string]any)
			}
			require.NoError(t, taints("cold:None"))
			looked := made()
			require.ErrorContains(t, taints("cold:None"), "the effect None already, and --overwrite is not given")
			require.NoError(t, taints("cold:NoExecute"), "it evicts nobody yet, and is not overwritten")
			require.Equal(t, looked.GetName(), made().GetName())
			require.Equal(t, "NoExecute", taint()["effect"])
			require.NotContains(t, taint(), "timeAdded", "it counts from when it evicts")

			require.ErrorContains(t, taints("cold:None"), "the effect NoExecute already, and --overwrite is not given")
			require.NoError(t, taints("cold:None", "--overwrite"))
			require.Equal(t, "None", taint()["effect"])
			require.NoError(t, taints("cold:NoSchedule"), "which is another taint")
			require.Len(t, ours(t, clients, kind), 2)
			require.NoError(t, argumentTypes(t, clients, newUntaint, "", append(devices, "cold")...).err)
			require.Empty(t, ours(t, clients, kind))
		})
	}
}

// ours returns the objects of a kind that taint device made.
func ours(t *testing.T, clients *cli.Clients, kind string) []unstructured.Unstructured {
	t.Helper()
	var found []unstructured.Unstructured
	for _, object := range stored(t, clients, kind) {
		if isOurs(&object) {
			found = append(found, object)
		}
	}
	return found
}
