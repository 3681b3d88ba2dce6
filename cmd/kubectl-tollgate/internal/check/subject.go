package check

import (
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Subject is who is taken to create the objects.
type Subject struct {
	// User is a name as the API server has it; empty for nobody in particular.
	User   string
	Groups []string
}

// nobody is the name of a user of whom nothing is said. An empty name would be no name to
// expressions.
const nobody = "tollgate:nobody-in-particular"

// UserInfo returns the subject as a request has it. As for whoever logs in,
// system:authenticated is among their groups, and those of a service account.
func (s Subject) UserInfo() authenticationv1.UserInfo {
	name := s.User
	if name == "" {
		name = nobody
	}
	groups := slices.Clone(s.Groups)
	add := func(group string) {
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		for _, group := range serviceaccount.MakeGroupNames(namespace) {
			add(group)
		}
	}
	if name != user.Anonymous {
		add(user.AllAuthenticated)
	}
	return authenticationv1.UserInfo{Username: name, Groups: groups}
}

// String says who it is.
func (s Subject) String() string {
	name := "user " + s.User
	if s.User == "" {
		name = "nobody in particular"
	}
	if len(s.Groups) == 0 {
		return name
	}
	return fmt.Sprintf("%s (groups %s)", name, strings.Join(s.Groups, ", "))
}

// isNode reports whether the subject is a kubelet.
func (s Subject) isNode() bool { return strings.HasPrefix(s.User, "system:node:") }
