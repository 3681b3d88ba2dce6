package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
)

func TestTolerationsThatCompareAreWarnedOfWhereTheyDoNotCount(t *testing.T) {
	t.Parallel()
	const (
		patient = `{"spec":{"tolerations":[{"key":"sla","operator":"Gt","value":"5","effect":"NoExecute"}]}}`
		warning = "spec.tolerations[0]: Tollgate does not honour operator Gt, and evicts the pod from a node with a NoExecute taint that it is to tolerate; an administrator can set eviction.comparisonOperators"
	)
	for sentence, c := range map[string]struct {
		object, old string
		ignored     bool
		want        []string
	}{
		"the evictor ignores them":        {patient, "", true, []string{warning}},
		"the evictor honours them":        {patient, "", false, nil},
		"they are for the scheduler only": {`{"spec":{"tolerations":[{"key":"sla","operator":"Lt","value":"5","effect":"NoSchedule"}]}}`, "", true, nil},
		"they stood there":                {patient, patient, true, nil},
		"another operator":                {`{"spec":{"tolerations":[{"key":"sla","operator":"Exists"}]}}`, "", true, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			config := testConfig()
			config.IgnoreComparisonOperators = c.ignored
			operation := admissionv1.Create
			if c.old != "" {
				operation = admissionv1.Update
			}
			response := judgePod(t, config, podReview(t, operation, c.object, c.old))
			require.True(t, response.Allowed)
			require.Equal(t, c.want, response.Warnings)
		})
	}
	t.Run("in a template", func(t *testing.T) {
		t.Parallel()
		config := testConfig()
		config.IgnoreComparisonOperators = true
		review := podReview(t, admissionv1.Create, `{"spec":{"template":`+patient+`}}`, "")
		review.Request.Resource.Group, review.Request.Resource.Resource = "apps", "deployments"
		require.Equal(t, []string{"spec.template." + warning}, judgePod(t, config, review).Warnings)
	})
}
