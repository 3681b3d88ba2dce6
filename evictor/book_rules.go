package evictor

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// count is how many pods were evicted with a rule among the reasons.
type count struct {
	rule tracker.Source
	pods int
}

// evictedBy returns how many pods were evicted with that rule among the reasons.
func (b *book) evictedBy(rule types.UID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.evicted[rule].pods
}

// count counts a pod that was evicted because of rules. The caller holds the lock.
func (b *book) count(rules []tracker.Source) {
	for _, rule := range rules {
		if b.exists(rule) {
			b.evicted[rule.UID] = count{rule, b.evicted[rule.UID].pods + 1}
		}
	}
}

// unansweredFor returns the pods with that rule among their reasons of which it is not
// known what came of the last request.
func (b *book) unansweredFor(rule types.UID) []tracker.Key {
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

// Unanswered returns the pods, in no order, of which it is not known whether they have
// left because of what this evictor asked for, with the DeviceTaintRule of that UID
// among the reasons. The watch may have told of their end. EvictedBy counts them later,
// if at all: who adds both up asks for the unanswered first, or misses what is answered
// in between.
func (e *Evictor) Unanswered(rule types.UID) []tracker.Key { return e.book.unansweredFor(rule) }

// concerned returns the names of the rules for which something changes when an eviction
// ends.
func (e *entry) concerned() []string {
	list := names(append(slices.Clone(e.rules), e.asked...))
	slices.Sort(list)
	return slices.Compact(list)
}

// forget drops what was counted for a rule that does not exist any more.
func (b *book) forget(rule types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.evicted, rule)
}

// forgetGone drops what was counted for rules of that name that do not exist any
// more. Whoever calls forget need not have known them: a rule may be deleted before
// anybody has thought of its status.
func (b *book) forgetGone(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.evicted, func(_ types.UID, c count) bool {
		return c.rule.Name == name && !b.exists(c.rule)
	})
}

// counted returns the names of the rules for which there is a count.
func (b *book) counted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]string, 0, len(b.evicted))
	for _, c := range b.evicted {
		list = append(list, c.rule.Name)
	}
	return list
}

// rulesAmong returns the DeviceTaintRules among reasons, sorted.
func rulesAmong(because []Reason) []tracker.Source {
	var rules []tracker.Source
	for i := range because {
		if source := because[i].Taint.Source; source.Kind == tracker.SourceRule {
			rules = append(rules, source)
		}
	}
	slices.SortFunc(rules, compareSources)
	return rules
}

func compareSources(a, b tracker.Source) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// difference returns the names of the rules that are in one of two sorted lists
// and not in the other.
func difference(a, b []tracker.Source) []string {
	var different []tracker.Source
	for len(a) > 0 && len(b) > 0 {
		switch order := compareSources(a[0], b[0]); {
		case order < 0:
			different, a = append(different, a[0]), a[1:]
		case order > 0:
			different, b = append(different, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return names(append(append(different, a...), b...))
}

func names(rules []tracker.Source) []string {
	list := make([]string, 0, len(rules))
	for _, rule := range rules {
		list = append(list, rule.Name)
	}
	return list
}
