package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// simulation is a timeline that is simulated, and then played on the control plane.
type simulation struct {
	// before are manifests that are applied first.
	before string
	// steps are those of the timeline.
	steps []string
	// left are the pods that leave, with the seconds after the beginning; held are those that are held at
	// the end, with the reason; and refused says that TaintPolicies refuse the steps.
	left    map[string]int
	held    map[string]string
	refused bool
	// alike says that the pods are alike: which of them leave is not defined, how many leave and when is.
	alike bool
}

// simulations are the timelines in which nodes are tainted.
var simulations = map[string]simulation{
	"pods leave by their tolerations": {
		before: podOn("none", "", "") + podOn("short", forSeconds(4), "") + podOn("long", forSeconds(9), "") + podOn("ever", forever, ""),
		steps:  []string{"0s node NODE KEY:NoExecute"},
		left:   map[string]int{"none": 0, "short": 4, "long": 9},
	},
	// The times are so far apart that the order holds on a slow machine.
	"a taint that goes in time evicts no pod": {
		before: podOn("short", forSeconds(3), "") + podOn("long", forSeconds(58), ""),
		steps:  []string{"0s node NODE KEY:NoExecute", "35s node NODE KEY:NoExecute-"},
		left:   map[string]int{"short": 3},
	},
	"a later taint that is not tolerated comes first": {
		before: podOn("one", forSeconds(15), "") + podOn("both", forSeconds(8)+", {key: KEY2, operator: Exists}", ""),
		steps:  []string{"0s node NODE KEY:NoExecute", "3s node NODE KEY2:NoExecute"},
		left:   map[string]int{"one": 3, "both": 8},
	},
	"a pace spreads them": {
		before: podOn("a", "", "") + podOn("b", "", "") + podOn("c", "", "") + podOn("d", "", "") + evicting("pace: {podsPerSecond: 1, burst: 1}"),
		steps:  []string{"0s node NODE KEY:NoExecute"},
		left:   map[string]int{"a": 0, "b": 1, "c": 2, "d": 3}, alike: true,
	},
	"a breaker holds the rest": {
		before: podOn("a", "", "") + podOn("b", "", "") + podOn("c", "", "") + evicting("breaker: {maxPods: 2, window: 10m}"),
		steps:  []string{"0s node NODE KEY:NoExecute"},
		left:   map[string]int{"a": 0, "b": 0}, held: map[string]string{"c": "BreakerTripped"}, alike: true,
	},
	// Each breaker has room for one pod after its window, which is over long before the last step.
	"pods that two breakers hold wait for room in both": {
		before: podOn("a", "", "") + podOn("b", "", "") + podOn("c", "", "") + podOn("d", "", "") + evicting("breaker: {maxPods: 1, window: 10s}") +
			strings.Replace(second("breaker: {maxPods: 1, window: 10s}"), "KEY", "KEY2", 1),
		steps: []string{"0s node NODE KEY:NoExecute KEY2:NoExecute", "50s node NODE KEY3:NoSchedule"},
		left:  map[string]int{"a": 0, "b": 0}, held: map[string]string{"c": "BreakerTripped", "d": "BreakerTripped"}, alike: true,
	},
	"a paused policy holds pods, and another protects some": {
		before: podOn("held", "", "") + podOn("safe", "", ", labels: {stays: 'true'}") + evicting("paused: true") +
			second("podSelector: {matchLabels: {stays: 'true'}}", "priority: 1", "protect: {podSelector: {matchLabels: {stays: 'true'}}}"),
		steps: []string{"0s node NODE KEY:NoExecute"},
		held:  map[string]string{"held": "Paused", "safe": "Protected"},
	},
	"the policy of the highest priority decides": {
		before: podOn("web", "", ", labels: {app: web}") + podOn("other", "", "") +
			evicting("paused: true", "podSelector: {matchLabels: {app: web}}", "priority: 10") +
			second("priority: 1"),
		steps: []string{"0s node NODE KEY:NoExecute"},
		left:  map[string]int{"other": 0}, held: map[string]string{"web": "Paused"},
	},
	"a budget lets one pod go": {
		before: guardedPods + evicting("method: Evict"),
		steps:  []string{"0s node NODE KEY:NoExecute"},
		left:   map[string]int{"a": 0}, held: map[string]string{"b": "BudgetExceeded", "c": "BudgetExceeded"}, alike: true,
	},
	"and holds the others until deleteAfter": {
		before: guardedPods + evicting("method: Evict", "deleteAfter: 6s"),
		steps:  []string{"0s node NODE KEY:NoExecute"},
		left:   map[string]int{"a": 0, "b": 6, "c": 6}, alike: true,
	},
	"a taint beyond the limit of a TaintPolicy is refused": {
		before: podOn("a", "", "") + podOn("b", "", "") + `
---
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: NS}
spec:
  taints: [{key: KEY}]
  setters: [{subjects: [{kind: Group, name: "system:authenticated"}]}]
  limits: {maxAffectedPods: 1, window: 10m}`,
		steps: []string{"0s node NODE KEY:NoExecute"}, refused: true,
	},
}

// onSimulatedDevices are the timelines in which devices are tainted.
var onSimulatedDevices = map[string]simulation{
	"a device takes the pod that uses it, and the taint that goes spares another": {
		before: devicesOf + userOf("a", "a", "") + userOf("b", "b", forSeconds(55)) + userOf("c", "c", ""),
		steps:  []string{"0s device DRIVER/pool/a KEY:NoExecute", "2s device DRIVER/pool/b KEY:NoExecute", "6s device DRIVER/pool/b KEY-"},
		left:   map[string]int{"a": 0},
	},
}

// guardedPods are three pods, of which a budget lets one go.
var guardedPods = podOn("a", "", ", labels: {app: web}") + podOn("b", "", ", labels: {app: web}") + podOn("c", "", ", labels: {app: web}") + `
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: NS}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}`

// evicting is an EvictionPolicy about the taint.
func evicting(lines ...string) string {
	return "\n---\napiVersion: tollgate.dev/v1alpha1\nkind: EvictionPolicy\nmetadata: {name: NS}\nspec:\n  taints: [{key: KEY}]\n  " + strings.Join(lines, "\n  ")
}

// second is another EvictionPolicy about it.
func second(lines ...string) string {
	return strings.Replace(evicting(lines...), "name: NS", "name: NS-second", 1)
}

// A simulation says which pods leave and when, and which are held and why, as it then happens.
func TestWhatIsSimulatedHappens(t *testing.T) {
	t.Parallel()
	node := nodeOfDevices + len(onNodes)
	for sentence, c := range simulations {
		node++
		s := newPreviewSite(t, controlplane.NodeName(node))
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c.play(t, s)
		})
	}
	for sentence, c := range onSimulatedDevices {
		s := newPreviewSite(t, deviceNode)
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c.play(t, s)
		})
	}
}

// play simulates the timeline, plays it, and compares both with what is wanted.
func (c *simulation) play(t *testing.T, s *previewSite) {
	t.Helper()
	kubectl(t, "create", "-f", s.file(t, c.before))
	s.waitRun(t)
	for _, kind := range []string{"evictionpolicies", "taintpolicies"} {
		for name := range strings.FieldsSeq(kubectl(t, "get", kind, "-o", "name")) {
			if strings.Contains(name, "/"+s.namespace) {
				kubectl(t, "wait", name, "--for=condition=Ready", "--timeout=2m")
			}
		}
	}
	if strings.Contains(c.before, "PodDisruptionBudget") {
		kubectl(t, "wait", "-n", s.namespace, "poddisruptionbudget/web", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=2m")
	}
	c.requireSimulated(t, s)

	begin := time.Now()
	gone := s.departures(t)
	for _, step := range c.steps {
		c.take(t, s, begin, s.fill(step))
	}
	eventually(t, "all who were to leave have left", func(context.Context) error {
		if left := gone(); len(left) < len(c.left) {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
	eventually(t, "the others are held for the simulated reasons", func(ctx context.Context) error {
		held, err := s.held(ctx)
		if err == nil && !c.same(held, c.held) {
			err = fmt.Errorf("held: %v", held)
		}
		return err
	})
	time.Sleep(settling)
	seconds := map[string]float64{}
	for name, at := range gone() {
		seconds[name] = at.Sub(begin).Seconds()
	}
	c.requireLeft(t, seconds, slack)
}

// simulated is what is read of a simulation.
type simulated struct {
	Steps []struct {
		Applied bool     `json:"applied"`
		Refused []string `json:"refused"`
	} `json:"steps"`
	Left []simulatedPod `json:"left"`
	Held []simulatedPod `json:"held"`
}

type simulatedPod struct {
	Namespace string  `json:"namespace"`
	Pod       string  `json:"pod"`
	At        float64 `json:"at"`
	Reason    string  `json:"reason"`
}

// requireSimulated fails unless the command simulates what is wanted.
func (c *simulation) requireSimulated(t *testing.T, s *previewSite) {
	t.Helper()
	arguments := []string{"simulate", "--for", "1m"}
	for _, step := range c.steps {
		arguments = append(arguments, "--at", s.fill(step))
	}
	out, notes, err := tollgate(t, append(arguments, "-o", "json")...)
	require.NoError(t, err, notes)
	t.Logf("%s\n%s", strings.Join(arguments, " "), out)
	var played simulated
	require.NoError(t, json.Unmarshal([]byte(out), &played))
	for _, step := range played.Steps {
		require.Equal(t, !c.refused, step.Applied, step.Refused)
		require.Equal(t, c.refused, len(step.Refused) > 0)
	}
	left, held := map[string]float64{}, map[string]string{}
	for _, pod := range played.Left {
		if pod.Namespace == s.namespace {
			left[pod.Pod] = pod.At
		}
	}
	for _, pod := range played.Held {
		if pod.Namespace == s.namespace {
			held[pod.Pod] = pod.Reason
		}
	}
	require.True(t, c.same(held, c.held), "held: %v, want %v", held, c.held)
	c.requireLeft(t, left, 0)
}

// same reports whether pods are held for the wanted reasons.
func (c *simulation) same(held, want map[string]string) bool {
	if c.alike {
		return slices.Equal(slices.Sorted(maps.Values(held)), slices.Sorted(maps.Values(want)))
	}
	return maps.Equal(held, want)
}

// requireLeft fails unless the wanted pods leave in time, at most late later. A time of a taint has no
// fraction of a second, and stands for the end of its second.
func (c *simulation) requireLeft(t *testing.T, left map[string]float64, late time.Duration) {
	t.Helper()
	require.Len(t, left, len(c.left), "left: %v, want %v", left, c.left)
	inTime := func(got float64, want int, name string) {
		require.InDelta(t, float64(want)+late.Seconds()/2, got, 1.2+late.Seconds()/2, "%s left after %f s", name, got)
	}
	if c.alike {
		got, want := slices.Sorted(maps.Values(left)), slices.Sorted(maps.Values(c.left))
		for i := range want {
			inTime(got[i], want[i], "pod "+strconv.Itoa(i))
		}
		return
	}
	for name, want := range c.left {
		require.Contains(t, left, name)
		inTime(left[name], want, name)
	}
}

// take takes a step when its time has come.
func (c *simulation) take(t *testing.T, s *previewSite, begin time.Time, step string) {
	t.Helper()
	words := strings.Fields(step)
	after, err := time.ParseDuration(words[0])
	require.NoError(t, err)
	select {
	case <-time.After(time.Until(begin.Add(after))):
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
	taint, removed := strings.CutSuffix(words[3], "-")
	switch {
	case c.refused:
		out, err := install.Kubectl(t.Context(), shared, "taint", "node", words[2], words[3])
		require.Error(t, err)
		require.Contains(t, string(out), "TaintPolicy/"+s.namespace)
	case words[1] == "node":
		kubectl(t, append([]string{"taint", "node"}, words[2:]...)...)
	case removed:
		_, notes, err := tollgate(t, "untaint", "device", words[2], taint, "--yes")
		require.NoError(t, err, notes)
	default:
		_, notes, err := tollgate(t, "taint", "device", words[2], words[3], "--yes")
		require.NoError(t, err, notes)
	}
}

// departures returns a function that returns when pods have left, by name, as far as they have.
func (s *previewSite) departures(t *testing.T) func() map[string]time.Time {
	t.Helper()
	before, err := s.alive(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	asked := make(chan chan map[string]time.Time)
	go func() {
		left := map[string]time.Time{}
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case answer := <-asked:
				answer <- maps.Clone(left)
			case <-tick.C:
				alive, err := s.alive(ctx)
				if err != nil {
					continue
				}
				for name := range before {
					if _, known := left[name]; !known && !alive[name] {
						left[name] = time.Now()
					}
				}
			}
		}
	}()
	return func() map[string]time.Time {
		answer := make(chan map[string]time.Time)
		asked <- answer
		return <-answer
	}
}

// held returns the reasons for which pods of the namespace are held, by name.
func (s *previewSite) held(ctx context.Context) (map[string]string, error) {
	of := &evictionSite{namespace: s.namespace, node: s.node}
	rows, err := of.rows(ctx, "")
	held := map[string]string{}
	for name := range rows {
		if reason := rows[name].Hold.Reason; reason != "" {
			held[name] = reason
		}
	}
	return held, err
}
