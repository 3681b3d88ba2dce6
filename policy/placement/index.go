package placement

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// index finds the policies that may be for an object. It may name one too many,
// never one too few. Policies are positions in Set.policies. Each is filed once,
// under what is told first about an object: its namespace, then labels, then what
// has to be looked for.
type index struct {
	byNamespace      map[string][]int
	byNamespaceLabel map[label][]int
	byLabel          map[label][]int
	byResource       map[string][]int
	byClass          map[string][]int
	// loose are looked at for every object.
	loose []int
}

// label is a label with a value that a selector asks for.
type label struct{ key, value string }

// add files a policy. Positions must not descend.
func (x *index) add(position int, m *v1alpha1.PlacementMatch) {
	open := func(pattern string) bool { return strings.HasSuffix(pattern, "*") }
	switch {
	case len(m.Namespaces) > 0 && !slices.ContainsFunc(m.Namespaces, open):
		file(&x.byNamespace, position, m.Namespaces...)
	case len(asked(m.NamespaceSelector)) > 0:
		file(&x.byNamespaceLabel, position, asked(m.NamespaceSelector)...)
	case len(asked(m.PodSelector)) > 0:
		file(&x.byLabel, position, asked(m.PodSelector)...)
	case len(m.Resources) > 0:
		file(&x.byResource, position, m.Resources...)
	case len(m.DeviceClasses) > 0:
		file(&x.byClass, position, m.DeviceClasses...)
	default:
		x.loose = append(x.loose, position)
	}
}

func file[K comparable](lists *map[K][]int, position int, keys ...K) {
	if *lists == nil {
		*lists = map[K][]int{}
	}
	for _, key := range keys {
		(*lists)[key] = append((*lists)[key], position)
	}
}

// asked returns labels of which an object that the selector selects has one; none
// where no such list can be told.
func asked(selector *metav1.LabelSelector) []label {
	if selector == nil {
		return nil
	}
	if keys := slices.Sorted(maps.Keys(selector.MatchLabels)); len(keys) > 0 {
		return []label{{keys[0], selector.MatchLabels[keys[0]]}}
	}
	for _, requirement := range selector.MatchExpressions {
		if requirement.Operator != metav1.LabelSelectorOpIn {
			continue
		}
		labels := make([]label, 0, len(requirement.Values))
		for _, value := range requirement.Values {
			labels = append(labels, label{requirement.Key, value})
		}
		return labels
	}
	return nil
}

// empty reports whether the index names no policy for any object.
func (x *index) empty() bool {
	return len(x.byNamespace)+len(x.byNamespaceLabel)+len(x.byLabel)+len(x.byResource)+len(x.byClass)+len(x.loose) == 0
}

// told returns the policies that are found by what is known of every object, in no
// order and with repeats.
func (x *index) told(s *Subject) []int {
	found := slices.Clone(x.loose)
	found = append(found, x.byNamespace[s.Namespace]...)
	found = lookUp(found, x.byNamespaceLabel, s.NamespaceLabels)
	return lookUp(found, x.byLabel, s.Labels)
}

func lookUp(found []int, lists map[label][]int, labels map[string]string) []int {
	if len(lists) == 0 {
		return found
	}
	for key, value := range labels {
		found = append(found, lists[label{key, value}]...)
	}
	return found
}
