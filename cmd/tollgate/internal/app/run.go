package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselectors "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/webhook/auth"
	"github.com/tollgate-dev/tollgate/webhook/policies"
)

// objectName names the Lease and both webhook configurations in deploy.
const objectName = settings.LeaseName

// program holds the dependencies that the parts of tollgate serve share.
type program struct {
	config     *configv1alpha1.TollgateConfiguration
	components components
	features   featuregate.FeatureGate
	// clock follows the API server's time; local is the clock of this machine.
	clock, local clock.WithTicker
	// connection updates clock from responses and has the client rate limits.
	connection *rest.Config
	clientset  kubernetes.Interface
	// dynamic reads and writes DeviceTaintRules, which have several served versions, and
	// ResourceSlicePatches.
	dynamic dynamic.Interface
	manager ctrl.Manager
	// store has the policies in force.
	store *policies.Store
	// authorizer answers permission checks of policies for pods, workloads and claims; operators
	// those for taints and namespace labels. They do not share a rate limit.
	authorizer, operators *auth.Authority
	// certificates serve the webhooks, or only the metrics in a process without webhooks; nil
	// where nothing is served by HTTPS.
	certificates *certs.Manager
	// self is the user name of this process.
	self      string
	recorders recorders
	// tracer makes spans of reviews and evictions, nil if tracing is not enabled.
	tracer trace.Tracer
	// resources is the metric of all Keepers.
	resources *prometheus.GaugeVec
	// lock is nil without leader election.
	lock *Lock
	// runnables run on every replica, once all parts are made.
	runnables []manager.Runnable
	// leaderTasks are the functions that only the leader runs, until their context ends. All of
	// them are added before the election begins.
	leaderTasks []func(context.Context) error
}

// add adds runnables of every replica.
func (p *program) add(runnables ...manager.Runnable) { p.runnables = append(p.runnables, runnables...) }

// whileLeading adds functions that only the leader runs.
func (p *program) whileLeading(tasks ...func(context.Context) error) {
	p.leaderTasks = append(p.leaderTasks, tasks...)
}

// newProgram connects to the API server, waits until it answers, and makes the dependencies.
func newProgram(ctx context.Context, config *configv1alpha1.TollgateConfiguration, run components, connection *rest.Config) (*program, error) {
	gates, err := settings.NewFeatureGates(config.FeatureGates)
	if err != nil {
		return nil, err
	}
	local := clock.RealClock{}
	now := newServerClock(local)
	connection = rest.CopyConfig(connection)
	connection.UserAgent = "tollgate/" + settings.Version()
	connection.QPS, connection.Burst = config.ClientConnection.QPS, config.ClientConnection.Burst
	connection.Wrap(now.Wrap)
	if config.Tracing.Enabled {
		connection.Wrap(traceRequests)
	}
	p := &program{config: config, components: run, features: gates, clock: now, local: local, connection: connection}
	if p.clientset, err = kubernetes.NewForConfig(protobuf(connection)); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if p.dynamic, err = dynamic.NewForConfig(connection); err != nil {
		return nil, fmt.Errorf("make a client for DeviceTaintRules: %w", err)
	}
	if p.authorizer, err = newAuthority(connection, local); err != nil {
		return nil, err
	}
	if p.operators, err = newAuthority(connection, local); err != nil {
		return nil, err
	}
	if p.lock, err = p.newLock(); err != nil {
		return nil, err
	}
	if p.self, err = p.currentUser(ctx); err != nil {
		return nil, err
	}
	if p.recorders, err = newRecorders(ctx, connection); err != nil {
		return nil, err
	}
	if p.certificates, err = p.newCertificates(); err != nil {
		return nil, err
	}
	metrics, err := metricsOptions(config, connection, p.certificates, local)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	// By name, so that narrow rights suffice.
	ours := cache.ByObject{Field: fieldselectors.OneTermEqualSelector(metav1.ObjectNameField, objectName)}
	p.manager, err = ctrl.NewManager(connection, ctrl.Options{
		Scheme: scheme,
		Logger: logr.FromContextOrDiscard(ctx),
		// Runnables end with the manager, not when ctx ends.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}: {Transform: trimNode},
				&admissionregistrationv1.ValidatingWebhookConfiguration{}: ours,
				&admissionregistrationv1.MutatingWebhookConfiguration{}:   ours,
				// By namespace, so that narrow rights suffice.
				&discoveryv1.EndpointSlice{}: {Namespaces: map[string]cache.Config{config.Namespace: {
					LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: config.Certificates.ServiceName}),
				}}},
			},
		},
		Metrics:                metrics,
		HealthProbeBindAddress: config.Health.BindAddress,
		// Lock.Lead runs the election.
		LeaderElection:          false,
		GracefulShutdownTimeout: new(30 * time.Second),
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	p.resources = NewResourceMetrics(ctrlmetrics.Registry)
	return p, nil
}

// currentUser returns the user name under which the API server authenticates this process. It
// polls every 2 s until the API server answers or ctx is done: both may be starting at the same
// time.
func (p *program) currentUser(ctx context.Context) (string, error) {
	const pause = 2 * time.Second
	for {
		_, err := p.clientset.Discovery().ServerVersion()
		if err == nil {
			break
		}
		logr.FromContextOrDiscard(ctx).Info("waiting for the API server", "host", p.connection.Host, "reason", err.Error())
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the API server: %w", err)
		case <-p.local.After(pause):
		}
	}
	review, err := p.clientset.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask who this is: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// serve runs until ctx is done, then answers reviews for the shutdown period.
func serve(ctx context.Context, config *configv1alpha1.TollgateConfiguration, run components, connection *rest.Config) error {
	p, err := newProgram(ctx, config, run, connection)
	if err != nil {
		return err
	}
	defer p.recorders.stop()
	var stopTracing func()
	if p.tracer, stopTracing, err = newTracer(ctx, &config.Tracing); err != nil {
		return err
	}
	defer stopTracing()
	if err := p.addPolicies(ctx); err != nil {
		return err
	}
	state, err := p.addEvictor(ctx)
	if err != nil {
		return err
	}
	patches := p.addPatchFeed()
	limits, previews, err := p.addPreviews(state, patches)
	if err != nil {
		return err
	}
	if err := p.addControllers(state, limits); err != nil {
		return err
	}
	p.addPatches(state, patches)
	p.addLeader(ctx)
	controller.RegisterPanics(ctrlmetrics.Registry)
	Register(ctrlmetrics.Registry, settings.Version(), string(config.Eviction.Mode), p.leads)
	serveCtx, end := Extend(ctx, config.Webhook.DrainPeriod.Duration, p.local)
	defer end()
	ready, err := p.addAdmission(ctx, state, previews)
	if err != nil {
		return err
	}
	// Readiness depends on the certificate and the policies, not on the list of pods.
	ready["shutdown"] = Ready(ctx)
	for name, check := range ready {
		if err := p.manager.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("add readiness check %s: %w", name, err)
		}
	}
	if err := p.manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add liveness check: %w", err)
	}
	for _, runnable := range p.runnables {
		if err := p.manager.Add(runnable); err != nil {
			return fmt.Errorf("add %T: %w", runnable, err)
		}
	}
	logr.FromContextOrDiscard(ctx).Info("starting", "version", settings.Version(), "components", run.String(), "webhook", config.Webhook.BindAddress,
		"metrics", config.Metrics.BindAddress, "health", config.Health.BindAddress)
	return p.manager.Start(serveCtx)
}

// addPolicies adds the store of policies and the watches of the objects that they refer to.
func (p *program) addPolicies(ctx context.Context) error {
	p.store = policies.NewStore(policies.Options{
		Kinds:     settings.Kinds(p.features),
		Cache:     p.manager.GetCache(),
		Live:      p.manager.GetAPIReader(),
		Discovery: discovery.ToServerResourcesInterfaceWithContext(p.clientset.Discovery()),
		Clock:     p.local,
		Metrics:   policies.NewMetrics(ctrlmetrics.Registry),
	})
	p.add(p.store, everyReplica(p.warm))
	// Informers start now, so that no review waits for the first list.
	for _, object := range []client.Object{&corev1.Namespace{}, &nodev1.RuntimeClass{}} {
		if _, err := p.manager.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch what policies depend on: %w", err)
		}
	}
	return nil
}

// warm starts informers of kinds that reviews read now and then, so that the first such review
// does not wait. Errors are only logged: a cluster may not serve a kind, or not permit its watch.
func (p *program) warm(ctx context.Context) {
	var wanted []client.Object
	if p.features.Enabled(settings.TaintPolicies) {
		wanted = append(wanted, &v1alpha1.EvictionApproval{}, &corev1.Node{})
	}
	if p.features.Enabled(settings.PlacementPolicies) {
		wanted = append(wanted, &resourcev1.DeviceClass{}, &resourcev1.ResourceClaimTemplate{})
	}
	log := logr.FromContextOrDiscard(ctx)
	for _, object := range wanted {
		if _, err := p.manager.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			log.V(1).Info("not watched", "kind", fmt.Sprintf("%T", object), "reason", err.Error())
		}
	}
}

// trimNode is a cache transform that keeps the metadata, taints, twin annotation and Ready
// condition of a node. The rest of the status is by far the larger part.
func trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	kept := &corev1.Node{TypeMeta: node.TypeMeta, ObjectMeta: node.ObjectMeta, Spec: corev1.NodeSpec{Taints: node.Spec.Taints}}
	kept.ManagedFields, kept.Annotations = nil, nil
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			// The heartbeat time is left out.
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	if twins, ok := node.Annotations[v1alpha1.AnnotationTwins]; ok {
		kept.Annotations = map[string]string{v1alpha1.AnnotationTwins: twins}
	}
	return kept, nil
}

// protobuf returns a copy of connection that prefers protobuf, which works for built-in kinds
// only.
func protobuf(connection *rest.Config) *rest.Config {
	connection = rest.CopyConfig(connection)
	connection.ContentType = runtime.ContentTypeProtobuf
	connection.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return connection
}
