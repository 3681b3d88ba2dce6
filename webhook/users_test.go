package webhook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

const guardedToleration = `{"spec":{"tolerations":[{"key":"dedicated","operator":"Exists","effect":"NoSchedule"}]}}`

// grantedToSome is a policy under which some users and groups may tolerate the taint dedicated.
func grantedToSome() *policyset.Set {
	subject := func(kind, name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	return policyset.None().WithTolerations([]v1alpha1.TolerationPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "dedicated"},
		Spec: v1alpha1.TolerationPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}},
			Grants: []v1alpha1.TolerationGrant{
				{Subjects: []rbacv1.Subject{
					subject(rbacv1.UserKind, "alice"), subject(rbacv1.UserKind, "ren\u00e9"), subject(rbacv1.GroupKind, "platform"),
					{Kind: rbacv1.ServiceAccountKind, Namespace: "build", Name: "bot"},
				}},
				{Expression: "request.userInfo.username == 'ruth' || 'experts' in request.userInfo.groups"},
			},
		},
	}})
}

func TestB17UsersAndGroupsAreComparedByteForByte(t *testing.T) {
	config := testConfig()
	config.Handlers.Policies = fixedPolicies{grantedToSome()}
	url := serveEndpoint(t, Validate(config))
	tests := map[string]struct {
		name    string
		groups  []string
		allowed bool
	}{
		"the user":                             {"alice", nil, true},
		"in another case":                      {"Alice", nil, false},
		"with a Cyrillic letter":               {"\u0430lice", nil, false},
		"in letters of full width":             {"\uff41\uff4c\uff49\uff43\uff45", nil, false},
		"with a space that has no width":       {"alice\u200b", nil, false},
		"with a space behind":                  {"alice ", nil, false},
		"with a NUL behind":                    {"alice\x00", nil, false},
		"with a mark that turns it around":     {"\u202eecila", nil, false},
		"more than the user":                   {"alice2", nil, false},
		"less than the user":                   {"alic", nil, false},
		"an accent in one letter, as granted":  {"ren\u00e9", nil, true},
		"an accent that is combined":           {"rene\u0301", nil, false},
		"nobody":                               {"", nil, false},
		"nobody, in a group of no name":        {"", []string{""}, false},
		"nobody, in the group":                 {"", []string{"platform"}, true},
		"a user with the name of the group":    {"platform", nil, false},
		"a group with the name of the user":    {"bob", []string{"alice"}, false},
		"the group":                            {"bob", []string{"platform"}, true},
		"the group with a Cyrillic letter":     {"bob", []string{"pl\u0430tform"}, false},
		"the group with a joiner":              {"bob", []string{"plat\u200dform"}, false},
		"the group in another case":            {"bob", []string{"Platform", "PLATFORM"}, false},
		"a group of two names":                 {"bob", []string{"platform,experts"}, false},
		"the service account":                  {"system:serviceaccount:build:bot", nil, true},
		"with a Cyrillic letter in it":         {"system:serviceaccount:build:b\u043et", nil, false},
		"with a long s":                        {"\u017fystem:serviceaccount:build:bot", nil, false},
		"with another colon":                   {"system:serviceaccount\uff1abuild:bot", nil, false},
		"of another namespace":                 {"system:serviceaccount:builds:bot", nil, false},
		"with more behind it":                  {"system:serviceaccount:build:bot:", nil, false},
		"whom an expression names":             {"ruth", nil, true},
		"like whom an expression names":        {"rut\u04bb", nil, false},
		"in a group of an expression":          {"bob", []string{"a", "experts"}, true},
		"in a group like one of an expression": {"bob", []string{"a", "e\u0445perts"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			asked := podReview(t, admissionv1.Create, guardedToleration, "")
			asked.Request.UserInfo.Username, asked.Request.UserInfo.Groups = tt.name, tt.groups
			status, text := post(t, url, marshal(t, asked))
			require.Equal(t, http.StatusOK, status, text)
			require.Equal(t, tt.allowed, answerOf(t, text).Response.Allowed, text)
		})
	}
}

func TestB17AUserInVeryManyGroupsIsJudgedAtABoundedCost(t *testing.T) {
	config := testConfig()
	config.Handlers.Policies = fixedPolicies{grantedToSome()}
	endpoint := Validate(config)
	for _, many := range []int{10_000, 40_000} {
		// To look for one among 40,000 costs more than an expression may.
		for last, allowed := range map[string]bool{"platform": true, "experts": many == 10_000, "nothing": false} {
			t.Run(fmt.Sprintf("%d groups, and %s", many, last), func(t *testing.T) {
				asked := podReview(t, admissionv1.Create, guardedToleration, "")
				asked.Request.UserInfo.Username, asked.Request.UserInfo.Groups = "bob", nil
				for i := range many {
					asked.Request.UserInfo.Groups = append(asked.Request.UserInfo.Groups, fmt.Sprintf("https://login.example.com/groups/of-a-large-company/%05d", i))
				}
				asked.Request.UserInfo.Groups = append(asked.Request.UserInfo.Groups, last)
				body := marshal(t, asked)
				var answer *httptest.ResponseRecorder
				allocated := allocations(func() { answer = record(t, endpoint, body) })
				require.Equal(t, http.StatusOK, answer.Code, answer.Body)
				text := answer.Body.String()
				require.Equal(t, allowed, answerOf(t, text).Response.Allowed)
				require.LessOrEqual(t, allocated, uint64(10*len(body)), "bytes allocated for %d bytes", len(body))
				require.LessOrEqual(t, len(text), 2*4096, "none of them is answered")
			})
		}
	}
}
