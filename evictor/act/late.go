package act

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

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

// LateMarks sets the DisruptionTarget condition on pods that were deleted, while they terminate. Pods
// may be gone before it is their turn, and nothing is tried twice: the condition is best effort. It is
// safe for concurrent use.
type LateMarks struct {
	marker requests
	// leads reports whether this replica holds the lease.
	leads func() bool
	pods  chan lateMark
}

type lateMark struct {
	pod   tracker.Pod
	cause tracker.SourceKind
}

// NewLateMarks returns marks that are set while Work runs, by LateWorkers goroutines.
func NewLateMarks(client kubernetes.Interface, now clock.PassiveClock, leads func() bool) *LateMarks {
	return &LateMarks{marker: requests{pods: client.CoreV1(), clock: now}, leads: leads, pods: make(chan lateMark, mostLate)}
}

// takes reports whether a pod is marked after its deletion. Pods of Jobs are not: their
// podFailurePolicy may look at the condition as soon as they fail.
func (l *LateMarks) takes(pod *tracker.Pod) bool {
	return l != nil && len(l.pods) < mostLate && (pod.Origin == nil || pod.Origin.OwnerKind != "Job")
}

// add has a pod marked. It does not block.
func (l *LateMarks) add(pod tracker.Pod, cause tracker.SourceKind) {
	pod.ResourceVersion = "" // The deletion has changed it.
	select {
	case l.pods <- lateMark{pod, cause}:
	default:
	}
}

// Forget drops the pods that still wait. No worker runs then.
func (l *LateMarks) Forget() {
	for len(l.pods) > 0 {
		<-l.pods
	}
}

// Work sets marks until ctx is done.
func (l *LateMarks) Work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-l.pods:
			if err := l.set(ctx, &next); err != nil && Classify(err) != NotFound {
				logr.FromContextOrDiscard(ctx).V(1).Info("cannot mark a pod that terminates", "pod", next.pod.String(), "reason", err.Error())
			}
		}
	}
}

func (l *LateMarks) set(ctx context.Context, of *lateMark) error {
	if !l.leads() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lateTimeout)
	defer cancel()
	_, err := l.marker.mark(ctx, of.pod, of.cause)
	return err
}
