package evictor

import (
	"cmp"
	"slices"

	"github.com/tollgate-dev/tollgate/tracker"
)

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
