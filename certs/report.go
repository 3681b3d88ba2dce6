package certs

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// reporter counts each occurrence of a problem but logs it only when it is new
// or different, so that a fault that lasts does not fill the log. It belongs to
// the goroutine that refreshes.
type reporter struct {
	metrics *Metrics
	// last is what was logged about a subject that is not well yet. Subjects are
	// reasons, or a configuration with its reason.
	last map[string]string
}

func newReporter(metrics *Metrics) *reporter {
	return &reporter{metrics: metrics, last: map[string]string{}}
}

func (r *reporter) report(ctx context.Context, why reason, object string, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		// Requests that end with the process are no problem.
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

// well forgets what was logged for the reasons, so that they are logged again
// when they come back.
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
