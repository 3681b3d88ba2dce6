package operate

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// runs runs a command line of pause, resume or release on a cluster.
func runs(t *testing.T, clients *cli.Clients, line string) (out, notes string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	streams := command{clock: clocktesting.NewFakePassiveClock(noon), in: &stdout, out: &stdout, notes: &stderr}
	words := strings.Fields(line)
	cmd := &cobra.Command{}
	if words[0] == "release" {
		c := &approveCommand{command: streams, release: true}
		c.addFlags(cmd)
		require.NoError(t, cmd.ParseFlags(words[1:]))
		if err := c.complete(cmd.Flags().Args()); err != nil {
			return "", "", err
		}
		err = c.run(t.Context(), clients)
		return stdout.String(), stderr.String(), err
	}
	c := &pauseCommand{command: streams}
	c.addFlags(cmd, "written", words[0] == "resume")
	require.NoError(t, cmd.ParseFlags(words[1:]))
	if err := c.complete(cmd.Flags().Args()); err != nil {
		return "", "", err
	}
	if words[0] == "pause" {
		err = c.pause(t.Context(), clients)
	} else {
		err = c.resume(t.Context(), clients)
	}
	return stdout.String(), stderr.String(), err
}

// policyOf returns the stored EvictionPolicy with a name; nil for none.
func policyOf(t *testing.T, clients *cli.Clients, name string) *v1alpha1.EvictionPolicy {
	t.Helper()
	object, err := clients.Dynamic.Resource(policyKind).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	var policy v1alpha1.EvictionPolicy
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &policy))
	return &policy
}

func TestPausesAndResumesAllEvictions(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, true, world(t)...)
	out, notes, err := runs(t, clients, "pause all")
	require.NoError(t, err)
	require.Equal(t, "evictionpolicy.tollgate.dev/stop-evictions created, all evictions are paused\n", out)
	require.Empty(t, notes)
	require.True(t, policyOf(t, clients, StopEvictions).Spec.Paused)

	out, _, err = runs(t, clients, "pause all")
	require.NoError(t, err)
	require.Equal(t, "evictionpolicy.tollgate.dev/stop-evictions paused already\n", out)

	out, notes, err = runs(t, clients, "resume all --dry-run=client")
	require.NoError(t, err)
	require.Equal(t, "evictionpolicy.tollgate.dev/stop-evictions deleted, evictions go on (dry run)\n", out)
	require.Equal(t, "EvictionPolicy stop-evictions pauses 12 pods; without the pause: 12 Held\n", unwrapped(notes))
	require.NotNil(t, policyOf(t, clients, StopEvictions))

	_, _, err = runs(t, clients, "resume all")
	require.EqualError(t, err, "nobody can be asked, since the input is no terminal: give --yes")
	out, _, err = runs(t, clients, "resume all --yes")
	require.NoError(t, err)
	require.Equal(t, "evictionpolicy.tollgate.dev/stop-evictions deleted, evictions go on\n", out)
	require.Nil(t, policyOf(t, clients, StopEvictions))
	_, _, err = runs(t, clients, "resume all --yes")
	require.EqualError(t, err, "evictions are not paused as a whole: there is no EvictionPolicy stop-evictions")
}

func TestPausesAndResumesOnePolicy(t *testing.T) {
	t.Parallel()
	gentle := `{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: gentle, uid: gentle}, spec: {priority: 5, taints: [{key: example.com/broken}], breaker: {maxPods: 9}}}`
	clients := clientsOf(t, true, append(world(t), gentle)...)
	out, _, err := runs(t, clients, "pause policy gentle --dry-run=client -o yaml")
	require.NoError(t, err)
	require.Contains(t, out, "  paused: true\n")
	require.False(t, policyOf(t, clients, "gentle").Spec.Paused, "a dry run writes nothing")
	out, _, err = runs(t, clients, "pause evpol gentle")
	require.NoError(t, err)
	require.Equal(t, "evictionpolicy.tollgate.dev/gentle paused\n", out)
	paused := policyOf(t, clients, "gentle").Spec
	require.True(t, paused.Paused)
	require.EqualValues(t, 5, paused.Priority, "the rest of the spec stays")

	out, notes, err := runs(t, clients, "resume policy gentle --yes")
	require.NoError(t, err)
	require.Equal(t, "evictionpolicy.tollgate.dev/gentle resumed\n", out)
	require.Equal(t, "EvictionPolicy gentle pauses 8 pods; without the pause: 8 Due\n", unwrapped(notes))
	require.False(t, policyOf(t, clients, "gentle").Spec.Paused)
	out, _, err = runs(t, clients, "resume policy gentle --yes")
	require.NoError(t, err)
	require.Equal(t, "evictionpolicy.tollgate.dev/gentle not paused\n", out)
}

// The manifest that users apply without the plugin is the policy that the plugin creates.
func TestTheSampleOfStoppedEvictionsIsWhatPauseCreates(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", "samples", "stop-evictions.yaml"))
	require.NoError(t, err)
	var sample v1alpha1.EvictionPolicy
	require.NoError(t, yaml.UnmarshalStrict(text, &sample))
	require.Equal(t, stopAll(), &sample)
}

func TestAPolicyOfTheUserIsNotTakenForThatOfPause(t *testing.T) {
	t.Parallel()
	const spec = `{priority: 2147483647, paused: true, method: Delete, mark: Before, taints: [{target: Node, key: "*"}, {key: "node.kubernetes.io/*"}, {key: "node.cloudprovider.kubernetes.io/*"}, {target: Device, key: "*"}]`
	const head = `{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: stop-evictions, uid: s}, spec: `
	for sentence, c := range map[string]struct {
		spec string
		ours bool
	}{
		"the one that the API server filled with defaults is": {spec + "}", true},
		"one that is not paused any more is too":              {strings.Replace(spec, "paused: true", "paused: false", 1) + "}", true},
		"one of lower priority is not":                        {strings.Replace(spec, "2147483647", "7", 1) + "}", false},
		"nor is one that selects fewer taints":                {strings.Replace(spec, `, {target: Device, key: "*"}`, "", 1) + "}", false},
		"nor one that selects more":                           {strings.Replace(spec, `{target: Device`, `{key: mine}, {target: Device`, 1) + "}", false},
		"nor one that selects some pods":                      {spec + ", podSelector: {matchLabels: {a: b}}}", false},
		"nor one with a breaker":                              {spec + ", breaker: {maxPods: 3}}", false},
	} {
		for _, line := range []string{"pause all", "resume all --yes", "resume policy stop-evictions --yes"} {
			t.Run(sentence+", by "+line, func(t *testing.T) {
				t.Parallel()
				clients := clientsOf(t, true, append(world(t), head+c.spec+"}")...)
				before := policyOf(t, clients, StopEvictions)
				_, _, err := runs(t, clients, line)
				after := policyOf(t, clients, StopEvictions)
				switch {
				case !c.ours:
					require.ErrorContains(t, err, "EvictionPolicy stop-evictions is not the one that pause creates")
					require.Equal(t, before, after)
				case line == "pause all":
					require.NoError(t, err)
					require.True(t, after.Spec.Paused)
				default:
					require.NoError(t, err)
					require.Nil(t, after, "without its pause it would decide about all evictions")
				}
			})
		}
	}
}

func TestSaysWhatAPauseDoesNotHold(t *testing.T) {
	t.Parallel()
	objects := world(t)
	for change, want := range map[string]string{
		`"tollgate.dev/eviction-mode":"Replace"→"tollgate.dev/eviction-mode":"Window"`:  "warning: the mode is Window: Kubernetes deletes the pods when their window ends, paused or not\n",
		`"tollgate.dev/eviction-mode":"Replace"→"tollgate.dev/eviction-mode":"Observe"`: "warning: the mode is Observe: Kubernetes evicts, and a pause holds no pod\n",
		`renewTime: "2026-03-01T12:00:00.000000Z"→renewTime: "2026-03-01T11:00:00.000000Z"`: "warning: no Tollgate leads at the moment (Lease tollgate-system/tollgate is not renewed): " +
			"what it evicts stays until one does\n",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			old, changed, _ := strings.Cut(change, "→")
			require.Contains(t, objects[0], old)
			clients := clientsOf(t, true, append([]string{strings.Replace(objects[0], old, changed, 1)}, objects[1:]...)...)
			_, notes, err := runs(t, clients, "pause all")
			require.NoError(t, err)
			require.Equal(t, want, unwrapped(notes))
		})
	}
	_, notes, err := runs(t, clientsOf(t, true, objects[1:]...), "pause policy default")
	require.NoError(t, err)
	require.Contains(t, unwrapped(notes), "warning: Tollgate does not run here")
}

func TestReleasesWhatABreakerHolds(t *testing.T) {
	t.Parallel()
	for line, pods := range map[string]int32{"release default --yes": 12, "release default --pods 3 --for 30m --yes": 3} {
		clients := clientsOf(t, true, world(t)...)
		out, notes, err := runs(t, clients, line)
		require.NoError(t, err)
		require.Regexp(t, `^evictionapproval\.tollgate\.dev/\S+ created\n$`, out)
		require.Contains(t, unwrapped(notes), "EvictionPolicy default: 12 pods held (web/")
		specs := created(t, clients)
		require.Len(t, specs, 1)
		require.Equal(t, "default", specs[0].EvictionPolicy)
		require.Equal(t, pods, specs[0].MaxPods)
		require.Zero(t, specs[0].Taint)
	}
}

func TestRefusesWhatItCannotPauseOrRelease(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"pause all default":            `cannot pause or resume "all default"`,
		"pause policy":                 `cannot pause or resume "policy"`,
		"pause pod web-0":              `cannot pause or resume "pod web-0"`,
		"pause policy nosuch":          `read EvictionPolicy nosuch: evictionpolicies.tollgate.dev "nosuch" not found`,
		"resume policy nosuch --yes":   `read EvictionPolicy nosuch: evictionpolicies.tollgate.dev "nosuch" not found`,
		"pause all -o wide":            `--output is "wide", want one of name, yaml, json`,
		"release nosuch --yes":         `evictionpolicies "nosuch" not found`,
		"release idle --yes":           "the breaker of EvictionPolicy idle holds no pod",
		"release default":              "nobody can be asked, since the input is no terminal: give --yes",
		"release default --pods -1":    "--pods is -1, want 1 or more, or 0 for the pods that are held",
		"release default --for 8760h":  "--for is 8760h0m0s, want more than 0s and at most 168h0m0s",
		"release default --dry-run=no": `--dry-run is "no", want one of none, client, server`,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			idle := `{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: idle, uid: idle}, spec: {taints: [{key: none}]}}`
			clients := clientsOf(t, true, append(world(t), idle)...)
			_, _, err := runs(t, clients, line)
			require.ErrorContains(t, err, want)
			require.Equal(t, cli.ExitError, cli.ExitCode(err))
			require.Empty(t, created(t, clients))
			require.Nil(t, policyOf(t, clients, StopEvictions))
		})
	}
	for _, line := range []string{"pause all", "resume all", "release default"} {
		_, _, err := runs(t, clientsOf(t, false), line)
		require.ErrorContains(t, err, "the API server does not serve Eviction")
	}
}

// The manual shows what they have.
func TestWritesAnOperationAsTheGoldenFilesHaveIt(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, true, world(t)...)
	for _, step := range []struct{ file, line string }{
		{"pause", "pause all"}, {"resume", "resume all --yes"}, {"release", "release default --pods 3 --dry-run=client"},
	} {
		out, notes, err := runs(t, clients, step.line)
		require.NoError(t, err)
		path := filepath.Join("testdata", step.file+".txt")
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(notes+out), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), notes+out)
	}
}

func TestAPauseNeedsNoRightToReadPods(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, true, world(t)...)
	clients.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("nothing may be listed")
	})
	_, _, err := runs(t, clients, "pause all")
	require.NoError(t, err)
	require.True(t, policyOf(t, clients, StopEvictions).Spec.Paused)
}

func TestAPauseDoesNotWaitForWhatItSays(t *testing.T) {
	t.Parallel()
	clients := clientsOf(t, true, world(t)...)
	clients.Kubernetes.(*fake.Clientset).PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
	})
	_, notes, err := runs(t, clients, "pause all")
	require.NoError(t, err)
	require.Contains(t, unwrapped(notes), "warning: it is not known whether Tollgate runs: read Lease tollgate-system/tollgate: Internal error occurred: etcd is slow")
	require.True(t, policyOf(t, clients, StopEvictions).Spec.Paused)
}

// Two breakers hold the same pods: each of them has to release the pods.
func TestReleasesThePodsOfTheSecondOfTwoBreakers(t *testing.T) {
	t.Parallel()
	second := `{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: zone, uid: zone}, spec: {priority: -1, taints: [{key: "*"}], breaker: {maxPods: 1, window: 10m, scope: Selected}}, status: {breaker: {tripped: "2026-03-01T11:55:00.000000Z"}}}`
	for _, policy := range []string{"default", "zone"} {
		clients := clientsOf(t, true, append(world(t), second)...)
		_, notes, err := runs(t, clients, "release "+policy+" --yes")
		require.NoError(t, err)
		other := map[string]string{"default": "zone", "zone": "default"}[policy]
		require.Contains(t, unwrapped(notes), "the breakers of "+other+" hold some of these pods too")
		require.Equal(t, policy, created(t, clients)[0].EvictionPolicy)
	}
}
