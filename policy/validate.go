package policy

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateSubjects returns what is wrong with a list of subjects.
func ValidateSubjects(list []rbacv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, validate(&list[i], path.Index(i))...)
	}
	return errs
}

func validate(subject *rbacv1.Subject, path *field.Path) field.ErrorList {
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

// validateGroup takes an apiGroup that is left out for the right one: RBAC defaults
// it, and nothing else of that kind exists.
func validateGroup(subject *rbacv1.Subject, want string, path *field.Path) field.ErrorList {
	if subject.APIGroup == "" || subject.APIGroup == want {
		return nil
	}
	return field.ErrorList{field.NotSupported(path.Child("apiGroup"), subject.APIGroup, []string{want})}
}
