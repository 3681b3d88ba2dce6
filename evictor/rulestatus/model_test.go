package rulestatus

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// model is what a world has been told, and what must follow, recounted from nothing
// each time.
type model struct {
	*world

	random *rand.Rand
	pods   map[tracker.Key]bool // true when the pod tolerates the taint for ever
	next   int
	// changed is when each generation of each rule came to be.
	changed map[string]time.Time
	// gone counts evicted pods of each rule that exists.
	gone map[string]int
}

func TestModel(t *testing.T) {
	t.Parallel()
	for range 12 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				m := &model{
					world: w, random: rand.New(rand.NewPCG(seed, 0)),
					pods: map[tracker.Key]bool{}, changed: map[string]time.Time{}, gone: map[string]int{},
				}
				w.start()
				for range 20 {
					for range 15 {
						m.operate()
						m.pass(time.Duration(m.random.IntN(6000)) * time.Millisecond)
					}
					m.pass(2*previewPause + time.Second)
					m.check()
				}
				m.checkLog()
			})
		})
	}
}

// operate does one thing. What the evictor would tell the controller, it tells, and
// what nobody tells, it does not.
func (m *model) operate() {
	names := []string{"one", "two"}
	name := names[m.random.IntN(len(names))]
	effects := []resourcev1.DeviceTaintEffect{noExecute, noExecute, noExecute, none, none, noSchedule}
	switch m.random.IntN(8) {
	case 0, 1:
		m.next++
		forEver := m.random.IntN(4) == 0
		var tolerations []resourcev1.DeviceToleration
		if forEver {
			tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
		}
		key := m.pod(fmt.Sprintf("namespace-%d", m.random.IntN(3)), fmt.Sprintf("pod-%04d", m.next), tolerations...)
		m.pods[key] = forEver
		m.pending(names...)
	case 2:
		for _, key := range m.sorted() {
			if forEver := m.pods[key]; m.selects(name, key) && m.effect(name) == noExecute && !forEver {
				m.evict(name, key)
				m.gone[name]++
				delete(m.pods, key)
				break
			}
		}
	case 3:
		if keys := m.sorted(); len(keys) > 0 {
			key := keys[m.random.IntN(len(keys))]
			m.tracker.DeletePod(key)
			delete(m.pods, key)
		}
	case 4, 5:
		m.change(name, func(rule *resourcev1.DeviceTaintRule) {
			rule.Spec.Taint.Effect = effects[m.random.IntN(len(effects))]
			rule.Spec.Taint.Value = fmt.Sprintf("change-%d", m.next)
			rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
			if m.random.IntN(3) == 0 {
				rule.Spec.DeviceSelector.Device = new(fmt.Sprintf("namespace-0-pod-%04d", m.random.IntN(m.next+1)))
			}
		})
		m.toldAtOnce(name)
	case 6:
		if m.rule(name) != nil && m.random.IntN(3) == 0 {
			m.deleteRule(name)
			delete(m.gone, name)
		}
	case 7:
		if m.random.IntN(3) == 0 {
			m.pass(writePause + time.Second)
			m.restart()
		}
	}
}

// sorted returns the pods in an order that a seed repeats.
func (m *model) sorted() []tracker.Key {
	return slices.SortedFunc(maps.Keys(m.pods), func(a, b tracker.Key) int { return cmp.Compare(a.Name, b.Name) })
}

// toldAtOnce requires that the status tells of a change in the moment it is made.
func (m *model) toldAtOnce(name string) {
	m.t.Helper()
	rule := m.rule(name)
	m.changed[fmt.Sprintf("%s %d", rule.UID, rule.Generation)] = time.Now()
	c := m.condition(name, resourcev1.DeviceTaintConditionEvictionInProgress)
	require.Equal(m.t, rule.Generation, c.ObservedGeneration)
	require.Equal(m.t, rule.Spec.Taint.Effect == noExecute, c.Status == isTrue)
}

func (m *model) effect(name string) resourcev1.DeviceTaintEffect {
	if rule := m.rule(name); rule != nil {
		return rule.Spec.Taint.Effect
	}
	return ""
}

func (m *model) selects(name string, key tracker.Key) bool {
	rule := m.rule(name)
	return rule != nil && (rule.Spec.DeviceSelector.Device == nil || *rule.Spec.DeviceSelector.Device == key.Namespace+"-"+key.Name)
}

// check compares what rules say with what they should, now that all is quiet.
func (m *model) check() {
	m.t.Helper()
	for _, name := range []string{"one", "two"} {
		if m.rule(name) == nil {
			continue
		}
		pods, namespaces := 0, map[string]bool{}
		for key, forEver := range m.pods {
			if m.selects(name, key) && !forEver {
				pods++
				namespaces[key.Namespace] = true
			}
		}
		eviction := m.condition(name, resourcev1.DeviceTaintConditionEvictionInProgress)
		preview := m.condition(name, ConditionEvictionPreview)
		_, evicted := withoutEvicted(eviction.Message)
		require.Equal(m.t, m.gone[name], evicted)
		require.Equal(m.t, m.effect(name) == noExecute && pods > 0, eviction.Status == isTrue, eviction.Message)
		require.Equal(m.t, m.effect(name) == none, preview != metav1.Condition{})
		if eviction.Status == isTrue {
			require.Contains(m.t, eviction.Message, pendingMessage(&tally{pods: pods, namespaces: len(namespaces)}))
		}
		if m.effect(name) == none {
			require.Equal(m.t, pods > 0, preview.Status == isTrue)
			require.Contains(m.t, preview.Message, fmt.Sprintf(". %s would be evicted in %s if", counted(pods, "pod", "pods"), counted(len(namespaces), "namespace", "different namespaces")))
		}
	}
}

// checkLog looks at all that was written.
func (m *model) checkLog() {
	m.t.Helper()
	last, lastPreview, unfinished := map[string]time.Time{}, map[string]time.Time{}, map[string]bool{}
	for _, write := range m.log() {
		generation := fmt.Sprintf("%s %d", write.uid, write.generation)
		eviction := write.conditions[0]
		if before, ok := last[generation]; ok && (!unfinished[generation] || eviction.Status == isTrue) {
			require.GreaterOrEqual(m.t, write.at.Sub(before), writePause, "DE-63 %s", generation)
		}
		last[generation], unfinished[generation] = write.at, eviction.Status == isTrue
		if eviction.Reason == ReasonNotStarted || eviction.Reason == ReasonCompleted {
			require.GreaterOrEqual(m.t, write.at.Sub(m.changed[generation]), settleTime, "DE-76 %s", generation)
		}
		if preview := meta.FindStatusCondition(write.conditions, ConditionEvictionPreview); preview != nil && preview.LastTransitionTime.Equal(new(metav1.NewTime(write.at.Truncate(time.Second)))) {
			if before, ok := lastPreview[generation]; ok {
				require.GreaterOrEqual(m.t, write.at.Sub(before), previewPause, "%s", generation)
			}
			lastPreview[generation] = write.at
		}
	}
}
