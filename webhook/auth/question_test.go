package auth

import (
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// whole is a question in which everything is set.
func whole(t *testing.T) authorizer.AttributesRecord {
	t.Helper()
	byLabel, err := labels.ParseToRequirements("app=web,tier!=db,zone in (a,b),spot,!old,size>3")
	require.NoError(t, err)
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{
			Name: "anna", UID: "7", Groups: []string{"b", "a"}, Extra: map[string][]string{"y": {"2"}, "x": {"1", "0"}},
		},
		Verb: "list", Namespace: "shop", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Subresource: "scale", Name: "web",
		ResourceRequest:           true,
		FieldSelectorRequirements: fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", "n1"), fields.OneTermNotEqualSelector("status.phase", "Failed")).Requirements(),
		LabelSelectorRequirements: byLabel,
	}
}

func TestAQuestionIsPutWhole(t *testing.T) {
	t.Parallel()
	require.Equal(t, authorizationv1.SubjectAccessReviewSpec{
		User: "anna", UID: "7", Groups: []string{"a", "b"},
		Extra: map[string]authorizationv1.ExtraValue{"y": {"2"}, "x": {"1", "0"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: "shop", Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale", Name: "web",
			FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
				{Key: "spec.nodeName", Operator: metav1.FieldSelectorOpIn, Values: []string{"n1"}},
				{Key: "status.phase", Operator: metav1.FieldSelectorOpNotIn, Values: []string{"Failed"}},
			}},
			LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}},
				{Key: "old", Operator: metav1.LabelSelectorOpDoesNotExist},
				{Key: "spot", Operator: metav1.LabelSelectorOpExists},
				{Key: "tier", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"db"}},
				{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			}},
		},
	}, specOf(whole(t)))

	require.Equal(t, authorizationv1.SubjectAccessReviewSpec{
		User: "anna", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/healthz", Verb: "get"},
	}, specOf(authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "anna"}, Path: "/healthz", Verb: "get"}))
}

func TestQuestionsThatDifferHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*authorizer.AttributesRecord, *user.DefaultInfo){
		"nothing":             func(*authorizer.AttributesRecord, *user.DefaultInfo) {},
		"the user":            func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Name = "bert" },
		"the UID":             func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.UID = "8" },
		"a letter that moves": func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Name, u.UID = "ann", "a7" },
		"a group more":        func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Groups = []string{"a", "b", "c"} },
		"two groups in one":   func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Groups = []string{"ab"} },
		"an extra value": func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) {
			u.Extra = map[string][]string{"x": {"1", "0"}, "y": {"3"}}
		},
		"extra values in order": func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) {
			u.Extra = map[string][]string{"x": {"0", "1"}, "y": {"2"}}
		},
		"extra values, more of the first": func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) {
			u.Extra = map[string][]string{"a": {"b", "c"}, "d": {"e"}}
		},
		"extra values, more of the second": func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) {
			u.Extra = map[string][]string{"a": {"b"}, "c": {"d", "e"}}
		},
		"no extra":        func(_ *authorizer.AttributesRecord, u *user.DefaultInfo) { u.Extra = nil },
		"the verb":        func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Verb = "get" },
		"the namespace":   func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Namespace = "" },
		"the group":       func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.APIGroup = "" },
		"the version":     func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.APIVersion = "*" },
		"the resource":    func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Resource = "pods" },
		"the subresource": func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Subresource = "" },
		"the name":        func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.Name = "" },
		"no fields":       func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.FieldSelectorRequirements = nil },
		"fewer fields": func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) {
			a.FieldSelectorRequirements = a.FieldSelectorRequirements[:1]
		},
		"no labels": func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.LabelSelectorRequirements = nil },
		"fewer labels": func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) {
			a.LabelSelectorRequirements = a.LabelSelectorRequirements[:2]
		},
		"a path": func(a *authorizer.AttributesRecord, _ *user.DefaultInfo) { a.ResourceRequest, a.Path = false, "/x" },
	}
	seen := map[digest]string{}
	for name, change := range changes {
		attributes := whole(t)
		who := *attributes.User.(*user.DefaultInfo)
		attributes.User = &who
		change(&attributes, &who)
		spec := specOf(attributes)
		k, err := keyOf(&spec)
		require.NoError(t, err)
		require.NotContains(t, seen, k, name)
		seen[k] = name
	}
	require.Len(t, seen, len(changes))

	same := whole(t)
	same.User = &user.DefaultInfo{Name: "anna", UID: "7", Groups: []string{"a", "b"}, Extra: map[string][]string{"x": {"1", "0"}, "y": {"2"}}}
	spec := specOf(same)
	k, err := keyOf(&spec)
	require.NoError(t, err)
	require.Equal(t, "nothing", seen[k], "the order of groups says nothing")
}
