package rulestatus

import (
	"context"
	"errors"
	"net"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The outcomes of writes, which are the values of a metric label.
const (
	outcomeWritten = "written"
	// outcomeGone says that the rule is deleted, or was recreated under its name.
	outcomeGone = "gone"
	// outcomeConflict says that others wrote the rule again and again meanwhile.
	outcomeConflict = "conflict"
	// outcomeNotServed says that the API server serves no such resource at present, or
	// that rules have no status (VS-03).
	outcomeNotServed = "not_served"
	outcomeThrottled = "throttled"
	// outcomeDenied says that RBAC or an admission webhook refuses the write.
	outcomeDenied  = "denied"
	outcomeInvalid = "invalid"
	outcomeTimeout = "timeout"
	// outcomeUnavailable says that the API server cannot be reached or fails.
	outcomeUnavailable = "unavailable"
)

// errNotServed is the error of an applier where the API has no status of
// DeviceTaintRules.
var errNotServed = errors.New("the status of DeviceTaintRules is not served")

// outcomeOf returns the outcome of a write that ended with err.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return outcomeWritten
	case errors.Is(err, errNotServed), isNoSuchPath(err):
		return outcomeNotServed
	case apierrors.IsNotFound(err), isOtherUID(err):
		return outcomeGone
	case apierrors.IsConflict(err):
		return outcomeConflict
	case apierrors.IsTooManyRequests(err):
		return outcomeThrottled
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return outcomeDenied
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return outcomeInvalid
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), isNetTimeout(err):
		return outcomeTimeout
	}
	return outcomeUnavailable
}

// isNoSuchPath reports whether the API server has no such resource. If it only has no
// object of that name, the answer has another cause.
func isNoSuchPath(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isOtherUID reports whether a write was refused because the rule was recreated under its
// name: the API server then answers that the UID cannot be changed.
func isOtherUID(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil &&
		slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" })
}

func isNetTimeout(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || ok && network.Timeout()
}
