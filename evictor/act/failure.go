package act

import (
	"context"
	"errors"
	"net/http"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Failure is the class of the error of a request. The values are metric labels.
type Failure string

// The failures.
const (
	// NoFailure is the class of a successful request.
	NoFailure Failure = ""
	// NotFound means that the object does not exist.
	NotFound Failure = "not_found"
	// Conflict means that the object has another UID or resourceVersion than the request.
	Conflict Failure = "conflict"
	// Throttled means that the API server is overloaded (429).
	Throttled Failure = "throttled"
	// BudgetExceeded means that a PodDisruptionBudget does not allow the eviction now.
	BudgetExceeded Failure = "budget"
	// TwoBudgets means that several PodDisruptionBudgets guard the pod, which the Eviction API
	// does not support.
	TwoBudgets Failure = "budgets"
	// Denied means that RBAC or an admission webhook refused the request.
	Denied Failure = "denied"
	// Invalid means that the API server does not accept the request.
	Invalid Failure = "invalid"
	// Timeout means that no answer came in time. The request may have been carried out.
	Timeout Failure = "timeout"
	// Unavailable means that the API server could not be reached or failed. The request may have
	// been carried out.
	Unavailable Failure = "unavailable"
)

// Ambiguous reports whether the request may have been carried out in spite of the failure.
func (f Failure) Ambiguous() bool {
	return f == Timeout || f == Unavailable
}

// Transient reports whether the API server as a whole failed, so that a later success of another
// request means that this one can be repeated.
func (f Failure) Transient() bool {
	return f == Timeout || f == Unavailable || f == Throttled
}

// Blocked reports whether PodDisruptionBudgets refused the eviction, which may take hours to
// change.
func (f Failure) Blocked() bool {
	return f == BudgetExceeded || f == TwoBudgets
}

// longestMessage is the maximum length of a quoted message of the API server or a webhook, in bytes.
const longestMessage = 300

// Explain returns a text about err for events: the message of the API server or the webhook if users
// can change the reason of the refusal, and otherwise the class of the failure.
func Explain(err error) string {
	failure := Classify(err)
	status, answered := StatusOf(err)
	message := status.Message
	switch {
	case !answered:
		return string(failure)
	case failure == BudgetExceeded:
		if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok && cause.Message != "" {
			message = cause.Message
		}
	case failure != Denied && failure != Invalid && failure != TwoBudgets:
		return string(failure)
	}
	return strings.ToValidUTF8(message[:min(len(message), longestMessage)], "")
}

// Classify returns the class of the error of a request.
func Classify(err error) Failure {
	status, _ := StatusOf(err)
	switch {
	case err == nil:
		return NoFailure
	case isWebhook(err, status.Message):
		return Denied
	case apierrors.IsNotFound(err):
		if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
			// A proxy, or an API server without this version of the API, answered. Neither
			// knows whether the object exists.
			return Unavailable
		}
		return NotFound
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		// The code is 429, and 403 if the numbers in the status of the budget are invalid.
		return BudgetExceeded
	case status.Code == http.StatusInternalServerError && strings.Contains(status.Message, twoBudgets):
		return TwoBudgets
	case apierrors.IsConflict(err), apierrors.IsTimeout(err) && strings.Contains(status.Message, budgetContended):
		return Conflict
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Denied
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return Invalid
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), utilnet.IsTimeout(err),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Timeout
	case apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err), apierrors.IsUnexpectedServerError(err):
		return Unavailable
	}
	return byCode(status.Code)
}

// twoBudgets is part of the message of the Eviction API about a pod with several budgets. The answer
// has no reason and no cause (pkg/registry/core/pod/storage/eviction.go).
const twoBudgets = "more than one PodDisruptionBudget"

// budgetContended is part of the message of the Eviction API if it could not write the
// PodDisruptionBudget because other clients kept writing it. The code is that of a timeout, but the pod
// was not deleted (pkg/registry/core/pod/storage/eviction.go).
const budgetContended = "couldn't update PodDisruptionBudget"

// isWebhook reports whether a webhook refused the request, or one with failurePolicy Fail could not be
// called. A webhook that refuses chooses the code and the reason
// (apiserver/pkg/admission/plugin/webhook/errors), so they say nothing about the state of the API server
// or the object. Webhooks are called before the object is stored, so the answer about one that could not be
// called is a refusal, although its code is 500 (apiserver/pkg/admission/plugin/webhook).
func isWebhook(err error, message string) bool {
	return strings.HasPrefix(message, `admission webhook "`) && strings.Contains(message, "denied the request") ||
		apierrors.IsInternalError(err) && strings.Contains(message, "failed calling webhook")
}

// StatusOf returns the Status of an answer of the API server, and whether err is one.
func StatusOf(err error) (status metav1.Status, answered bool) {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return metav1.Status{}, false
	}
	return answer.Status(), true
}

// limiterError is part of the error of client-go if the context ends while its rate limiter delays
// a request, which is not sent then (k8s.io/client-go/rest, Request.tryThrottle).
const limiterError = "client rate limiter Wait returned an error"

// byCode classifies an error by its status code, for example that of a webhook. An error without an
// answer is Unavailable.
func byCode(code int32) Failure {
	switch {
	case code == 400 || code == 422:
		return Invalid
	case code >= 400 && code < 500:
		return Denied
	}
	return Unavailable
}
