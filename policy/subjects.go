package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// SubjectSet is a compiled list of subjects. The zero SubjectSet includes no user.
type SubjectSet struct {
	users, groups map[string]struct{}
}

// CompileSubjects returns the set of subjects. One with a fault is left out.
func CompileSubjects(list []rbacv1.Subject) SubjectSet {
	s := SubjectSet{users: map[string]struct{}{}, groups: map[string]struct{}{}}
	for i := range list {
		subject := &list[i]
		if len(validateSubject(subject, nil)) > 0 {
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

// Includes reports whether the user, or a group of the user, is in the set. Of an
// impersonated request that is the impersonated user.
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

// maxSubjects is the limit of the schema on the subjects of a list.
const maxSubjects = 256

// ValidateSubjects returns what is wrong with a list of subjects.
func ValidateSubjects(list []rbacv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(list) > maxSubjects {
		errs = append(errs, field.TooMany(path, len(list), maxSubjects))
	}
	for i := range list {
		errs = append(errs, validateSubject(&list[i], path.Index(i))...)
	}
	return errs
}

func validateSubject(subject *rbacv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if subject.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), "the name of a user, group or service account"))
	}
	switch subject.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
		if subject.Namespace != "" {
			errs = append(errs, field.Forbidden(path.Child("namespace"), "only service accounts have a namespace; remove it"))
		}
		return append(errs, validateGroup(subject, rbacv1.GroupName, path)...)
	case rbacv1.ServiceAccountKind:
		if reasons := apivalidation.ValidateNamespaceName(subject.Namespace, false); len(reasons) > 0 {
			errs = append(errs, field.Invalid(path.Child("namespace"), subject.Namespace, "the namespace of the service account: "+strings.Join(reasons, "; ")))
		}
		return append(errs, validateGroup(subject, "", path)...)
	default:
		return append(errs, field.NotSupported(path.Child("kind"), subject.Kind, []string{rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind}))
	}
}

// validateGroup accepts an empty apiGroup, which RBAC defaults.
func validateGroup(subject *rbacv1.Subject, want string, path *field.Path) field.ErrorList {
	if subject.APIGroup == "" || subject.APIGroup == want {
		return nil
	}
	return field.ErrorList{field.NotSupported(path.Child("apiGroup"), subject.APIGroup, []string{want})}
}

// The verbs on taints.tollgate.dev that RBAC grants. The resource exists for RBAC alone: the
// API server does not serve it.
const (
	VerbTolerate = "tolerate"
	VerbTaint    = "taint"

	taints = "taints"
)

// May reports whether the authorizer, which is RBAC as a rule, allows the user the verb on the
// taints with a key. An empty key is all of them. An error is no verdict.
func May(ctx context.Context, a authorizer.Authorizer, u user.Info, verb, key string) (bool, error) {
	decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
		User:            u,
		Verb:            verb,
		APIGroup:        v1alpha1.GroupVersion.Group,
		APIVersion:      v1alpha1.GroupVersion.Version,
		Resource:        taints,
		Name:            key,
		ResourceRequest: true,
	})
	if err != nil {
		return false, fmt.Errorf("ask whether %s may %s the taint %q: %w", u.GetName(), verb, key, err)
	}
	return decision == authorizer.DecisionAllow, nil
}

// UserInfo returns the user of a request as authorizers take it.
func UserInfo(u *authenticationv1.UserInfo) user.Info {
	extra := make(map[string][]string, len(u.Extra))
	for key, value := range u.Extra {
		extra[key] = value
	}
	return &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra}
}

// AccountInfo returns a service account as authorizers take it.
func AccountInfo(namespace, name string) user.Info {
	return &user.DefaultInfo{
		Name:   ServiceAccount(namespace, name),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, user.AllAuthenticated},
	}
}
