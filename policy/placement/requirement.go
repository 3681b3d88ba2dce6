package placement

import (
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// requirements are what is required of the labels of a node. A label that a node does not have
// satisfies NotIn and DoesNotExist.
type requirements []corev1.NodeSelectorRequirement

// holds reports whether a node whose label has the value satisfies r.
func holds(r *corev1.NodeSelectorRequirement, value string) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		bound, ok := boundOf(r)
		number, err := strconv.ParseInt(value, 10, 64)
		return ok && err == nil && (r.Operator == corev1.NodeSelectorOpGt && number > bound || r.Operator == corev1.NodeSelectorOpLt && number < bound)
	case corev1.NodeSelectorOpDoesNotExist:
		return false
	case corev1.NodeSelectorOpExists:
	default: // the API server may know the operator
	}
	return true
}

func boundOf(r *corev1.NodeSelectorRequirement) (int64, bool) {
	if len(r.Values) != 1 {
		return 0, false
	}
	bound, err := strconv.ParseInt(r.Values[0], 10, 64)
	return bound, err == nil
}

// satisfiable reports whether some node could satisfy all requirements, which are
// about the same label.
func satisfiable(wanted requirements) bool {
	all := func(value string) bool {
		return !slices.ContainsFunc(wanted, func(r corev1.NodeSelectorRequirement) bool { return !holds(&r, value) })
	}
	present, absent := false, false
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	for i := range wanted {
		r := &wanted[i]
		switch r.Operator {
		case corev1.NodeSelectorOpIn:
			return slices.ContainsFunc(r.Values, all)
		case corev1.NodeSelectorOpDoesNotExist:
			absent = true
		case corev1.NodeSelectorOpExists:
			present = true
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			bound, ok := boundOf(r)
			more := r.Operator == corev1.NodeSelectorOpGt
			if !ok || more && bound == math.MaxInt64 || !more && bound == math.MinInt64 {
				return false
			}
			present = true
			if more {
				least = max(least, bound+1)
			} else {
				most = min(most, bound-1)
			}
		case corev1.NodeSelectorOpNotIn:
		default:
		}
	}
	// NotIn takes away a few values, and there is no end of those that a number can be
	// written as.
	return (!present || !absent) && least <= most
}

// implied reports whether every node that satisfies all of have satisfies r too: r
// itself is among them, or one of them leaves only values that satisfy it. All are
// about the same label.
func implied(r *corev1.NodeSelectorRequirement, have requirements) bool {
	return slices.ContainsFunc(have, func(h corev1.NodeSelectorRequirement) bool {
		return h.Operator == r.Operator && slices.Equal(h.Values, r.Values) ||
			h.Operator == corev1.NodeSelectorOpIn && len(h.Values) > 0 &&
				!slices.ContainsFunc(h.Values, func(value string) bool { return !holds(r, value) })
	})
}

func inValues(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}
