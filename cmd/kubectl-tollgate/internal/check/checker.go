package check

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook"
)

// Options are what objects are judged by.
type Options struct {
	Policies Policies
	// Objects are what there is besides: namespaces, nodes, classes, roles, and the objects
	// that are judged themselves.
	Objects []Object
	// Namespace is that of objects that name none.
	Namespace string
	// Config is that of the Tollgate whose verdicts are wanted.
	Config *configv1alpha1.TollgateConfiguration
	// Clock tells the time.
	Clock clock.PassiveClock
	// Cluster is looked at for what is not among the objects; nil without one.
	Cluster client.Reader
	// Authorizer answers for the cluster; nil for the roles among the objects.
	Authorizer authorizer.Authorizer
}

// Checker judges objects. It is not safe for concurrent use.
type Checker struct {
	world            *world
	rbac             *rbac // nil where a cluster answers
	server           *APIServer
	config           *configv1alpha1.TollgateConfiguration
	namespace        string
	policies         *policyset.Set
	mutate, validate *webhook.Endpoint
	nodes            *nodes
	pace             *steps
}

// Current implements what the endpoints hold policies by.
func (c *Checker) Current() *policyset.Set { return c.policies }

// NewChecker returns a checker.
func NewChecker(options Options) (*Checker, error) {
	gates, err := settings.NewFeatureGates(options.Config.FeatureGates)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	c := &Checker{config: options.Config, namespace: options.Namespace, pace: &steps{now: options.Clock.Now()}}
	if c.world, err = newWorld(options.Cluster); err != nil {
		return nil, err
	}
	for i := range options.Objects {
		object := options.Objects[i].DeepCopy()
		c.place(object)
		object.SetUID(identityOf(object)) // owners are known by theirs
		c.world.add(object)
	}
	c.nodes = &nodes{
		world: c.world, followed: gates.Enabled(settings.NodeTaintEviction), known: tracker.New(), now: options.Clock.Now(),
	}
	by := options.Authorizer
	if by == nil {
		if c.rbac, err = newRBAC(c.world); err != nil {
			return nil, err
		}
		by = c.rbac
	}
	admission := options.Config.Admission
	c.server = &APIServer{
		Reader: c.world, Clock: options.Clock,
		NotReadySeconds: admission.DefaultNotReadyTolerationSeconds, UnreachableSeconds: admission.DefaultUnreachableTolerationSeconds,
		ExtendedResourceToleration: admission.ExtendedResourceToleration, PodTolerationRestriction: admission.PodTolerationRestriction,
	}
	c.policies = options.Policies.InForce(settings.Kinds(gates))
	config := c.endpoints(options, by, gates)
	c.mutate, c.validate = webhook.Mutate(config), webhook.Validate(config)
	return c, nil
}

// endpoints configures the endpoints as tollgate serve does. Nothing is known of pods that
// run, so there are no previews, and limits on how many of them a taint may affect cannot be
// looked at.
func (c *Checker) endpoints(options Options, by authorizer.Authorizer, gates featuregate.FeatureGate) webhook.Config {
	admission := options.Config.Admission
	return webhook.Config{
		Options:     webhook.Options{Clock: c.pace, Metrics: webhook.NewMetrics(prometheus.NewRegistry())},
		ServerClock: options.Clock,
		Readers: webhook.Readers{
			Policies: c, Namespaces: c.world, Live: c.world, Cache: c.world,
			DeviceClasses:  webhook.NewDeviceClasses(c.world, c.world, c.pace),
			RuntimeClasses: webhook.NewRuntimeClasses(c.world, c.world, c.pace),
		},
		Authorizers: webhook.Authorizers{Authorizer: by},
		Users: webhook.Users{
			Schedulers:          admission.Schedulers,
			WorkloadControllers: slices.Concat(webhook.DefaultWorkloadControllers(), admission.WorkloadControllers),
		},
		APIServer: webhook.APIServer{
			ExtendedResourceToleration: admission.ExtendedResourceToleration,
			PodTolerationRestriction:   admission.PodTolerationRestriction,
			DefaultSeconds: toleration.DefaultSeconds{
				NotReady: admission.DefaultNotReadyTolerationSeconds, Unreachable: admission.DefaultUnreachableTolerationSeconds,
			},
			MaxTimeAddedSkew: admission.MaxTimeAddedSkew.Duration,
		},
		Features: webhook.Features{
			NodeTaintTimestamps:  gates.Enabled(settings.NodeTaintTimestamps),
			SchedulingDirectives: gates.Enabled(settings.SchedulingDirectives),
			DeviceTaintAdmission: gates.Enabled(settings.DeviceTaintAdmission),
			Window:               options.Config.Eviction.Mode == configv1alpha1.EvictionWindow,
		},
		Trackers: webhook.Trackers{Spread: webhook.NewSpread(webhook.SpreadConfig{
			Nodes: c.nodes.known, Known: func() bool { return c.nodes.read },
			ComparisonOperators: options.Config.Eviction.ComparisonOperators, Clock: c.pace,
		})},
	}
}

// place gives an object that has to be in a namespace and names none the one that it is for.
func (c *Checker) place(object *unstructured.Unstructured) {
	k, ok := kindOf(object)
	group, name := object.GroupVersionKind().Group, object.GetKind()
	namespaced := ok && k.namespaced || group == rbacv1.GroupName && (name == "Role" || name == "RoleBinding")
	switch {
	case ok && !k.namespaced:
		object.SetNamespace("")
	case namespaced && object.GetNamespace() == "":
		object.SetNamespace(c.namespace)
	}
}

// Notes say what the verdicts so far hang on that is not known.
func (c *Checker) Notes() []string {
	var notes []string
	if c.rbac != nil && c.rbac.asked {
		notes = append(notes, "RBAC was asked, and knows only the Roles and ClusterRoles in the files: what a cluster allows beyond these needs --cluster")
	}
	for _, name := range slices.Sorted(maps.Keys(c.world.unknown)) {
		notes = append(notes, "namespace "+name+" is not among the manifests: taken to have no labels but its name")
	}
	if c.nodes.note != "" {
		notes = append(notes, c.nodes.note)
	}
	if c.world.behind != nil {
		notes = append(notes, c.world.behind.notes()...)
	}
	return notes
}

// steps is a clock that moves on before each object is judged: the reviews bound by it how
// much they read, which protects an API server from its users, and here is nobody to protect.
type steps struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// Now implements clock.PassiveClock.
func (s *steps) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Since implements clock.PassiveClock.
func (s *steps) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

func (s *steps) step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(time.Minute)
}
