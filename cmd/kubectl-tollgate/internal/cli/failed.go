package cli

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refusedError is a refusal in plain words. What was refused is in them, so that the API
// server's own need not say it again.
type refusedError struct {
	text  string
	cause error
}

func (e *refusedError) Error() string { return e.text }
func (e *refusedError) Unwrap() error { return e.cause }

// Failed returns the error of a request in plain words, with what to do about it. Doing says
// what was asked for, such as "list pods". What RBAC refuses is said in our own words; what
// admission says is shown as it is. Nil stays nil.
func Failed(err error, doing, verb string, resource schema.GroupResource) error {
	return failed(err, doing, Advice(err, verb, resource))
}

// FailedIn is Failed for a request about one namespace: a right there is enough.
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

// notAllowed reports whether it is authorization that refuses. Admission refuses with the
// same code, and has words of its own.
func notAllowed(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsForbidden(err) && strings.Contains(status.Error(), `is forbidden: User "`)
}

// lacksRight reports whether a right would help. Admission, which refuses with the same code,
// does not judge who only reads.
func lacksRight(err error, verb string) bool {
	switch verb {
	case "get", "list", "watch":
		return apierrors.IsForbidden(err)
	default:
		return notAllowed(err)
	}
}

// as names the user whom authorization has refused something, in brackets.
func as(err error) string {
	_, after, _ := strings.Cut(err.Error(), `is forbidden: User "`)
	name, _, found := strings.Cut(after, `"`)
	if !found {
		return ""
	}
	return "(" + name + ") "
}

// Advice says what to do about an error of a request, and is empty where there is none. No
// right helps against what admission refuses.
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

// AskFor says what to ask for who may not do something.
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
