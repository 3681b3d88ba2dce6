package registration

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/evictor/controller"
)

// kinds has the names of the kinds in the API, and the effects of a missing configuration.
var kinds = map[Kind]struct{ name, impact string }{
	Validating: {"ValidatingWebhookConfiguration", "nothing is refused by policies, and nothing is foretold"},
	Mutating:   {"MutatingWebhookConfiguration", "nothing is given to pods, claims and nodes when they are created"},
}

// change is a change of a configuration: its value of the label change, a closed set, and the
// reason of its event on the Lease.
type change struct{ name, event string }

var (
	changeCreated = change{"created", "WebhooksCreated"}
	changeEdited  = change{"edited", "WebhooksEdited"}
	changeDeleted = change{"deleted", "WebhooksDeleted"}
)

// WatchMetrics shows whether the API server calls Tollgate.
type WatchMetrics struct {
	registered *prometheus.GaugeVec
	changes    *prometheus.CounterVec
}

// NewWatchMetrics registers the metrics with reg.
func NewWatchMetrics(reg prometheus.Registerer) *WatchMetrics {
	factory := promauto.With(reg)
	m := &WatchMetrics{
		registered: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tollgate_webhooks_registered",
			Help: "Webhooks in a webhook configuration of Tollgate, as the leader sees it. 0 if the configuration is missing.",
		}, []string{"configuration"}),
		changes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "tollgate_webhook_configuration_changes_total",
			Help: "Changes of a webhook configuration of Tollgate that the leader saw, except for writes by Tollgate.",
		}, []string{"configuration", "change"}),
	}
	for c := range kinds {
		for _, what := range []change{changeCreated, changeEdited, changeDeleted} {
			m.changes.WithLabelValues(string(c), what.name)
		}
	}
	return m
}

// WatchOptions configures a Watcher. All fields but URL and Own are required.
type WatchOptions struct {
	// Client watches the two configurations.
	Client kubernetes.Interface
	// Name is the name of both configurations.
	Name string
	// URL is the address at which the API server calls Tollgate; empty for a Service.
	URL string
	// Own reports whether Tollgate wrote the webhooks of a configuration as they are; nil if it
	// writes none.
	Own func(object any) bool
	// Lease is the object of the events.
	Lease   *corev1.ObjectReference
	Metrics *WatchMetrics
}

// Watcher watches the webhook configurations of Tollgate.
type Watcher struct {
	controller.Base
	WatchOptions
}

// NewWatcher returns a watcher; Start starts it.
func NewWatcher(base controller.Base, options WatchOptions) *Watcher {
	return &Watcher{Base: base, WatchOptions: options}
}

// Start watches until ctx is done. It retries while it lacks the permission, and logs that
// once: no other component depends on it.
func (w *Watcher) Start(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(w.Client, 0,
		// By name, so that rights with resourceNames suffice.
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.Name).String()
		}))
	api := factory.Admissionregistration().V1()
	watched := map[Kind]toolscache.SharedIndexInformer{
		Validating: api.ValidatingWebhookConfigurations().Informer(), Mutating: api.MutatingWebhookConfigurations().Informer(),
	}
	for c, informer := range watched {
		if err := w.watch(ctx, c, informer); err != nil {
			return fmt.Errorf("watch %s %s: %w", kinds[c].name, w.Name, err)
		}
	}
	factory.StartWithContext(ctx)
	var waits sync.WaitGroup
	for c, informer := range watched {
		waits.Go(func() {
			if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) && len(informer.GetStore().ListKeys()) == 0 {
				w.Metrics.registered.WithLabelValues(string(c)).Set(0)
			}
		})
	}
	<-ctx.Done()
	waits.Wait()
	factory.Shutdown()
	// The next leader exports the metric. All handlers have stopped, so none sets it
	// again.
	w.Metrics.registered.Reset()
	return nil
}

func (w *Watcher) watch(ctx context.Context, c Kind, informer toolscache.SharedIndexInformer) error {
	log := logr.FromContextOrDiscard(ctx)
	show := func(count int) { w.Metrics.registered.WithLabelValues(string(c)).Set(float64(count)) }
	var once sync.Once
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *toolscache.Reflector, err error) {
		once.Do(func() { log.Info("cannot watch the webhooks", "kind", kinds[c].name, "reason", err.Error()) })
	})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if !initial {
				w.report(ctx, c, changeCreated, corev1.EventTypeNormal, "")
			}
			show(len(entriesOf(object)))
		},
		UpdateFunc: func(before, after any) {
			now := entriesOf(after)
			what := differences(entriesOf(before), now, w.URL)
			if len(what) > 0 && (w.Own == nil || !w.Own(after)) {
				text, writer := strings.Join(what, "; "), lastWriter(after)
				w.report(ctx, c, changeEdited, corev1.EventTypeWarning, " by "+writer+": "+text, "changes", text, "fieldManager", writer)
			}
			show(len(now))
		},
		DeleteFunc: func(any) {
			w.report(ctx, c, changeDeleted, corev1.EventTypeWarning, ": "+kinds[c].impact)
			show(0)
		},
	})
	return err
}

// report counts a change and records it in an event, whose message ends with more, and in the
// log, with details.
func (w *Watcher) report(ctx context.Context, c Kind, what change, eventType, more string, details ...any) {
	if ctx.Err() != nil || !w.Leads() {
		return
	}
	w.Metrics.changes.WithLabelValues(string(c), what.name).Inc()
	name := kinds[c].name + " " + w.Name
	logr.FromContextOrDiscard(ctx).WithValues("object", name).Info("webhooks were "+what.name, details...)
	w.Recorder.Eventf(w.Lease, eventType, what.event, "%s was %s%s", name, what.name, more)
}
