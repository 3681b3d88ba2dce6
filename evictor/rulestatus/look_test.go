package rulestatus

import (
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// condition returns a condition of a rule, the zero one if it has none.
func (w *world) condition(rule, kind string) metav1.Condition {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := meta.FindStatusCondition(w.rules[rule].Status.Conditions, kind)
	if c == nil {
		return metav1.Condition{}
	}
	return *c
}

// says requires what EvictionInProgress says.
func (w *world) says(rule string, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	c := w.condition(rule, resourcev1.DeviceTaintConditionEvictionInProgress)
	require.Equal(w.t, []string{string(status), reason, message}, []string{string(c.Status), c.Reason, c.Message})
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Equal(w.t, w.rules[rule].Generation, c.ObservedGeneration)
}

// previews requires what EvictionPreview says.
func (w *world) previews(rule string, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	c := w.condition(rule, ConditionEvictionPreview)
	require.Equal(w.t, []string{string(status), reason, message}, []string{string(c.Status), c.Reason, c.Message})
}

// written requires how many writes there were so far.
func (w *world) written(n int) {
	w.t.Helper()
	if log := w.log(); len(log) != n {
		w.t.Fatalf("%d writes, want %d; the last: %+v", len(log), n, log[max(len(log)-1, 0):])
	}
}

// log returns the writes so far.
func (w *world) log() []write {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.writes)
}

// requests returns how many writes were tried.
func (w *world) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// rule returns a rule as it is stored.
func (w *world) rule(name string) *resourcev1.DeviceTaintRule {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rules[name]
}

// count counts a pod that is evicted for a rule.
func (w *world) count(rule string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.evicted[w.rules[rule].UID]++
}

// forgotten returns the rules whose counts were let go of.
func (w *world) forgotten() []types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.forgot)
}

// remembered returns how many rules the controller remembers.
func (w *world) remembered() int {
	w.controller.mu.Lock()
	defer w.controller.mu.Unlock()
	return len(w.controller.memories)
}

// said returns how many lines of the log have some words in them.
func (w *world) said(words string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(strings.Join(w.lines, "\n"), words)
}
