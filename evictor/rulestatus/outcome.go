package rulestatus

import (
	"context"
	"errors"
	"net"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outcome is what came of a write. The values are metric labels.
type outcome string

const (
	outcomeWritten outcome = "written"
	// outcomeGone says that the rule is deleted, or that another one has its name.
	outcomeGone outcome = "gone"
	// outcomeConflict says that others wrote the rule again and again meanwhile.
	outcomeConflict outcome = "conflict"
	// outcomeNotServed says that the API server has no such resource at present, or
	// that rules have no status (VS-03).
	outcomeNotServed outcome = "not_served"
	outcomeThrottled outcome = "throttled"
	// outcomeDenied says that RBAC or an admission webhook refuses the write.
	outcomeDenied  outcome = "denied"
	outcomeInvalid outcome = "invalid"
	outcomeTimeout outcome = "timeout"
	// outcomeUnavailable says that the API server is not there or not well.
	outcomeUnavailable outcome = "unavailable"
)

// outcomes are all of them.
func outcomes() []outcome {
	return []outcome{
		outcomeWritten, outcomeGone, outcomeConflict, outcomeNotServed, outcomeThrottled, outcomeDenied, outcomeInvalid,
		outcomeTimeout, outcomeUnavailable,
	}
}

// errNotServed is the error of an applier where the API has no status of
// DeviceTaintRules.
var errNotServed = errors.New("the status of DeviceTaintRules is not served")

// outcomeOf returns what err says about the write that it came from.
func outcomeOf(err error) outcome {
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

// isNoSuchPath reports whether the API server knows no such resource, which is not to
// say that it has no object of that name: then it answers in its own words.
func isNoSuchPath(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isOtherUID reports whether a write was refused because it names the UID of a rule
// that another one has taken the name of: the API server then says that the UID
// cannot be changed.
func isOtherUID(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Field == "metadata.uid"
	})
}

func isNetTimeout(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		(errors.As(err, &network) && network.Timeout())
}
