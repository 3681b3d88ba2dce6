package monitoring

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// rulesOf returns what a user may do, besides what everybody may: as verbs and what they are
// of.
func rulesOf(t *testing.T, config *rest.Config) []string {
	t.Helper()
	var all [2][]string
	for i, who := range []*rest.Config{config, east.As("nobody", "system:serviceaccounts")} {
		client, err := kubernetes.NewForConfig(who)
		require.NoError(t, err)
		review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}, metav1.CreateOptions{})
		require.NoError(t, err)
		for _, rule := range review.Status.NonResourceRules {
			all[i] = append(all[i], strings.Join(rule.Verbs, ",")+" "+strings.Join(rule.NonResourceURLs, ","))
		}
		for _, rule := range review.Status.ResourceRules {
			all[i] = append(all[i], strings.Join(rule.Verbs, ",")+" "+strings.Join(rule.APIGroups, ",")+"/"+strings.Join(rule.Resources, ","))
		}
	}
	return slices.DeleteFunc(all[0], func(rule string) bool { return slices.Contains(all[1], rule) })
}
