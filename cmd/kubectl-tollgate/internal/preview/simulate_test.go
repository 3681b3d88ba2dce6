package preview

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// writes runs the command on manifests.
func writes(t *testing.T, c *simulateCommand) (out, notes string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.Formats = []string{"text", "yaml", "json", "svg"}
	c.clock, c.in, c.out, c.notes = clocktesting.NewFakePassiveClock(noon), strings.NewReader(""), &stdout, &stderr
	if c.lasts == 0 {
		c.lasts = 24 * time.Hour
	}
	if err := c.complete(); err != nil {
		return "", "", err
	}
	err = c.run(t.Context())
	return stdout.String(), stderr.String(), err
}

// The manual shows the text.
func TestSimulateWritesWhatTheGoldenFilesHave(t *testing.T) {
	t.Parallel()
	for format, file := range map[string]string{"text": "rack.txt", "json": "rack.json", "svg": "rack.svg"} {
		c := &simulateCommand{files: []string{"testdata/rack"}, at: []string{"0s nodes rack=7 example.com/hot:NoExecute", "10m node n3 example.com/down:NoExecute"}}
		c.Format = format
		out, notes, err := writes(t, c)
		require.NoError(t, err)
		if format == "text" {
			out = notes + out
		}
		path := filepath.Join("testdata", file)
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(out), 0o600))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), out)
	}
}

func TestThePictureIsXMLAndEscapesNames(t *testing.T) {
	t.Parallel()
	d := &simulation{Steps: []stepDone{{Step: `node <script>"&`, Applied: true}}, Left: []left{{At: 3}}}
	out := d.draw()
	require.NotContains(t, out, "<script>")
	decoder := xml.NewDecoder(strings.NewReader(out))
	for {
		_, err := decoder.Token()
		if err == io.EOF { //nolint:errorlint // The decoder returns it as it is.
			break
		}
		require.NoError(t, err)
	}
}

// plays returns how many pods leave at which second, and the reasons for which pods are held at the end.
func plays(t *testing.T, manifests string, steps ...string) (gone map[string]float64, held map[string]string, d *simulation) {
	t.Helper()
	objects, err := cli.Parse("test", []byte(manifests))
	require.NoError(t, err)
	cluster, err := state.FromManifests(objects, noon)
	require.NoError(t, err)
	var parsed []step
	for _, text := range steps {
		s, err := parseStep(text)
		require.NoError(t, err)
		parsed = append(parsed, s)
	}
	d, err = play(t.Context(), cluster, parsed, 24*time.Hour, false)
	require.NoError(t, err)
	gone, held = map[string]float64{}, map[string]string{}
	for _, pod := range d.Left {
		gone[pod.Pod] = pod.At
	}
	for _, pod := range d.Held {
		held[pod.Pod] = pod.Reason
	}
	return gone, held, d
}

const (
	oneNode = "{apiVersion: v1, kind: Node, metadata: {name: n1}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: n2}}\n"
	down    = "0s node n1 example.com/down:NoExecute"
)

// podOf returns a pod on n1 with the label app.
func podOf(name, app, spec string) string {
	return "---\n{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", labels: {app: " + app + "}}, spec: {nodeName: n1" + spec + "}}\n"
}

func policyOf(name, spec string) string {
	return "---\n{apiVersion: tollgate.dev/v1alpha1, kind: EvictionPolicy, metadata: {name: " + name + `}, spec: {taints: [{key: "*"}], ` + spec + "}}\n"
}

func TestPodsLeaveAsInTheCluster(t *testing.T) {
	t.Parallel()
	three := podOf("a", "web", "") + podOf("b", "web", "") + podOf("c", "web", "")
	for sentence, c := range map[string]struct {
		manifests string
		steps     []string
		gone      map[string]float64
		held      map[string]string
	}{
		"without a policy all leave at once": {oneNode + three, []string{down}, map[string]float64{"a": 0, "b": 0, "c": 0}, nil},
		"a toleration counts from the end of the second of its taint": {
			oneNode + podOf("a", "web", ", tolerations: [{operator: Exists, tolerationSeconds: 60}]"),
			[]string{"30s node n1 example.com/down:NoExecute"},
			map[string]float64{"a": 91},
			nil,
		},
		"a taint that goes before the deadline evicts nobody": {
			oneNode + podOf("a", "web", ", tolerations: [{operator: Exists, tolerationSeconds: 60}]"), []string{down, "50s node n1 example.com/down-"}, nil, nil,
		},
		"a pace lets them go one after the other": {
			oneNode + three + policyOf("p", "pace: {podsPerSecond: 1, burst: 1}"), []string{down}, map[string]float64{"a": 0, "b": 1, "c": 2}, nil,
		},
		"a breaker holds what is too much": {
			oneNode + three + policyOf("p", "breaker: {maxPods: 1, window: 30h}"),
			[]string{down},
			map[string]float64{"a": 0},
			map[string]string{"b": "BreakerTripped", "c": "BreakerTripped"},
		},
		"and lets them go when all of them fit again": {
			oneNode + three + policyOf("p", "breaker: {maxPods: 2, window: 10m}"), []string{down}, map[string]float64{"a": 0, "b": 0, "c": 600}, nil,
		},
		"a pod that the breaker of one taint holds leaves because of another": {
			oneNode + podOf("a", "web", "") + podOf("b", "web", "") + strings.Replace(policyOf("p", "breaker: {maxPods: 1, window: 30h}"), "*", "example.com/p", 1) +
				strings.Replace(policyOf("q", "breaker: {maxPods: 1, window: 30h}"), "*", "example.com/q", 1),
			[]string{"0s node n1 example.com/p:NoExecute example.com/q:NoExecute"},
			map[string]float64{"a": 0, "b": 0},
			nil,
		},
		"pods that two breakers hold wait for room in both": {
			oneNode + three + podOf("d", "web", "") + strings.Replace(policyOf("p", "breaker: {maxPods: 1, window: 10m}"), "*", "example.com/p", 1) +
				strings.Replace(policyOf("q", "breaker: {maxPods: 1, window: 10m}"), "*", "example.com/q", 1),
			[]string{"0s node n1 example.com/p:NoExecute example.com/q:NoExecute"},
			map[string]float64{"a": 0, "b": 0},
			map[string]string{"c": "BreakerTripped", "d": "BreakerTripped"},
		},
		"a paused policy holds all, and a protected pod stays": {
			oneNode + three + podOf("d", "db", "") + policyOf("p", "paused: true, podSelector: {matchLabels: {app: web}}") +
				policyOf("q", "protect: {podSelector: {matchLabels: {app: db}}}, podSelector: {matchLabels: {app: db}}"),
			[]string{down},
			nil,
			map[string]string{"a": "Paused", "b": "Paused", "c": "Paused", "d": "Protected"},
		},
		"a budget lets as many go as it allows, and deleteAfter the rest": {
			oneNode + three + policyOf("p", "method: Evict, deleteAfter: 5m") +
				"---\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}}\n",
			[]string{down},
			map[string]float64{"a": 0, "b": 300, "c": 300},
			nil,
		},
		"a budget without deleteAfter holds for ever": {
			oneNode + three + policyOf("p", "method: Evict") +
				"---\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 100%, selector: {matchLabels: {app: web}}}}\n",
			[]string{down},
			nil,
			map[string]string{"a": "BudgetExceeded", "b": "BudgetExceeded", "c": "BudgetExceeded"},
		},
		"while all nodes are down nobody leaves, and the time starts again with the first that is back": {
			oneNode + podOf("a", "web", ", tolerations: [{operator: Exists, tolerationSeconds: 60}]"),
			[]string{
				"0s node n1 n2 node.kubernetes.io/unreachable:NoExecute", "10m node n2 node.kubernetes.io/unreachable-", "11m node n1 node.kubernetes.io/unreachable-",
			},
			nil, nil,
		},
		"a limit of a TaintPolicy refuses the taint": {
			oneNode + three + "---\n{apiVersion: tollgate.dev/v1alpha1, kind: TaintPolicy, metadata: {name: few}, spec: {taints: [{key: \"*\"}], limits: {maxAffectedPods: 2, window: 10m}}}\n",
			[]string{down},
			nil, nil,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			gone, held, d := plays(t, c.manifests, c.steps...)
			if c.gone == nil {
				c.gone = map[string]float64{}
			}
			if c.held == nil {
				c.held = map[string]string{}
			}
			require.Equal(t, c.gone, gone, "%+v", d)
			require.Equal(t, c.held, held)
		})
	}
}

func TestTheLimitOfATaintPolicyIsForced(t *testing.T) {
	t.Parallel()
	manifests := filepath.Join(t.TempDir(), "all.yaml")
	require.NoError(t, os.WriteFile(manifests, []byte(oneNode+podOf("a", "web", "")+podOf("b", "web", "")+
		"---\n{apiVersion: tollgate.dev/v1alpha1, kind: TaintPolicy, metadata: {name: few}, spec: {taints: [{key: \"*\"}], limits: {maxAffectedPods: 1, window: 10m}}}\n"), 0o600))
	out, _, err := writes(t, &simulateCommand{files: []string{manifests}, at: []string{down}, Output: cli.Output{Format: "text"}})
	require.NoError(t, err)
	require.Contains(t, out, "refused: TaintPolicy/few")
	require.Contains(t, out, "No pod leaves.\n")
	out, _, err = writes(t, &simulateCommand{files: []string{manifests}, at: []string{down}, force: true, Output: cli.Output{Format: "text"}})
	require.NoError(t, err)
	require.Contains(t, out, "refused: TaintPolicy/few")
	require.Contains(t, out, "2 pods leave, the last at +0s.\n")
}

// usedDevice is a node with a pod that uses a device, and tolerates its taints for a minute.
var usedDevice = oneNode + "---\n{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: d.example.com, nodeName: n1, pool: {name: n1, resourceSliceCount: 1}, devices: [{name: gpu-0}]}}\n" +
	"---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, namespace: default}, status: {allocation: {devices: {results: [{request: r, driver: d.example.com, pool: n1, device: gpu-0, tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 60}]}]}}, reservedFor: [{resource: pods, name: a, uid: Pod//a}]}}\n" +
	podOf("a", "web", ", resourceClaims: [{name: c, resourceClaimName: c}]")

func TestTaintsOfDevicesComeAndGo(t *testing.T) {
	t.Parallel()
	gone, _, _ := plays(t, usedDevice, "0s device d.example.com/n1/gpu-0 broken:NoExecute")
	require.Equal(t, map[string]float64{"a": 61}, gone)
	gone, _, _ = plays(t, usedDevice, "0s device d.example.com/n1 broken:NoExecute", "30s device d.example.com/n1 broken-")
	require.Empty(t, gone)
}

func TestAStepThatChangesATaintOfDevicesIsJudgedAsAChange(t *testing.T) {
	t.Parallel()
	limited := usedDevice + "---\n{apiVersion: tollgate.dev/v1alpha1, kind: TaintPolicy, metadata: {name: looks}, spec: {taints: [{target: Device, key: \"*\"}], limits: {requirePreview: true}}}\n"
	gone, _, d := plays(t, limited, "0s device d.example.com/n1/gpu-0 broken:NoExecute")
	require.Empty(t, gone)
	require.Len(t, d.Steps[0].Refused, 1)
	require.Contains(t, d.Steps[0].Refused[0], "write it with effect None")
	gone, _, d = plays(t, limited, "0s device d.example.com/n1/gpu-0 broken:None", "10s device d.example.com/n1/gpu-0 broken:NoExecute")
	require.Empty(t, d.Steps[1].Refused)
	require.Equal(t, map[string]float64{"a": 71}, gone)
}

func TestNamesWhatIsWrongWithAStep(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0s":                                      "or TIME node NAME... TAINT",
		"soon node n1 a:NoExecute":                `the time is "soon", want a duration from 0s on`,
		"-3s node n1 a:NoExecute":                 `the time is "-3s"`,
		"0s pod n1 a:NoExecute":                   `"pod" is no kind of object`,
		"0s node a:NoExecute b:NoExecute":         "or TIME node NAME... TAINT",
		"0s node n1 a:NoRun":                      `taint "a:NoRun": effect is "NoRun"`,
		"0s nodes a=!b a:NoExecute":               "step \"0s nodes a=!b a:NoExecute\"",
		"0s device d.example.com/*/x a:NoExecute": "there are no wildcards",
		"0s device d.example.com a:None-":         `to remove it, want KEY- alone`,
	} {
		_, err := parseStep(text)
		require.ErrorContains(t, err, want, text)
	}
	_, err := readSteps("rack.txt", strings.NewReader("# first\n\n0s node n1 a:NoExecute # it fails\n1s node\n"))
	require.ErrorContains(t, err, "rack.txt:4: step \"1s node\"")
}

func TestSaysWhatCannotBePlayed(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]*simulateCommand{
		"nothing to play: give --at STEP or --timeline FILE":               {},
		"--for is -1s, want more than 0s":                                  {lasts: -time.Second, at: []string{down}},
		`step "node n9 a:NoExecute": there is no such node`:                {files: []string{"testdata/rack"}, at: []string{"0s node n9 a:NoExecute"}},
		`no earlier step gave taint a to device d.example.com`:             {files: []string{"testdata/rack"}, at: []string{"0s device d.example.com a-"}},
		`device "d.example.com": no ResourceSlice publishes such a device`: {files: []string{"testdata/rack"}, at: []string{"0s device d.example.com a:NoExecute"}},
		"read --timeline: open nosuch: no such file or directory":          {timeline: "nosuch"},
		"read manifests: stat nosuch: no such file or directory":           {files: []string{"nosuch"}, at: []string{down}},
	} {
		c.Format = "text"
		_, _, err := writes(t, c)
		require.ErrorContains(t, err, want)
	}
}
