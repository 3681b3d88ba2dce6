package evictor

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// count is the number of pods that were evicted with a rule or a patch among the reasons.
type count struct {
	rule tracker.Source
	pods int
}

// EvictedBy returns the number of pods that this evictor evicted with the DeviceTaintRule or the
// ResourceSlicePatch of the UID among the reasons.
func (e *Evictor) EvictedBy(rule types.UID) int {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	return e.state.evicted[rule].pods
}

// count counts an evicted pod for rules and patches. The caller holds the lock. A patch that has
// a count keeps counting when its rules are gone, because it may have lost its devices.
func (s *state) count(rules []tracker.Source) {
	for _, rule := range rules {
		if s.exists(rule) || (rule.Kind == tracker.SourcePatch && s.evicted[rule.UID].pods > 0) {
			s.evicted[rule.UID] = count{rule, s.evicted[rule.UID].pods + 1}
		}
	}
}

// Unanswered returns, in no order, the pods whose eviction was requested, with the
// DeviceTaintRule or the ResourceSlicePatch of the UID among the reasons, and is not answered.
// The watch may have reported their deletion already. EvictedBy may count them later, so a caller
// that adds both calls Unanswered first.
func (e *Evictor) Unanswered(rule types.UID) []tracker.Key {
	s := e.state
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []tracker.Key
	for key := range s.unanswered {
		if slices.ContainsFunc(s.pending[key].rules, func(source tracker.Source) bool { return source.UID == rule }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// distinct sorts rules and removes duplicates.
func distinct(rules []tracker.Source) []tracker.Source {
	slices.SortFunc(rules, func(a, b tracker.Source) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.Compact(rules)
}

// Forget removes the count of a DeviceTaintRule or a ResourceSlicePatch that does not exist any
// more.
func (e *Evictor) Forget(rule types.UID) {
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	delete(e.state.evicted, rule)
}

// forgetGone removes the counts of rules with the name that do not exist any more. The caller of
// Forget does not know rules that were deleted before they had a status.
func (s *state) forgetGone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.evicted, func(_ types.UID, c count) bool {
		return c.rule.Kind == tracker.SourceRule && c.rule.Name == name && !s.exists(c.rule)
	})
}

// counted returns the rules and patches with a count.
func (s *state) counted() []tracker.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]tracker.Source, 0, len(s.evicted))
	for _, c := range s.evicted {
		list = append(list, c.rule)
	}
	return list
}

// names returns the names of the sources of a kind.
func names(of []tracker.Source, kind tracker.SourceKind) []string {
	var list []string
	for _, source := range of {
		if source.Kind == kind {
			list = append(list, source.Name)
		}
	}
	return slices.Compact(list)
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
