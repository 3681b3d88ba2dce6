package policy

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// SubjectSet is a list of subjects, read once. The zero Set includes nobody.
type SubjectSet struct {
	users, groups map[string]struct{}
}

// CompileSubjects returns the set of subjects. One with a fault, by Validate, is left out.
func CompileSubjects(list []rbacv1.Subject) SubjectSet {
	s := SubjectSet{users: map[string]struct{}{}, groups: map[string]struct{}{}}
	for i := range list {
		subject := &list[i]
		if len(validate(subject, nil)) > 0 {
			continue
		}
		switch subject.Kind {
		case rbacv1.UserKind:
			s.users[subject.Name] = struct{}{}
		case rbacv1.GroupKind:
			s.groups[subject.Name] = struct{}{}
		case rbacv1.ServiceAccountKind:
			s.users[ServiceAccount(subject.Namespace, subject.Name)] = struct{}{}
		}
	}
	return s
}

// Includes reports whether the user, or a group of theirs, is in the set. The user
// is taken as the API server gives them: whoever is impersonated, not who
// impersonates.
func (s SubjectSet) Includes(user *authenticationv1.UserInfo) bool {
	if _, ok := s.users[user.Username]; ok {
		return true
	}
	return len(s.groups) > 0 && slices.ContainsFunc(user.Groups, func(group string) bool {
		_, ok := s.groups[group]
		return ok
	})
}

// ServiceAccount returns the user name of a service account.
func ServiceAccount(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}
