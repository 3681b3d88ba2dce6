package evictor

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/tracker"
)

// count is how many pods were evicted with a rule or a patch among the reasons.
type count struct {
	rule tracker.Source
	pods int
}

// EvictedBy returns how many pods this evictor evicted with the DeviceTaintRule or the
// ResourceSlicePatch of that UID among the reasons.
func (e *Evictor) EvictedBy(rule types.UID) int {
	e.book.mu.Lock()
	defer e.book.mu.Unlock()
	return e.book.evicted[rule].pods
}

// count counts a pod that was evicted because of rules. The caller holds the lock. A
// patch goes on to be counted for when its rules are gone: it may have lost its devices.
func (b *book) count(rules []tracker.Source) {
	for _, rule := range rules {
		if b.exists(rule) || (rule.Kind == tracker.SourcePatch && b.evicted[rule.UID].pods > 0) {
			b.evicted[rule.UID] = count{rule, b.evicted[rule.UID].pods + 1}
		}
	}
}

// Unanswered returns the pods, in no order, of which it is not known whether they have
// left because of what this evictor asked for, with the DeviceTaintRule or the
// ResourceSlicePatch of that UID among the reasons. The watch may have told of their end. EvictedBy counts them later,
// if at all: who adds both up asks for the unanswered first, or misses what is answered
// in between.
func (e *Evictor) Unanswered(rule types.UID) []tracker.Key {
	b := e.book
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []tracker.Key
	for key := range b.unanswered {
		if slices.ContainsFunc(b.entries[key].rules, func(source tracker.Source) bool { return source.UID == rule }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// distinct sorts rules and drops those that are there again.
func distinct(rules []tracker.Source) []tracker.Source {
	slices.SortFunc(rules, compareSources)
	return slices.Compact(rules)
}

// Forget drops what was counted for a DeviceTaintRule or a ResourceSlicePatch that does
// not exist any more.
func (e *Evictor) Forget(rule types.UID) {
	e.book.mu.Lock()
	defer e.book.mu.Unlock()
	delete(e.book.evicted, rule)
}

// forgetGone drops what was counted for rules of that name that do not exist any
// more. Whoever calls Forget need not have known them: a rule may be deleted before
// anybody has thought of its status.
func (b *book) forgetGone(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.evicted, func(_ types.UID, c count) bool {
		return c.rule.Kind == tracker.SourceRule && c.rule.Name == name && !b.exists(c.rule)
	})
}

// counted returns the rules and patches for which there is a count.
func (b *book) counted() []tracker.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]tracker.Source, 0, len(b.evicted))
	for _, c := range b.evicted {
		list = append(list, c.rule)
	}
	return list
}

// rulesAmong returns the DeviceTaintRules among reasons and the patches that they are
// written out for, sorted and each once.
func rulesAmong(because []decide.Reason) []tracker.Source {
	var rules []tracker.Source
	for i := range because {
		source, author := because[i].Taint.Source, because[i].Taint.Author()
		if source.Kind != tracker.SourceRule {
			continue
		}
		rules = append(rules, source)
		if author != source {
			rules = append(rules, author)
		}
	}
	return distinct(rules)
}

func compareSources(a, b tracker.Source) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// names returns the names of those of a kind.
func names(of []tracker.Source, kind tracker.SourceKind) []string {
	var list []string
	for _, source := range of {
		if source.Kind == kind && (len(list) == 0 || list[len(list)-1] != source.Name) {
			list = append(list, source.Name)
		}
	}
	return list
}
