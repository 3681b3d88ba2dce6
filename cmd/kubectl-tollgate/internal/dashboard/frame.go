package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/operate"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// frame is what the page shows at one time. It is read-only.
type frame struct {
	now time.Time
	// sections are the parts of the page by name, and pods the rows of its list by namespace, name and
	// UID, as JSON.
	sections, pods map[string]json.RawMessage
	// shown has the same parts, to check commands.
	shown sections
}

// sections are the parts of the page besides the list of pods.
type sections struct {
	Status   *operate.Status
	Nodes    []tainted
	Devices  []tainted
	Policies []policy
	Budgets  []budget
	Taints   []progress
	// Hidden are the numbers of nodes and of devices without room on the page.
	Hidden hidden
}

type hidden struct {
	Nodes   int `json:"nodes"`
	Devices int `json:"devices"`
}

// tainted is a node or a device.
type tainted struct {
	Name   string   `json:"name"`
	Taints []string `json:"taints,omitempty"`
	// Effect is the strongest effect of the taints, empty for none.
	Effect corev1.TaintEffect `json:"effect,omitempty"`
	// Pods is the number of pods that have to leave.
	Pods int `json:"pods,omitempty"`
}

// policy is an EvictionPolicy.
type policy struct {
	Name     string `json:"name"`
	Priority int32  `json:"priority"`
	Paused   bool   `json:"paused,omitempty"`
	Held     int32  `json:"held"`
	// Pace and Breaker describe the limits, empty for none. Used is the number of pods that the
	// breaker counts, and Tripped the time at which it tripped.
	Pace    string `json:"pace,omitempty"`
	Breaker string `json:"breaker,omitempty"`
	Used    int32  `json:"used,omitempty"`
	Tripped int64  `json:"tripped,omitempty"`
	// Breaks is the number of pods that the breaker holds.
	Breaks int `json:"breaks,omitempty"`
}

// budget is a PodDisruptionBudget that guards pods that have to leave.
type budget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Allowed   int32  `json:"allowed"`
	Pods      int    `json:"pods"`
}

// progress is what the taints of one object have done.
type progress struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Pods are the numbers of pods by state. Gone counts since the page is served.
	Pods map[evictions.State]int `json:"pods"`
	// Breaks is the number of pods that breakers hold.
	Breaks int `json:"breaks,omitempty"`
}

// pod is a pod that has to leave. Times are in milliseconds since 1970.
type pod struct {
	Key       string          `json:"key"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Node      string          `json:"node"`
	State     evictions.State `json:"state"`
	Due       int64           `json:"due"`
	Until     int64           `json:"until,omitempty"`
	Reason    string          `json:"reason"`
}

const (
	// mostCells is the maximum number of nodes, and of devices, on the page.
	mostCells = 5000
	// mostRows is the maximum number of taints, and of budgets, on the page.
	mostRows = 200
)

// frameOf returns the frame of a list of evictions.
func frameOf(at *evictions.Frame, objects *operate.Objects) (*frame, error) {
	found := at.Cluster
	pods := map[string]int{}
	f := &frame{now: at.Now, sections: map[string]json.RawMessage{}, pods: make(map[string]json.RawMessage, len(at.List))}
	for i := range at.List {
		e := &at.List[i]
		pods[e.Node]++
		row := pod{
			Key: e.String() + "/" + string(e.UID), Namespace: e.Namespace, Name: e.Name, Node: e.Node, State: e.State,
			Due: e.At.UnixMilli(), Reason: e.Reason(),
		}
		if until := e.Hold.Until; !until.IsZero() {
			row.Until = until.UnixMilli()
		}
		text, err := json.Marshal(row)
		if err != nil {
			return nil, fmt.Errorf("encode pod %s: %w", e, err)
		}
		f.pods[row.Key] = text
	}
	s := &f.shown
	s.Status = operate.StatusOf(found, objects, at.List, at.Now)
	for _, lack := range at.Lacks {
		if !slices.Contains(s.Status.Missing, lack) && !slices.Contains(s.Status.Attention, lack) {
			s.Status.Missing = append(s.Status.Missing, lack)
		}
	}
	s.Nodes, s.Hidden.Nodes = fitting(nodes(found, pods))
	s.Devices, s.Hidden.Devices = fitting(devices(found.Tracker))
	s.Policies, s.Budgets, s.Taints = policies(found, at.Now), budgets(found, at.List), taints(at.Log)
	s.countBreaks(at.List)
	for name, section := range map[string]any{
		"status": s.Status, "nodes": s.Nodes, "devices": s.Devices, "policies": s.Policies, "budgets": s.Budgets, "taints": s.Taints, "hidden": s.Hidden,
	} {
		text, err := json.Marshal(section)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		f.sections[name] = text
	}
	return f, nil
}

func nodes(found *state.Cluster, pods map[string]int) []tainted {
	var all []tainted
	for _, node := range found.Tracker.Nodes() {
		n := tainted{Name: node.Name, Pods: pods[node.Name]}
		for _, taint := range node.Written {
			n.add(taint.ToString(), taint.Effect)
		}
		all = append(all, n)
	}
	return all
}

// devices returns the published devices.
func devices(from *tracker.Tracker) []tainted {
	ids := from.Devices(device.Selector{})
	all := make([]tainted, 0, len(ids))
	for _, id := range ids {
		d := tainted{Name: id.String()}
		for _, taint := range from.DeviceTaints(id) {
			d.add(taint.String(), taint.Effect)
		}
		if d.Effect != "" {
			d.Pods = len(from.PodsUsing(id))
		}
		all = append(all, d)
	}
	return all
}

// fitting returns the nodes or devices that the page has room for, and the number of the others. Those
// without taints are left out first.
func fitting(all []tainted) (shown []tainted, others int) {
	if len(all) <= mostCells {
		return all, 0
	}
	for _, t := range all {
		if t.Effect != "" && len(shown) < mostCells {
			shown = append(shown, t)
		}
	}
	return shown, len(all) - len(shown)
}

// countBreaks counts the pods that breakers hold.
func (s *sections) countBreaks(list []evictions.Eviction) {
	for i := range list {
		e := &list[i]
		if e.Hold.Reason != checks.BreakerTripped {
			continue
		}
		for _, holding := range e.Way.Breakers {
			if at := slices.IndexFunc(s.Policies, func(p policy) bool { return p.Name == holding.Name && p.Tripped > 0 }); at >= 0 {
				s.Policies[at].Breaks++
			}
		}
		source := e.Because[0].Taint.Author()
		if at := slices.IndexFunc(s.Taints, func(p progress) bool { return p.Kind == evictions.ShortKinds[source.Kind] && p.Name == source.Name }); at >= 0 {
			s.Taints[at].Breaks++
		}
	}
}

// effects are the effects of taints, the strongest last.
var effects = []corev1.TaintEffect{"", "None", corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}

// add adds a taint.
func (t *tainted) add(text string, effect corev1.TaintEffect) {
	t.Taints = append(t.Taints, text)
	if slices.Index(effects, effect) > slices.Index(effects, t.Effect) {
		t.Effect = effect
	}
}

func policies(found *state.Cluster, now time.Time) []policy {
	var all []policy
	for i := range found.EvictionPolicies {
		of := &found.EvictionPolicies[i]
		p := policy{Name: of.Name, Priority: of.Spec.Priority, Paused: of.Spec.Paused, Held: of.Status.Held}
		if pace := of.Spec.Pace; pace != nil {
			p.Pace = cli.Counted(int(pace.PodsPerSecond), "pod") + "/s"
		}
		if breaker := of.Spec.Breaker; breaker != nil {
			var limits []string
			if breaker.MaxPods != nil {
				limits = append(limits, cli.Counted(int(*breaker.MaxPods), "pod"))
			}
			if breaker.MaxPercent != nil {
				limits = append(limits, strconv.Itoa(int(*breaker.MaxPercent))+" %")
			}
			p.Breaker = strings.Join(limits, " or ") + " in " + duration.HumanDuration(breaker.Window.Duration)
			if count := of.Status.Breaker; count != nil {
				for _, grant := range count.Granted {
					if grant.Until.Add(breaker.Window.Duration).After(now) {
						p.Used += grant.Pods
					}
				}
				if count.Tripped != nil {
					p.Tripped = count.Tripped.UnixMilli()
				}
			}
		}
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(a, b policy) int { return cmp.Compare(b.Priority, a.Priority) })
	return all
}

// budgets returns the PodDisruptionBudgets that guard the pods of a list, those that allow the fewest
// disruptions first.
func budgets(found *state.Cluster, list []evictions.Eviction) []budget {
	guarded := map[[2]string]*budget{} // by namespace and name
	for i := range list {
		e := &list[i]
		guards := found.Tracker.Budgets(e.Namespace)
		if len(guards) == 0 {
			continue
		}
		situation, ok := found.Tracker.Lookup(e.Key)
		if !ok {
			continue
		}
		for _, of := range guards {
			if !of.Guards(&situation.Pod) {
				continue
			}
			k := [2]string{of.Namespace, of.Name}
			if guarded[k] == nil {
				guarded[k] = &budget{Namespace: of.Namespace, Name: of.Name, Allowed: of.Allowed}
			}
			guarded[k].Pods++
		}
	}
	var all []budget
	for _, b := range guarded {
		all = append(all, *b)
	}
	slices.SortFunc(all, func(a, b budget) int {
		return cmp.Or(cmp.Compare(a.Allowed, b.Allowed), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), mostRows)]
}

// taints returns the objects with taints, those whose pods are all gone last.
func taints(log *evictions.Log) []progress {
	var open, done []progress
	for _, group := range log.Groups() {
		p := progress{Kind: evictions.ShortKinds[group.Source.Kind], Name: group.Source.Name, Pods: group.Pods}
		if len(p.Pods) == 1 && p.Pods[evictions.Gone] > 0 {
			done = append(done, p)
		} else {
			open = append(open, p)
		}
	}
	all := slices.Concat(open, done)
	return all[:min(len(all), mostRows)]
}

// update is what changed between two frames.
type update struct {
	Now      int64                      `json:"now"`
	Sections map[string]json.RawMessage `json:"sections,omitempty"`
	Pods     []json.RawMessage          `json:"pods,omitempty"`
	Gone     []string                   `json:"gone,omitempty"`
}

// since returns what changed since another frame, nil for everything.
func (f *frame) since(before *frame) update {
	if before == nil {
		before = &frame{}
	}
	u := update{Now: f.now.UnixMilli(), Sections: map[string]json.RawMessage{}}
	for name, text := range f.sections {
		if !bytes.Equal(text, before.sections[name]) {
			u.Sections[name] = text
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.pods)) {
		if !bytes.Equal(f.pods[key], before.pods[key]) {
			u.Pods = append(u.Pods, f.pods[key])
		}
	}
	for key := range before.pods {
		if _, still := f.pods[key]; !still {
			u.Gone = append(u.Gone, key)
		}
	}
	slices.Sort(u.Gone)
	return u
}

// frames has the current frame. It is safe for concurrent use.
type frames struct {
	mu      sync.Mutex
	current *frame
	changed chan struct{}
}

func newFrames() *frames { return &frames{changed: make(chan struct{})} }

// publish replaces the current frame.
func (f *frames) publish(next *frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = next
	close(f.changed)
	f.changed = make(chan struct{})
}

// get returns the current frame, nil for none yet, and a channel that is closed when there is another
// one.
func (f *frames) get() (*frame, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, f.changed
}
