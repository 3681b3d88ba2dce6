package placement

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// course is where one policy steers pods.
type course struct {
	// steers are labels of which it names the values, sorted by key, one for each.
	steers []steer
	// others are all other requirements.
	others []corev1.NodeSelectorRequirement
}

// steer is a label and the values of it that nodes may have, sorted.
type steer struct {
	key    string
	values []string
	// selector says that it is written as a nodeSelector where it can be.
	selector bool
}

// newCourse returns what of in is valid. What names the values of one label more
// than once holds together, as it does in a pod.
func newCourse(in *v1alpha1.PodPlacement) course {
	var c course
	named := map[string]steer{}
	for key, value := range in.NodeSelector {
		if len(validateLabel(key, value, nil)) == 0 {
			named[key] = steer{key: key, values: []string{value}, selector: true}
		}
	}
	for i := range in.NodeAffinity {
		r := in.NodeAffinity[i].DeepCopy()
		if len(validateRequirement(r, nil)) > 0 {
			continue
		}
		if r.Operator != corev1.NodeSelectorOpIn {
			c.others = append(c.others, *r)
			continue
		}
		values := sortedSet(r.Values)
		if before, ok := named[r.Key]; ok {
			before.values = slices.DeleteFunc(before.values, func(value string) bool { return !slices.Contains(values, value) })
			named[r.Key] = before
			continue
		}
		named[r.Key] = steer{key: r.Key, values: values}
	}
	for _, key := range slices.Sorted(maps.Keys(named)) {
		// What excludes itself says nothing, and validatePod says so.
		if len(named[key].values) > 0 {
			c.steers = append(c.steers, named[key])
		}
	}
	return c
}

func sortedSet(values []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

// need is a requirement of a pod's nodes, and the policies that it comes from.
type need struct {
	corev1.NodeSelectorRequirement

	// selector says that it is one value, to be written as a nodeSelector where it
	// can be.
	selector bool
	policies []string
}

// needs returns what the policies require together, sorted: those that name the
// values of the same label are merged, so that the pod may go wherever one of them
// would steer it.
func (m Matching) needs() []need {
	merged := map[string]need{}
	var all []need
	for _, c := range m.policies {
		for _, s := range c.pod.course.steers {
			n := merged[s.key]
			n.NodeSelectorRequirement = inValues(s.key, sortedSet(slices.Concat(n.Values, s.values))...)
			n.selector = n.selector || s.selector
			n.policies = append(n.policies, c.name)
			merged[s.key] = n
		}
		for i := range c.pod.course.others {
			all = append(all, need{NodeSelectorRequirement: c.pod.course.others[i], policies: []string{c.name}})
		}
	}
	for _, n := range merged {
		n.selector = n.selector && len(n.Values) == 1
		all = append(all, n)
	}
	slices.SortStableFunc(all, compareNeeds)
	return compactNeeds(all)
}

func compareNeeds(a, b need) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
}

// compactNeeds makes one of those that say the same. They are sorted, and those of
// one kind by policy.
func compactNeeds(sorted []need) []need {
	var compact []need
	for _, n := range sorted {
		if last := len(compact) - 1; last >= 0 && compareNeeds(compact[last], n) == 0 {
			compact[last].policies = slices.Compact(append(slices.Clone(compact[last].policies), n.policies...))
			continue
		}
		compact = append(compact, n)
	}
	return compact
}

// of returns what is required of one label.
func of(key string, needs []need) []corev1.NodeSelectorRequirement {
	var found []corev1.NodeSelectorRequirement
	for i := range needs {
		if needs[i].Key == key {
			found = append(found, needs[i].NodeSelectorRequirement)
		}
	}
	return found
}

// keysOf returns the labels that something is required of, sorted.
func keysOf(needs []need) []string {
	keys := make([]string, 0, len(needs))
	for i := range needs {
		keys = append(keys, needs[i].Key)
	}
	return slices.Compact(keys)
}
