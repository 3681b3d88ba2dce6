package certs

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// reporter counts each occurrence of a problem but logs it only when it is new or
// different, so that a lasting fault does not fill the log. It is not goroutine-safe.
type reporter struct {
	metrics *Metrics
	// last is the last logged error of each current problem, by reason and object.
	last map[string]string
}

func newReporter(metrics *Metrics) *reporter {
	return &reporter{metrics: metrics, last: map[string]string{}}
}

func (r *reporter) report(ctx context.Context, why reason, object string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		// Requests that shutdown cancels are no problem.
		return
	}
	r.metrics.failed(why)
	subject := string(why) + "/" + object
	if r.last[subject] == err.Error() {
		return
	}
	r.last[subject] = err.Error()
	log.FromContext(ctx).Error(err, "certificates need attention", "reason", why, "object", object)
}

// well clears the problems with the reasons, so that they are logged again when they
// recur.
func (r *reporter) well(ctx context.Context, object string, why ...reason) {
	for _, w := range why {
		subject := string(w) + "/" + object
		if _, ok := r.last[subject]; !ok {
			continue
		}
		delete(r.last, subject)
		log.FromContext(ctx).Info("certificate problem is over", "reason", w, "object", object)
	}
}
