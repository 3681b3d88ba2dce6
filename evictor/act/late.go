package act

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// LateWorkers is the number of goroutines that mark deleted pods. It is a fraction of the
	// eviction workers, because deletions come first.
	LateWorkers = 8
	// mostLate is the maximum number of deleted pods that wait to be marked, and lateTimeout the
	// timeout of a request.
	mostLate    = 10_000
	lateTimeout = 10 * time.Second
)

// lateMark is a deleted pod that is to be marked.
type lateMark struct {
	pod   tracker.Pod
	cause tracker.SourceKind
}

// marksLate reports whether a pod may be marked after its deletion. Pods of Jobs may not, because the
// podFailurePolicy evaluates the condition as soon as they fail.
func (r *Requests) marksLate(pod *tracker.Pod) bool {
	return len(r.late) < mostLate && (pod.Origin == nil || pod.Origin.OwnerKind != "Job")
}

// markLate queues a deleted pod to be marked. It does not block.
func (r *Requests) markLate(pod tracker.Pod, cause tracker.SourceKind) {
	pod.ResourceVersion = "" // The deletion has changed it.
	select {
	case r.late <- lateMark{pod, cause}:
	default:
	}
}

// ForgetLate removes the pods that wait to be marked. It must not be called while MarkLate runs.
func (r *Requests) ForgetLate() {
	for len(r.late) > 0 {
		<-r.late
	}
}

// MarkLate sets the DisruptionTarget condition of deleted pods while they terminate, until ctx is
// done. LateWorkers goroutines call it. The condition is best effort: it is tried once, and a pod
// may be gone before.
func (r *Requests) MarkLate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-r.late:
			if !r.leads() {
				continue
			}
			attempt, cancel := context.WithTimeout(ctx, lateTimeout)
			_, err := r.mark(attempt, next.pod, next.cause)
			cancel()
			if err != nil && Classify(err) != NotFound {
				logr.FromContextOrDiscard(ctx).V(1).Info("cannot mark a pod that terminates", "pod", next.pod.String(), "reason", err.Error())
			}
		}
	}
}
