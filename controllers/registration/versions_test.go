package registration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// A version that the API server calls with, and that the handlers do not read, would be refused.
func TestTheHandlersReadTheVersionsThatAreRegisteredB10(t *testing.T) {
	var rules []admissionregistrationv1.RuleWithOperations
	for _, e := range shipped(t) {
		rules = append(rules, e.Rules...)
	}
	require.NotEmpty(t, rules)
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, name := range rule.Resources {
				require.ElementsMatch(t, handlers.Resource{Group: group, Name: name}.Versions(), rule.APIVersions, "%s of %q", name, group)
			}
		}
	}
}
