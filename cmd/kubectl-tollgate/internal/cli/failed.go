package cli

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refusedError is an authorization error in plain words, which replaces the API server's.
type refusedError struct {
	text  string
	cause error
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return e.cause }

// Failed returns the error of a request in plain words, with advice. Doing describes the request,
// such as "list pods". RBAC errors are reworded; admission errors are kept. Nil stays nil.
func Failed(err error, doing, verb string, resource schema.GroupResource) error {
	return failed(err, doing, Advice(err, verb, resource))
}

// FailedIn is Failed for a request in one namespace, which needs only a Role.
func FailedIn(err error, namespace, verb string, resource schema.GroupResource) error {
	doing, advice := verb+" "+resource.String()+" in namespace "+namespace, Advice(err, verb, resource)
	if lacksRight(err, verb) {
		advice = " (ask for a Role there" + theRight(verb, resource) + ")"
	}
	return failed(err, doing, advice)
}

func failed(err error, doing, advice string) error {
	switch {
	case err == nil:
		return nil
	case notAllowed(err):
		return &refusedError{"you " + as(err) + "may not " + doing + advice, err}
	default:
		return fmt.Errorf("%s: %w%s", doing, err, advice)
	}
}

// notAllowed reports whether authorization caused the error. Admission uses the same status code
// with other messages.
func notAllowed(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsForbidden(err) && strings.Contains(status.Error(), `is forbidden: User "`)
}

// lacksRight reports whether a permission would help. Reads do not pass through admission, which
// uses the same status code.
func lacksRight(err error, verb string) bool {
	switch verb {
	case "get", "list", "watch":
		return apierrors.IsForbidden(err)
	default:
		return notAllowed(err)
	}
}

// as returns the user of an authorization error, in brackets.
func as(err error) string {
	_, after, _ := strings.Cut(err.Error(), `is forbidden: User "`)
	name, _, found := strings.Cut(after, `"`)
	if !found {
		return ""
	}
	return "(" + name + ") "
}

// Advice returns how to fix the error of a request, empty if unknown. No permission helps against
// admission errors.
func Advice(err error, verb string, resource schema.GroupResource) string {
	switch {
	case lacksRight(err, verb):
		return AskFor(verb, resource)
	case apierrors.IsUnauthorized(err):
		return " (the credentials of the kubeconfig are not accepted: log in again)"
	case apierrors.IsResourceExpired(err):
		return " (the list took longer than the API server keeps its beginning: try again, or narrow it)"
	default:
		return ""
	}
}

// AskFor returns advice to ask for a permission.
func AskFor(verb string, resource schema.GroupResource) string {
	return " (ask for a ClusterRole" + theRight(verb, resource) + ")"
}

func theRight(verb string, resource schema.GroupResource) string {
	group := resource.Group
	if group == "" {
		group = `""`
	}
	return fmt.Sprintf(" with the verb %s on %s of API group %s", verb, resource.Resource, group)
}
