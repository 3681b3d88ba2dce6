package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func named(kind, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: kind, APIGroup: rbacv1.GroupName, Name: name}
}

func account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

func TestIncludesWhoIsNamedAndNobodyElse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		subjects []rbacv1.Subject
		user     authenticationv1.UserInfo
		want     bool
	}{
		"nobody is named":                         {nil, authenticationv1.UserInfo{Username: "anna"}, false},
		"nobody is named, and the user is none":   {nil, authenticationv1.UserInfo{}, false},
		"a user":                                  {[]rbacv1.Subject{named("User", "anna")}, authenticationv1.UserInfo{Username: "anna"}, true},
		"another user":                            {[]rbacv1.Subject{named("User", "anna")}, authenticationv1.UserInfo{Username: "bert"}, false},
		"names are told by case":                  {[]rbacv1.Subject{named("User", "anna")}, authenticationv1.UserInfo{Username: "Anna"}, false},
		"a longer name":                           {[]rbacv1.Subject{named("User", "anna")}, authenticationv1.UserInfo{Username: "anna2"}, false},
		"a star is a name":                        {[]rbacv1.Subject{named("User", "*")}, authenticationv1.UserInfo{Username: "anna"}, false},
		"a group":                                 {[]rbacv1.Subject{named("Group", "team-a")}, authenticationv1.UserInfo{Username: "anna", Groups: []string{"team-b", "team-a"}}, true},
		"another group":                           {[]rbacv1.Subject{named("Group", "team-a")}, authenticationv1.UserInfo{Username: "anna", Groups: []string{"team-b"}}, false},
		"a user who is called like a group":       {[]rbacv1.Subject{named("Group", "team-a")}, authenticationv1.UserInfo{Username: "team-a"}, false},
		"a group that is called like a user":      {[]rbacv1.Subject{named("User", "anna")}, authenticationv1.UserInfo{Username: "bert", Groups: []string{"anna"}}, false},
		"everybody who is authenticated":          {[]rbacv1.Subject{named("Group", "system:authenticated")}, authenticationv1.UserInfo{Username: "anna", Groups: []string{"system:authenticated"}}, true},
		"C18 a user who is called like a node":    {[]rbacv1.Subject{named("Group", "system:nodes")}, authenticationv1.UserInfo{Username: "system:node:evil"}, false},
		"C18 a user called like an administrator": {[]rbacv1.Subject{named("Group", "system:masters")}, authenticationv1.UserInfo{Username: "system:masters"}, false},
		"C18 administrators are not included unless named": {
			[]rbacv1.Subject{named("User", "anna")}, authenticationv1.UserInfo{Username: "root", Groups: []string{"system:masters"}}, false,
		},
		"C19 who impersonates is not looked at": {
			[]rbacv1.Subject{named("User", "anna")},
			authenticationv1.UserInfo{Username: "bert", Extra: map[string]authenticationv1.ExtraValue{"impersonated-by": {"anna"}}},
			false,
		},
		"a service account":                     {[]rbacv1.Subject{account("shop", "bot")}, authenticationv1.UserInfo{Username: "system:serviceaccount:shop:bot"}, true},
		"one of that name elsewhere":            {[]rbacv1.Subject{account("shop", "bot")}, authenticationv1.UserInfo{Username: "system:serviceaccount:mall:bot"}, false},
		"a user who is called like the account": {[]rbacv1.Subject{account("shop", "bot")}, authenticationv1.UserInfo{Username: "bot"}, false},
		"an account named as a user":            {[]rbacv1.Subject{named("User", "system:serviceaccount:shop:bot")}, authenticationv1.UserInfo{Username: "system:serviceaccount:shop:bot"}, true},
		"the accounts of a namespace, by group": {
			[]rbacv1.Subject{named("Group", "system:serviceaccounts:shop")},
			authenticationv1.UserInfo{Username: "system:serviceaccount:shop:bot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:shop"}},
			true,
		},
		"an apiGroup that is left out":      {[]rbacv1.Subject{{Kind: "User", Name: "anna"}}, authenticationv1.UserInfo{Username: "anna"}, true},
		"an apiGroup of something else":     {[]rbacv1.Subject{{Kind: "User", APIGroup: "example.com", Name: "anna"}}, authenticationv1.UserInfo{Username: "anna"}, false},
		"an account in RBAC's apiGroup":     {[]rbacv1.Subject{{Kind: "ServiceAccount", APIGroup: rbacv1.GroupName, Namespace: "shop", Name: "bot"}}, authenticationv1.UserInfo{Username: "system:serviceaccount:shop:bot"}, false},
		"a kind that does not exist":        {[]rbacv1.Subject{named("Robot", "anna")}, authenticationv1.UserInfo{Username: "anna"}, false},
		"an empty name is nobody's":         {[]rbacv1.Subject{named("User", ""), named("Group", "")}, authenticationv1.UserInfo{Groups: []string{""}}, false},
		"an account without a namespace":    {[]rbacv1.Subject{account("", "bot")}, authenticationv1.UserInfo{Username: "system:serviceaccount::bot"}, false},
		"an account with a colon in it":     {[]rbacv1.Subject{account("shop:mall", "bot")}, authenticationv1.UserInfo{Username: "system:serviceaccount:shop:mall:bot"}, false},
		"one fault leaves the others alone": {[]rbacv1.Subject{named("Robot", "x"), named("User", "anna")}, authenticationv1.UserInfo{Username: "anna"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, CompileSubjects(tt.subjects).Includes(&tt.user))
		})
	}
	require.False(t, SubjectSet{}.Includes(&authenticationv1.UserInfo{Username: "anna", Groups: []string{"system:masters"}}), "the zero Set includes nobody")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	path := field.NewPath("spec", "subjects")
	tests := map[string]struct {
		subject rbacv1.Subject
		want    []string
	}{
		"a user":                                   {named("User", "anna"), nil},
		"a group without an apiGroup":              {rbacv1.Subject{Kind: "Group", Name: "team-a"}, nil},
		"a service account":                        {account("shop", "bot"), nil},
		"no name":                                  {named("User", ""), []string{"spec.subjects[0].name: Required value: the name of a user, group or service account"}},
		"a user in a namespace":                    {rbacv1.Subject{Kind: "User", Name: "anna", Namespace: "shop"}, []string{"spec.subjects[0].namespace: Forbidden: only service accounts have a namespace; remove it"}},
		"an account without a namespace":           {account("", "bot"), []string{`spec.subjects[0].namespace: Invalid value: ""`}},
		"an account in a namespace that cannot be": {account("Shop:1", "bot"), []string{`spec.subjects[0].namespace: Invalid value: "Shop:1"`}},
		"another apiGroup":                         {rbacv1.Subject{Kind: "User", APIGroup: "example.com", Name: "anna"}, []string{`spec.subjects[0].apiGroup: Unsupported value: "example.com": supported values: "rbac.authorization.k8s.io"`}},
		"an account with an apiGroup":              {rbacv1.Subject{Kind: "ServiceAccount", APIGroup: rbacv1.GroupName, Namespace: "shop", Name: "bot"}, []string{`spec.subjects[0].apiGroup: Unsupported value`}},
		"another kind":                             {named("user", "anna"), []string{`spec.subjects[0].kind: Unsupported value: "user": supported values: "User", "Group", "ServiceAccount"`}},
		"another kind, and no name":                {rbacv1.Subject{}, []string{"spec.subjects[0].name: Required value", `spec.subjects[0].kind: Unsupported value: ""`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := ValidateSubjects([]rbacv1.Subject{tt.subject}, path)
			require.Len(t, errs, len(tt.want))
			for i, want := range tt.want {
				require.ErrorContains(t, errs[i], want)
			}
		})
	}
	require.Empty(t, ValidateSubjects(nil, path))
	require.Len(t, ValidateSubjects([]rbacv1.Subject{named("User", ""), named("User", "anna"), named("Group", "")}, path), 2)
}
