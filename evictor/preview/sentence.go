package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// String returns the forecast as a sentence: "evicts 37 pods in 5 namespaces: 12 now,
// 25 within 300s; 4 guarded by a PodDisruptionBudget, 2 without a controller". It is
// empty for a write that evicts nothing and would not do so without EvictionPolicies.
func (f *Forecast) String() string { return f.sentence("evicts ") }

// If returns the sentence for a write that evicts nothing as it is: "would evict ...".
func (f *Forecast) If() string { return f.sentence("would evict ") }

func (f *Forecast) sentence(verb string) string {
	stay := byPolicy(f.Protected, " protected by EvictionPolicy/%s")
	switch {
	case len(f.Pods) == 0 && len(stay) == 0:
		return ""
	case len(f.Pods) == 0:
		return verb + "no pods: " + strings.Join(stay, ", ")
	}
	var times, parts []string
	if f.Now > 0 {
		times = append(times, strconv.Itoa(f.Now)+" now")
	}
	for _, group := range f.Within {
		times = append(times, fmt.Sprintf("%d within %ds", group.Pods, int64(group.Time.Seconds())))
	}
	add := func(pods int, what string) {
		if pods > 0 {
			parts = append(parts, strconv.Itoa(pods)+" "+what)
		}
	}
	add(f.Guarded, "guarded by a PodDisruptionBudget")
	add(f.Ownerless, "without a controller")
	add(f.Sooner, "that had to leave later before")
	parts = append(parts, byPolicy(f.Paused, " held while EvictionPolicy/%s is paused")...)
	if f.BudgetsUnknown {
		parts = append(parts, "which of them PodDisruptionBudgets guard is not known")
	}
	clauses := []string{verb + counted(len(f.Pods), "pod") + " in " + counted(f.Namespaces, "namespace") + ": " + strings.Join(times, ", ")}
	if len(parts) > 0 {
		clauses = append(clauses, strings.Join(parts, ", "))
	}
	if len(stay) > 0 {
		clauses = append(clauses, "not among them: "+strings.Join(stay, ", "))
	}
	return strings.Join(append(clauses, f.Tripping...), "; ")
}

// mostNamed is how many policies a sentence names in one place.
const mostNamed = 3

// byPolicy returns the numbers of pods by policy, the largest first. What has one %s for
// the name of the policy.
func byPolicy(pods map[string]int, what string) []string {
	names := slices.SortedFunc(maps.Keys(pods), func(a, b string) int { return cmp.Or(cmp.Compare(pods[b], pods[a]), cmp.Compare(a, b)) })
	var texts []string
	others := 0
	for i, name := range names {
		if i < mostNamed {
			texts = append(texts, strconv.Itoa(pods[name])+fmt.Sprintf(what, name))
		} else {
			others += pods[name]
		}
	}
	if others > 0 {
		texts = append(texts, strconv.Itoa(others)+" by other EvictionPolicies")
	}
	return texts
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
