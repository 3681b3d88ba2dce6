package evictor

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

// PodsChanged queues pods whose deadline may have changed. It does not block, and does nothing
// while the evictor does not run: Start queues all pods.
func (e *Evictor) PodsChanged(keys []tracker.Key) {
	for _, key := range keys {
		e.queues.of(e.tracker.UsesClaims(key)).Add(key)
	}
}

// podsCalled queues pods that the rate limiter calls.
func (e *Evictor) podsCalled(keys []tracker.Key) {
	e.state.called(keys)
	e.PodsChanged(keys)
}

// NodeChanged processes a node whose taints may have changed: it reports odd times, and queues the
// node if a taint has no time. It does not block, and does nothing while the evictor does not run.
func (e *Evictor) NodeChanged(name string) {
	if !e.running.Load() {
		return
	}
	uid, taints := e.tracker.Taints(name)
	e.checkTimes(tracker.Source{Kind: tracker.SourceNode, Name: name}, uid, taints)
	if lackTime(taints) && e.options.Mode != ModeObserve {
		e.queues.nodes.Add(name)
	}
}

// RuleChanged processes a DeviceTaintRule whose taint may have changed: it reports odd times, and
// removes the count of a deleted rule. It does not block, and does nothing while the evictor does
// not run.
func (e *Evictor) RuleChanged(name string) {
	if !e.running.Load() {
		return
	}
	e.state.forgetGone(name)
	var taints []tracker.Taint
	source := tracker.Source{Kind: tracker.SourceRule, Name: name}
	if taint, ok := e.tracker.RuleTaint(name); ok {
		source = taint.Source
		if taint.Effect == corev1.TaintEffectNoExecute {
			taints = []tracker.Taint{taint}
		}
	}
	e.checkTimes(source, source.UID, taints)
}

// authorsChanged calls the listeners with rules and patches.
func (e *Evictor) authorsChanged(authors []tracker.Source) {
	if rules := names(authors, tracker.SourceRule); len(rules) > 0 {
		e.options.RulesChanged(rules)
	}
	if patches := names(authors, tracker.SourcePatch); len(patches) > 0 {
		e.options.PatchesChanged(patches)
	}
}
