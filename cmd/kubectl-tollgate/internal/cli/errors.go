package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Exit codes of the commands. A negative verdict differs from an error.
const (
	// ExitError: the command line, the cluster or a file is invalid.
	ExitError = 1
	// ExitVerdict: the command succeeded, and its subject does not pass.
	ExitVerdict = 2
)

// A VerdictError means that the subject of a command does not pass.
type VerdictError struct{ Reason string }

// Error implements error.
func (e *VerdictError) Error() string { return e.Reason }

// ExitCode returns the exit code of a command for its error, which may be nil.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*VerdictError](err); ok {
		return ExitVerdict
	}
	return ExitError
}

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

// FailedIn is Failed for a request in one namespace, which needs only a Role, or in all of them.
func FailedIn(err error, namespace, verb string, resource schema.GroupResource) error {
	doing, advice := verb+" "+resource.String(), Advice(err, verb, resource)
	if namespace != metav1.NamespaceAll {
		doing += " in namespace " + namespace
		if lacksRight(err, verb) {
			advice = " (ask for a Role there" + permission(verb, resource) + ")"
		}
	}
	return failed(err, doing, advice)
}

func failed(err error, doing, advice string) error {
	if err == nil {
		return nil
	}
	if !unauthorized(err) {
		return fmt.Errorf("%s: %w%s", doing, err, advice)
	}
	user := ""
	_, after, _ := strings.Cut(err.Error(), refusedUser)
	if name, _, found := strings.Cut(after, `"`); found {
		user = "(" + name + ") "
	}
	return &refusedError{"you " + user + "may not " + doing + advice, err}
}

// refusedUser precedes the name of the user in the authorization errors of an API server.
const refusedUser = `is forbidden: User "`

// unauthorized reports whether authorization caused the error. Admission uses the same status
// code with other messages.
func unauthorized(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsForbidden(err) && strings.Contains(status.Error(), refusedUser)
}

// lacksRight reports whether a permission would help. Reads do not pass through admission, which
// uses the same status code.
func lacksRight(err error, verb string) bool {
	switch verb {
	case "get", "list", "watch":
		return apierrors.IsForbidden(err)
	default:
		return unauthorized(err)
	}
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
	return " (ask for a ClusterRole" + permission(verb, resource) + ")"
}

func permission(verb string, resource schema.GroupResource) string {
	return fmt.Sprintf(" with the verb %s on %s of API group %s", verb, resource.Resource, cmp.Or(resource.Group, `""`))
}
