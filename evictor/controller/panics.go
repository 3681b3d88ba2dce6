package controller

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// panicPause is the wait after a panic of a loop.
const panicPause = time.Second

// caught counts panics for the process, since the queues of all controllers share a metric.
var caught = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "tollgate_worker_panics_total",
	Help: "Panics during the processing of an item of a queue, by the name of the queue. Each panic is a defect; its stack is in the log. Tollgate tries the item again.",
}, []string{"queue"})

// RegisterPanics registers the metric of panics with reg.
func RegisterPanics(reg prometheus.Registerer) { reg.MustRegister(caught) }

// Contain calls work and returns its error. A panic of work is logged with its stack to the
// logger of ctx, counted under the name of the queue, and returned as an error, so that it
// does not end the process, and the admission of pods with it.
func Contain(ctx context.Context, queue string, work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			caught.WithLabelValues(queue).Inc()
			logr.FromContextOrDiscard(ctx).Error(nil, "panic while working on an item", "queue", queue, "panic", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return work()
}

// Loop calls work, which runs until ctx is done, and calls it again a while after a panic.
func Loop(ctx context.Context, queue string, local clock.WithTicker, work func(ctx context.Context)) {
	for ctx.Err() == nil {
		if Contain(ctx, queue, func() error { work(ctx); return nil }) == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-local.After(panicPause):
		}
	}
}
