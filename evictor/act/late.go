package act

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// LateWorkers is how many pods are marked at once after they were deleted. It is a fraction of
	// the workers that delete: deletions come first.
	LateWorkers = 8
	// mostLate bounds how many deleted pods wait to be marked, and lateTimeout a request.
	mostLate    = 10_000
	lateTimeout = 10 * time.Second
)

// lateMark is a pod that is marked after it was deleted.
type lateMark struct {
	pod   tracker.Pod
	cause tracker.SourceKind
}

// marksLate reports whether a pod is marked after its deletion. Pods of Jobs are not: their
// podFailurePolicy may look at the condition as soon as they fail.
func (r *Requests) marksLate(pod *tracker.Pod) bool {
	return len(r.late) < mostLate && (pod.Origin == nil || pod.Origin.OwnerKind != "Job")
}

// markLate has a pod marked that was deleted. It does not block.
func (r *Requests) markLate(pod tracker.Pod, cause tracker.SourceKind) {
	pod.ResourceVersion = "" // The deletion has changed it.
	select {
	case r.late <- lateMark{pod, cause}:
	default:
	}
}

// ForgetLate drops the pods that still wait to be marked. No worker runs then.
func (r *Requests) ForgetLate() {
	for len(r.late) > 0 {
		<-r.late
	}
}

// MarkLate sets the DisruptionTarget condition on pods that were deleted, while they terminate, until ctx is
// done. LateWorkers goroutines do so. Pods may be gone before it is their turn, and nothing is tried twice: the
// condition is best effort.
func (r *Requests) MarkLate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-r.late:
			if err := r.set(ctx, &next); err != nil && Classify(err) != NotFound {
				logr.FromContextOrDiscard(ctx).V(1).Info("cannot mark a pod that terminates", "pod", next.pod.String(), "reason", err.Error())
			}
		}
	}
}

func (r *Requests) set(ctx context.Context, of *lateMark) error {
	if !r.leads() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lateTimeout)
	defer cancel()
	_, err := r.mark(ctx, of.pod, of.cause)
	return err
}
