package act

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Failure is why a request did not do what it was to do. The values are metric
// labels.
type Failure string

// The failures.
const (
	// NoFailure is the failure of a request that went well.
	NoFailure Failure = ""
	// NotFound says that the object does not exist.
	NotFound Failure = "not_found"
	// Conflict says that the object is not the one, or not the version, that the
	// request was meant for.
	Conflict Failure = "conflict"
	// Throttled says that the API server has too much to do.
	Throttled Failure = "throttled"
	// BudgetExceeded says that a PodDisruptionBudget does not let the pod go now.
	BudgetExceeded Failure = "budget"
	// TwoBudgets says that several PodDisruptionBudgets guard the pod, which the
	// Eviction API does not support.
	TwoBudgets Failure = "budgets"
	// Denied says that RBAC or an admission webhook refuses the request.
	Denied Failure = "denied"
	// Invalid says that the API server does not accept the request as it is.
	Invalid Failure = "invalid"
	// Timeout says that no answer came in time: the request may have been done.
	Timeout Failure = "timeout"
	// Unavailable says that the API server is not there or not well: the request
	// may have been done.
	Unavailable Failure = "unavailable"
)

// Ambiguous reports whether the request may have been done in spite of the
// failure.
func (f Failure) Ambiguous() bool {
	return f == Timeout || f == Unavailable
}

// Transient reports whether the failure is one of the API server as a whole, so
// that the next request that goes well says that it is over for all.
func (f Failure) Transient() bool {
	return f == Timeout || f == Unavailable || f == Throttled
}

// Blocked reports whether budgets are what holds the pod up: the API server is well,
// and it may take hours until another answer can be expected.
func (f Failure) Blocked() bool {
	return f == BudgetExceeded || f == TwoBudgets
}

// longestMessage bounds what is repeated of the words of others.
const longestMessage = 300

// Explain returns the text about err for events. It is the message of the server or webhook where that
// refused the request for a reason that users can change, and otherwise the kind of failure.
func Explain(err error) string {
	failure, message := Classify(err), statusOf(err).Message
	switch {
	case !answered(err):
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

// Classify returns what err says about the request that it came from.
func Classify(err error) Failure {
	switch {
	case err == nil:
		return NoFailure
	case isWebhook(err), isBrokenWebhook(err):
		return Denied
	case apierrors.IsNotFound(err):
		if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
			// No answer of an API: whoever said so, a proxy or an API server without
			// that version of the API, knows nothing of the object.
			return Unavailable
		}
		return NotFound
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		// With 429, and with 403 when the budget's own numbers make no sense.
		return BudgetExceeded
	case isTwoBudgets(err):
		return TwoBudgets
	case apierrors.IsConflict(err), isBudgetContended(err):
		return Conflict
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Denied
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return Invalid
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), isNetTimeout(err):
		return Timeout
	case apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err), apierrors.IsUnexpectedServerError(err),
		utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err):
		return Unavailable
	}
	return byCode(err)
}

// twoBudgets is what the Eviction API says of a pod with several budgets. It has no
// reason and no cause to go by (pkg/registry/core/pod/storage/eviction.go).
const twoBudgets = "more than one PodDisruptionBudget"

// byWebhook begins what the API server says when a webhook refuses a request. The webhook
// picks the code and the rest (apiserver/pkg/admission/plugin/webhook/errors): it says
// nothing of how the API server is, nor of what there is.
const byWebhook = `admission webhook "`

func isWebhook(err error) bool {
	message := statusOf(err).Message
	return strings.HasPrefix(message, byWebhook) && strings.Contains(message, "denied the request")
}

// statusOf returns what the API server said, which is zero if it said nothing.
func statusOf(err error) metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}
	}
	return status.Status()
}

// isBrokenWebhook reports whether a webhook without which the API server does not carry out
// the request could not be called. It is called before anything is stored, so the answer is
// a refusal, although its code is 500 (apiserver/pkg/admission/plugin/webhook).
func isBrokenWebhook(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(statusOf(err).Message, "failed calling webhook")
}

// isBudgetContended reports whether others wrote the PodDisruptionBudget again and again
// while the Eviction API was to take the pod off it. The code is that of a timeout, but the
// pod was not deleted (pkg/registry/core/pod/storage/eviction.go).
func isBudgetContended(err error) bool {
	return apierrors.IsTimeout(err) && strings.Contains(statusOf(err).Message, "couldn't update PodDisruptionBudget")
}

// answered reports whether err is what the API server said, and not that it said nothing.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// limiterError begins what client-go says when its rate limiter does not let a request go
// before its context ends (k8s.io/client-go/rest, Request.tryThrottle).
const limiterError = "client rate limiter Wait returned an error"

// heldBack reports whether the rate limiter of this process did not let a request go.
func heldBack(err error) bool {
	return err != nil && !answered(err) && strings.Contains(err.Error(), limiterError)
}

func isTwoBudgets(err error) bool {
	status := statusOf(err)
	return status.Code == http.StatusInternalServerError && strings.Contains(status.Message, twoBudgets)
}

func isNetTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		(errors.As(err, &network) && network.Timeout())
}

// byCode classifies what has no reason of its own, such as the answer of a
// webhook that picked a status code. What is no answer at all did not get
// through.
func byCode(err error) Failure {
	switch code := statusOf(err).Code; {
	case code == 400 || code == 422:
		return Invalid
	case code >= 400 && code < 500:
		return Denied
	}
	return Unavailable
}
