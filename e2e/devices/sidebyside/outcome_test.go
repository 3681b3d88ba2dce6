package sidebyside

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
)

const (
	// period is how exact the time of an eviction is compared. The scenarios
	// arrange for evictions to be due a little after the beginning of a period,
	// so that a slow machine does not carry one into the next.
	period = 10 * time.Second
	// reason is what every evicted pod is marked with.
	reason = "DeletionByDeviceTaintManager"

	stays = "stays"
)

// outcome is what came of a scenario: the fates of pods and the conditions of
// rules, by their names within the scenario.
type outcome map[string]string

// leaves is the fate of a pod that is evicted in one of the periods since the
// taint came, the first one being 0.
func leaves(n int) string {
	return fmt.Sprintf("leaves in %d-%d s", n*int(period.Seconds()), (n+1)*int(period.Seconds()))
}

// fate says in words what was done to a pod.
func fate(began time.Time, deletions []time.Time, marks []string) string {
	var words string
	switch len(deletions) {
	case 0:
		words = stays
	case 1:
		words = leaves(int(deletions[0].Sub(began) / period))
	default:
		words = fmt.Sprintf("is deleted %d times", len(deletions))
	}
	if expected := len(deletions) > 0; !slices.Equal(marks, []string{reason}) && (expected || len(marks) > 0) {
		words += fmt.Sprintf(", marked %v", marks)
	}
	return words
}

// verdict says in words what the condition of a rule is.
func verdict(rule *resourcev1.DeviceTaintRule) string {
	for _, condition := range rule.Status.Conditions {
		if condition.Type != resourcev1.DeviceTaintConditionEvictionInProgress {
			continue
		}
		words := string(condition.Status) + " " + condition.Reason
		if condition.ObservedGeneration != rule.Generation {
			words += fmt.Sprintf(", of generation %d, not %d", condition.ObservedGeneration, rule.Generation)
		}
		return words
	}
	return "no condition"
}

// String returns the outcome in one line.
func (o outcome) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(o)) {
		words = append(words, name+" "+o[name])
	}
	return strings.Join(words, "; ")
}
