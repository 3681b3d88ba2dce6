package registration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Annotations of a webhook configuration.
const (
	// AnnotationRegistration is Managed in configurations that are installed for this package.
	// Others are left alone, so that a rollback to manifests with webhooks keeps these, though
	// a replica that would replace them may still lead.
	AnnotationRegistration = "tollgate.dev/registration"
	// AnnotationReasons has the reasons for which there are webhooks.
	AnnotationReasons = "tollgate.dev/registered-for"
)

// fieldManager is the field manager of the webhooks.
const fieldManager = "tollgate-registration"

const (
	// linger is how long webhooks stay for a reason that has gone.
	linger = time.Minute
	// pause is the delay between two attempts while something is missing that no watch reports.
	pause = time.Second
	// remembered is how many written lists of webhooks are kept for each configuration, by
	// which the watcher tells writes of this package from others.
	remembered = 8
	// writesPerSecond and writeBurst bound the writes.
	writesPerSecond = 2
	writeBurst      = 20
)

// Writer patches objects; client.Client implements it.
type Writer interface {
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Options configures a Controller. Reachable may be nil.
type Options struct {
	// Name is the name of both configurations.
	Name string
	// Deriver derives the webhooks. The endpoints of its Service serve them.
	Deriver *Deriver
	Client  Writer
	// Reachable reports whether Tollgate answers at its URL, where it is called by one. It
	// replaces the endpoints of the Service.
	Reachable func(ctx context.Context, caBundle []byte) error
	// Changed is called when Registered returns another message.
	Changed func()
	Metrics *Metrics
}

// Metrics shows whether the webhooks are registered.
type Metrics struct {
	pending prometheus.Gauge
	writes  *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		pending: promauto.With(reg).NewGauge(prometheus.GaugeOpts{
			Name: "tollgate_webhook_registration_pending",
			Help: "1 while the leader cannot register the webhooks that the policies in force need, otherwise 0.",
		}),
		writes: controller.NewCounter(reg, "tollgate_webhook_registration_writes_total",
			"Writes of the webhook configurations by the leader.", "configuration", string(Validating), string(Mutating)),
	}
}

// Controller registers webhooks. Its methods are goroutine-safe.
type Controller struct {
	*controller.Controller[string]
	Options

	// limit bounds how often a writer that reverts each write makes this one write again.
	limit *rate.Limiter
	// gone has the reasons that policies do not give any more, with the time at which this
	// leader first saw that. Only the one worker uses it.
	gone map[Reasons]time.Time

	mu sync.Mutex
	// version identifies the policies for which the webhooks are registered, and problem says
	// why they are not.
	version, problem string
	// written are the last written lists of webhooks, by configuration.
	written map[Kind][][]Webhook
}

// New returns a controller; Start starts it.
func New(base controller.Base, options Options) *Controller {
	c := &Controller{Options: options, limit: rate.NewLimiter(writesPerSecond, writeBurst), written: map[Kind][][]Webhook{}}
	wake := controller.OnEvent(func(client.Object) { c.Add(options.Name) })
	watches := map[client.Object]toolscache.ResourceEventHandler{
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: wake,
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   wake,
	}
	if options.Reachable == nil {
		watches[&discoveryv1.EndpointSlice{}] = wake
	}
	c.Controller = controller.New(base, controller.Options[string]{
		Name: "tollgate-webhook-registration", Watches: watches, Reconcile: c.reconcile,
		PoliciesChanged: func(context.Context) { c.Add(options.Name) },
		Started: func() {
			c.gone = map[Reasons]time.Time{}
			c.settle("", "")
			c.Add(options.Name)
		},
	})
	return c
}

// Start registers webhooks until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	defer c.Metrics.pending.Set(0) // The next leader has the metric.
	return c.Controller.Start(ctx)
}

// Registered reports whether the webhooks are registered that the policies in force need. If it
// takes longer than a moment, the message says why they are not.
func (c *Controller) Registered() (registered bool, message string) {
	policies := c.Policies.Current()
	c.mu.Lock()
	defer c.mu.Unlock()
	return policies != nil && c.problem == "" && c.version == policies.Version, c.problem
}

// settle stores the outcome of an attempt.
func (c *Controller) settle(version, problem string) {
	c.mu.Lock()
	changed := c.problem != problem
	c.version, c.problem = version, problem
	c.mu.Unlock()
	pending := 0.0
	if problem != "" {
		pending = 1
	}
	c.Metrics.pending.Set(pending)
	if changed {
		c.Changed()
	}
}

// Wrote reports whether this controller has written the webhooks of a configuration as they are.
func (c *Controller) Wrote(object any) bool {
	kind, webhooks := webhooksOf(object)
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.written[kind], func(w []Webhook) bool { return equality.Semantic.DeepEqual(w, webhooks) })
}

// webhooksOf returns the kind and the webhooks of a configuration.
func webhooksOf(object any) (kind Kind, webhooks []Webhook) {
	switch object := object.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range object.Webhooks {
			w := &object.Webhooks[i]
			webhooks = append(webhooks, Webhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			})
		}
		return Validating, webhooks
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return Mutating, object.Webhooks
	}
	return "", nil
}

// errTooOften is returned while another writer reverts each write.
var errTooOften = errors.New("they were written too often just now, maybe because another writer reverts that")

// problemError is an error that the conditions of policies show.
type problemError string

func (e problemError) Error() string { return string(e) }

// reconcile registers the webhooks.
func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	policies := c.Policies.Current()
	if policies == nil {
		return pause, nil // Nothing is known of policies, and nothing is changed.
	}
	again, err := c.register(ctx, name, policies)
	var problem problemError
	switch {
	case err == nil:
		c.settle(policies.Version, "")
		return again, nil
	case errors.As(err, &problem):
		c.settle("", string(problem))
		return pause, nil
	case apierrors.IsConflict(err):
		return 0, err // The cache is older than the last write.
	}
	c.settle("", "The webhooks cannot be registered: "+err.Error())
	return 0, err
}

// register writes both configurations, as far as they are there. The mutating one comes first:
// the validating webhooks refuse pods without what it gives.
func (c *Controller) register(ctx context.Context, name string, policies *policyset.Set) (time.Duration, error) {
	var found []client.Object
	var errs []error
	var unannotated error
	var held Reasons
	for _, object := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		err := c.Cache.Get(ctx, types.NamespacedName{Name: name}, object)
		kind, _ := webhooksOf(object)
		configuration := "The " + string(kind) + " webhook configuration " + name
		switch {
		case apierrors.IsNotFound(err):
			errs = append(errs, problemError(configuration+" does not exist: Tollgate is not called."))
		case err != nil:
			return 0, fmt.Errorf("read the %s webhook configuration: %w", kind, err)
		case object.GetAnnotations()[AnnotationRegistration] != string(configv1alpha1.RegistrationManaged):
			errs = append(errs, problemError(configuration+" is not installed for webhook.registration Managed: apply the manifests"+
				" that are, which annotate it with "+AnnotationRegistration+"=Managed."))
		case object.GetAnnotations()[certs.AnnotationBundle] == "":
			unannotated = problemError("No replica has written a CA bundle yet.")
		default:
			found = append(found, object)
			held |= Parse(object.GetAnnotations()[AnnotationReasons])
		}
	}
	errs = append(errs, unannotated)
	if len(found) == 0 {
		return 0, errors.Join(errs...)
	}
	unready := c.ready(ctx, []byte(found[0].GetAnnotations()[certs.AnnotationBundle]))
	reasons, again := c.reasons(policies, held, unready == nil)
	for _, object := range found {
		if err := c.write(ctx, object, reasons, unready == nil); err != nil {
			errs = append(errs, err)
		}
	}
	return again, errors.Join(append(errs, unready)...)
}

// reasons returns the reasons for which there are webhooks: those that policies give, and those
// held of the webhooks that are there. The latter are dropped after a while, in which a replica
// has to be ready: it is not known whether replicas that are not have dropped a policy.
func (c *Controller) reasons(policies *policyset.Set, held Reasons, ready bool) (reasons Reasons, again time.Duration) {
	reasons, doubtful := Of(policies, c.Deriver.Window)
	if !ready {
		doubtful = All
	}
	reasons |= held & doubtful
	now := c.Local.Now()
	for bit := Reasons(1); bit <= All; bit <<= 1 {
		if reasons&bit != 0 || held&bit == 0 {
			delete(c.gone, bit)
			continue
		}
		c.gone[bit] = cmp.Or(c.gone[bit], now)
		if left := linger - now.Sub(c.gone[bit]); left > 0 {
			reasons |= bit
			if again == 0 || left < again {
				again = left
			}
		}
	}
	return reasons, again
}

// write writes the webhooks of a configuration if they are not as they should be. While no
// replica is ready, it adds and removes none.
func (c *Controller) write(ctx context.Context, object client.Object, reasons Reasons, ready bool) error {
	kind, have := webhooksOf(object)
	wanted := c.Deriver.Derive(kind, reasons, []byte(object.GetAnnotations()[certs.AnnotationBundle]))
	if !ready {
		// The webhooks that are there, as they should be.
		repaired := slices.Clone(have)
		for i := range repaired {
			if k := slices.IndexFunc(wanted, func(w Webhook) bool { return w.Name == repaired[i].Name }); k >= 0 {
				repaired[i] = wanted[k]
			}
		}
		wanted = repaired
	}
	if equality.Semantic.DeepEqual(have, wanted) && (!ready || object.GetAnnotations()[AnnotationReasons] == reasons.String()) {
		return nil
	}
	if !c.limit.AllowN(c.Local.Now(), 1) {
		return errTooOften
	}
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), // of exactly the object that was read
			"annotations": map[string]string{AnnotationReasons: reasons.String()},
		},
		"webhooks": wanted,
	})
	if err != nil {
		return fmt.Errorf("encode webhooks: %w", err)
	}
	c.mu.Lock()
	c.written[kind] = append(c.written[kind], wanted)
	c.written[kind] = c.written[kind][max(0, len(c.written[kind])-remembered):]
	c.mu.Unlock()
	written := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // A copy of one.
	if err := c.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, data), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("write the %s webhook configuration: %w", kind, err)
	}
	c.Metrics.writes.WithLabelValues(string(kind)).Inc()
	logr.FromContextOrDiscard(ctx).Info("registered webhooks", "configuration", string(kind), "for", strings.ReplaceAll(reasons.String(), ",", " "))
	return nil
}

// ready returns an error while no replica answers reviews.
func (c *Controller) ready(ctx context.Context, caBundle []byte) error {
	if c.Reachable != nil {
		if err := c.Reachable(ctx, caBundle); err != nil {
			return problemError("Tollgate does not answer at its URL: " + err.Error())
		}
		return nil
	}
	var list discoveryv1.EndpointSliceList
	if err := c.Cache.List(ctx, &list, client.InNamespace(c.Deriver.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: c.Deriver.Service}); err != nil {
		return fmt.Errorf("list the endpoints of the webhooks: %w", err)
	}
	for i := range list.Items {
		for k := range list.Items[i].Endpoints {
			if ready := list.Items[i].Endpoints[k].Conditions.Ready; ready == nil || *ready {
				return nil
			}
		}
	}
	return problemError("No replica is ready to answer reviews.")
}
