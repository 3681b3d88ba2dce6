package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
)

func TestADaemonSetThatLacksWhatItsPodsWouldBeGivenIsWarnedOf(t *testing.T) {
	t.Parallel()
	const (
		plain      = `{"spec":{"template":{"spec":{}}}}`
		tolerating = `{"spec":{"template":{"spec":{"tolerations":[{"key":"dedicated","operator":"Equal","value":"banana"}]}}}}`
		every      = `{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`
		warning    = "spec.template.spec.tolerations: lacks the toleration of dedicated=banana that a PlacementPolicy gives to pods here: the DaemonSet controller makes no pod for a node with such a taint unless the template tolerates it; add it to the template"
	)
	for sentence, c := range map[string]struct {
		kind, namespace, object, old string
		want                         []string
	}{
		"it lacks the toleration":               {"daemonsets", "banana", plain, "", []string{warning}},
		"its template has it":                   {"daemonsets", "banana", tolerating, "", nil},
		"its template tolerates everything":     {"daemonsets", "banana", every, "", nil},
		"a namespace of no policy":              {"daemonsets", "apple", plain, "", nil},
		"the toleration is taken away":          {"daemonsets", "banana", plain, tolerating, []string{warning}},
		"it lacked the toleration before":       {"daemonsets", "banana", plain, plain, nil},
		"pods of a Deployment are given theirs": {"deployments", "banana", plain, "", nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			config := testConfig()
			config.Policies = placements(everythingForPods())
			operation := admissionv1.Create
			if c.old != "" {
				operation = admissionv1.Update
			}
			review := podReview(t, operation, c.object, c.old)
			review.Request.Resource.Group, review.Request.Resource.Resource = "apps", c.kind
			review.Request.Namespace = c.namespace
			response := judgePod(t, config, review)
			require.True(t, response.Allowed)
			require.Equal(t, c.want, response.Warnings)
		})
	}
}
