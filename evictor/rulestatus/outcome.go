package rulestatus

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/evictor/act"
)

// The outcomes of writes, which are the values of a metric label. A write that fails for
// another reason has its act.Failure as the outcome.
const (
	outcomeWritten = "written"
	// outcomeGone says that the rule is deleted, or was recreated under its name.
	outcomeGone = "gone"
	// outcomeNotServed says that the API server serves no such resource at present, or
	// that rules have no status (VS-03).
	outcomeNotServed = "not_served"
)

// outcomes are all outcomes.
var outcomes = []string{
	outcomeWritten, outcomeGone, outcomeNotServed, string(act.Conflict), string(act.Throttled), string(act.Denied), string(act.Invalid),
	string(act.Timeout), string(act.Unavailable),
}

// errNotServed is the error of an applier where the API has no status of
// DeviceTaintRules.
var errNotServed = errors.New("the status of DeviceTaintRules is not served")

// outcomeOf returns the outcome of a write that ended with err.
func outcomeOf(err error) string {
	switch failure := act.Classify(err); {
	case err == nil:
		return outcomeWritten
	case errors.Is(err, errNotServed), apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		// The API server has no such resource. If it only has no object of that name, the cause is another.
		return outcomeNotServed
	case failure == act.NotFound, isOtherUID(err):
		return outcomeGone
	case apierrors.IsInternalError(err): // Also when a webhook could not be called, which ends without a user.
		return string(act.Unavailable)
	default:
		return string(failure)
	}
}

// isOtherUID reports whether a write was refused because the rule was recreated under its
// name: the API server then answers that the UID cannot be changed.
func isOtherUID(err error) bool {
	status, _ := act.StatusOf(err)
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" })
}
