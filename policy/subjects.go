package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// SubjectSet is a compiled list of subjects. The zero SubjectSet includes no user.
type SubjectSet struct {
	users, groups sets.Set[string]
}

// CompileSubjects returns the set of subjects. One with a fault is left out.
func CompileSubjects(list []rbacv1.Subject) SubjectSet {
	s := SubjectSet{users: sets.New[string](), groups: sets.New[string]()}
	for i := range list {
		subject := &list[i]
		if len(validateSubject(subject, nil)) > 0 {
			continue
		}
		switch subject.Kind {
		case rbacv1.UserKind:
			s.users.Insert(subject.Name)
		case rbacv1.GroupKind:
			s.groups.Insert(subject.Name)
		case rbacv1.ServiceAccountKind:
			s.users.Insert(serviceaccount.MakeUsername(subject.Namespace, subject.Name))
		}
	}
	return s
}

// Includes reports whether the user, or a group of the user, is in the set. Of an
// impersonated request that is the impersonated user.
func (s SubjectSet) Includes(user *authenticationv1.UserInfo) bool {
	return s.users.Has(user.Username) || s.groups.HasAny(user.Groups...)
}

// maxSubjects is the limit of the schema on the subjects of a list.
const maxSubjects = 256

// ValidateSubjects returns what is wrong with a list of subjects.
func ValidateSubjects(list []rbacv1.Subject, path *field.Path) field.ErrorList {
	return ValidateEach(list, maxSubjects, path, validateSubject)
}

func validateSubject(subject *rbacv1.Subject, path *field.Path) field.ErrorList {
	errs, namespace := Check(subject.Name != "", field.Required(path.Child("name"), "the name of a user, group or service account")), path.Child("namespace")
	switch subject.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
		return slices.Concat(errs,
			Check(subject.Namespace == "", field.Forbidden(namespace, "only service accounts have a namespace; remove it")),
			validateGroup(subject, rbacv1.GroupName, path))
	case rbacv1.ServiceAccountKind:
		reasons := apivalidation.ValidateNamespaceName(subject.Namespace, false)
		return slices.Concat(errs,
			Check(len(reasons) == 0, field.Invalid(namespace, subject.Namespace, "the namespace of the service account: "+strings.Join(reasons, "; "))),
			validateGroup(subject, "", path))
	default:
		return append(errs, field.NotSupported(path.Child("kind"), subject.Kind, []string{rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind}))
	}
}

// validateGroup accepts an empty apiGroup, which RBAC defaults.
func validateGroup(subject *rbacv1.Subject, want string, path *field.Path) field.ErrorList {
	return Check(subject.APIGroup == "" || subject.APIGroup == want, field.NotSupported(path.Child("apiGroup"), subject.APIGroup, []string{want}))
}

// The verbs on taints.tollgate.dev that RBAC grants. The resource exists for RBAC alone: the
// API server does not serve it.
const (
	VerbTolerate = "tolerate"
	VerbTaint    = "taint"
)

// May reports whether the authorizer, which is RBAC as a rule, allows the user the verb on the
// taints with a key. An empty key is all of them. An error is no verdict.
func May(ctx context.Context, a authorizer.Authorizer, u user.Info, verb, key string) (bool, error) {
	decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
		User:            u,
		Verb:            verb,
		APIGroup:        v1alpha1.GroupVersion.Group,
		APIVersion:      v1alpha1.GroupVersion.Version,
		Resource:        "taints",
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
		Name:   serviceaccount.MakeUsername(namespace, name),
		Groups: append(serviceaccount.MakeGroupNames(namespace), user.AllAuthenticated),
	}
}
