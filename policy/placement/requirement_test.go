package placement

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestSatisfiable(t *testing.T) {
	r := func(operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return requirement("k", operator, values...)
	}
	in, notIn, exists, absent := corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist
	gt, lt := corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt
	tests := []struct {
		name         string
		requirements []corev1.NodeSelectorRequirement
		want         bool
	}{
		{"nothing is required", nil, true},
		{"a value that both name", []corev1.NodeSelectorRequirement{r(in, "a", "b"), r(in, "b")}, true},
		{"no value that both name", []corev1.NodeSelectorRequirement{r(in, "a"), r(in, "b")}, false},
		{"a value that is excluded", []corev1.NodeSelectorRequirement{r(in, "a"), r(notIn, "a")}, false},
		{"a value beside one that is excluded", []corev1.NodeSelectorRequirement{r(in, "a", "b"), r(notIn, "a")}, true},
		{"there and not there", []corev1.NodeSelectorRequirement{r(exists), r(absent)}, false},
		{"a value that may not be there", []corev1.NodeSelectorRequirement{r(in, "a"), r(absent)}, false},
		{"excluded and not there", []corev1.NodeSelectorRequirement{r(notIn, "a"), r(absent)}, true},
		{"a number that may not be there", []corev1.NodeSelectorRequirement{r(gt, "1"), r(absent)}, false},
		{"one number between two", []corev1.NodeSelectorRequirement{r(gt, "1"), r(lt, "3")}, true},
		{"no number between two", []corev1.NodeSelectorRequirement{r(gt, "1"), r(lt, "2")}, false},
		{"the narrower of two bounds counts", []corev1.NodeSelectorRequirement{r(gt, "5"), r(gt, "1"), r(lt, "6")}, false},
		{"a number that is named and too small", []corev1.NodeSelectorRequirement{r(in, "5"), r(gt, "5")}, false},
		{"a number that is named and large enough", []corev1.NodeSelectorRequirement{r(in, "5", "6"), r(gt, "5")}, true},
		{"more than there is", []corev1.NodeSelectorRequirement{r(gt, "9223372036854775807")}, false},
		{"less than there is", []corev1.NodeSelectorRequirement{r(lt, "-9223372036854775808")}, false},
		{"a bound that is no number", []corev1.NodeSelectorRequirement{r(gt, "many")}, false},
		{"an operator that is not known", []corev1.NodeSelectorRequirement{r("Near", "a"), r(in, "b")}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, satisfiable(tt.requirements)) })
	}
}

// universe are labels of a node: a few values, and the absence of the label.
var universe = []*string{nil, new("a"), new("b"), new("c"), new("0"), new("1"), new("2"), new("3"), new("4")}

// satisfies is what Kubernetes does, in the plainest way.
func satisfies(r *corev1.NodeSelectorRequirement, value *string) bool {
	if value == nil {
		return r.Operator == corev1.NodeSelectorOpNotIn || r.Operator == corev1.NodeSelectorOpDoesNotExist
	}
	return holds(r, *value)
}

func randomRequirement(random *rand.Rand) corev1.NodeSelectorRequirement {
	letters, numbers := []string{"a", "b", "c", "1", "2"}, []string{"0", "1", "2", "3"}
	switch random.IntN(6) {
	case 0:
		return requirement("k", corev1.NodeSelectorOpIn, letters[random.IntN(5)], letters[random.IntN(5)])
	case 1:
		return requirement("k", corev1.NodeSelectorOpNotIn, letters[random.IntN(5)])
	case 2:
		return requirement("k", corev1.NodeSelectorOpExists)
	case 3:
		return requirement("k", corev1.NodeSelectorOpDoesNotExist)
	case 4:
		return requirement("k", corev1.NodeSelectorOpGt, numbers[random.IntN(4)])
	default:
		return requirement("k", corev1.NodeSelectorOpLt, numbers[random.IntN(4)])
	}
}

func TestRequirementsAgainstAllValues(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		list := make([]corev1.NodeSelectorRequirement, 1+random.IntN(4))
		for i := range list {
			list[i] = randomRequirement(random)
		}
		all := func(value *string) bool {
			for i := range list {
				if !satisfies(&list[i], value) {
					return false
				}
			}
			return true
		}
		possible := false
		for _, value := range universe {
			possible = possible || all(value)
		}
		if possible {
			require.True(t, satisfiable(list), "%v", list)
		}
		if !possible && !hasOpenEnd(list) {
			require.False(t, satisfiable(list), "%v", list)
		}
		wanted := randomRequirement(random)
		if implied(&wanted, list) {
			for _, value := range universe {
				require.False(t, all(value) && !satisfies(&wanted, value), "%v does not imply %v", list, wanted)
			}
		}
	}
}

// hasOpenEnd reports whether values beyond those of the universe could satisfy the
// list: numbers that are written otherwise, such as 01.
func hasOpenEnd(list []corev1.NodeSelectorRequirement) bool {
	for i := range list {
		if list[i].Operator == corev1.NodeSelectorOpIn || list[i].Operator == corev1.NodeSelectorOpDoesNotExist {
			return false
		}
	}
	for i := range list {
		if list[i].Operator == corev1.NodeSelectorOpNotIn {
			return true
		}
	}
	gt, lt := false, false
	for i := range list {
		gt = gt || list[i].Operator == corev1.NodeSelectorOpGt
		lt = lt || list[i].Operator == corev1.NodeSelectorOpLt
	}
	return !gt || !lt
}
