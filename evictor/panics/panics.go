// Package panics keeps a panic on one item of a queue from ending the process, and the
// admission of pods with it: the panic becomes an error of that item, which the queue tries
// again later as after any other error.
package panics

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
)

// caught counts panics for the process, since the queues of all controllers share a metric.
var caught = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "tollgate_worker_panics_total",
	Help: "Panics while working on an item of a queue, by the name of the queue. Each is a defect; its stack is in the log. The item is tried again.",
}, []string{"queue"})

// Register registers the metric of panics with reg.
func Register(reg prometheus.Registerer) { reg.MustRegister(caught) }

// Contain calls work and returns its error. A panic of work is logged with its stack to the
// logger of ctx, counted under the name of the queue, and returned as an error.
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
