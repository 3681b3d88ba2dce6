package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/auth"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// now is when all reviews of the corpus are judged.
var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// cluster is what the reviews of the corpus are judged against. It does not change.
type cluster struct {
	objects  []client.Object
	policies *policyset.Set
	reader   client.Client
}

// Current implements what the endpoints hold policies by.
func (c *cluster) Current() *policyset.Set { return c.policies }

func schemeOfCluster(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	return scheme
}

// loadCluster reads the manifests. A field that a kind does not have is an error.
func loadCluster(t *testing.T) *cluster {
	t.Helper()
	scheme := schemeOfCluster(t)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	files, err := filepath.Glob(filepath.Join(corpus, "cluster", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	c := &cluster{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, file)
			object, _, err := decoder.Decode(document, nil, nil)
			require.NoError(t, err, "%s: %s", file, document)
			c.objects = append(c.objects, object.(client.Object)) //nolint:forcetypeassert // All kinds have metadata.
		}
	}
	c.reader = fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.objects...).Build()
	c.policies = policyset.None().
		WithTolerations(values[v1alpha1.TolerationPolicy](c)).WithPlacement(values[v1alpha1.PlacementPolicy](c)).
		WithTaints(values[v1alpha1.TaintPolicy](c)).WithGates(values[v1alpha1.GatePolicy](c)).
		WithEvictions(values[v1alpha1.EvictionPolicy](c))
	return c
}

// each calls f for all objects of a kind.
func each[T any](c *cluster, f func(*T)) {
	for _, object := range c.objects {
		if one, ok := any(object).(*T); ok {
			f(one)
		}
	}
}

// values returns all objects of a kind.
func values[T any](c *cluster) []T {
	var list []T
	each(c, func(object *T) { list = append(list, *object) })
	return list
}

// Authorize answers by the ClusterRoles that are bound to the user.
func (c *cluster) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	bound := map[string]bool{}
	each(c, func(binding *rbacv1.ClusterRoleBinding) {
		for _, subject := range binding.Subjects {
			bound[binding.RoleRef.Name] = bound[binding.RoleRef.Name] ||
				subject.Kind == rbacv1.UserKind && subject.Name == a.GetUser().GetName() ||
				subject.Kind == rbacv1.GroupKind && slices.Contains(a.GetUser().GetGroups(), subject.Name) ||
				subject.Kind == rbacv1.ServiceAccountKind && serviceaccount.MatchesUsername(subject.Namespace, subject.Name, a.GetUser().GetName())
		}
	})
	decision := authorizer.DecisionNoOpinion
	each(c, func(role *rbacv1.ClusterRole) {
		for i := range role.Rules {
			if bound[role.Name] && covers(&role.Rules[i], a) {
				decision = authorizer.DecisionAllow
			}
		}
	})
	return decision, "", nil
}

func covers(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, "*") }
	return has(rule.Verbs, a.GetVerb()) && has(rule.APIGroups, a.GetAPIGroup()) && has(rule.Resources, a.GetResource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

// setup is a webhook of which not everything has been settled.
type setup struct {
	config  webhook.Config
	view    *preview.View
	preview *handlers.Preview
	tracker *tracker.Tracker
}

// selection answers which devices a patch is meant for.
type selection struct {
	devices *sliceview.View
	unread  bool
}

// Selected implements handlers.PatchSelection.
func (s selection) Selected(ctx context.Context, patch *v1alpha1.ResourceSlicePatch) ([]device.ID, bool) {
	ids, err := s.devices.Would(ctx, patch)
	return ids, err == nil && !s.unread
}

// config returns a webhook with everything switched on, but for what the settings say.
func (c *cluster) config(t *testing.T, settings []string) webhook.Config {
	t.Helper()
	return c.configOn(t, settings, clock.RealClock{})
}

// configOn is config on a machine with a clock.
func (c *cluster) configOn(t *testing.T, settings []string, machine clock.PassiveClock) webhook.Config {
	t.Helper()
	s := c.setup(machine)
	for _, name := range settings {
		set, known := knownSettings()[name]
		require.True(t, known, "there is no setting %q", name)
		set(t, s)
	}
	if s.preview != nil {
		view := s.view
		s.preview.View = view
		s.preview.Limits = &preview.Limits{
			View: view, Ledger: preview.NewLedger(&preview.View{Tracker: s.tracker, Rules: s.view.Rules}, s.preview.Clock), Approvals: preview.ListApprovals(c.reader),
			Authorizer: s.config.Handlers.Authorizer, Clock: s.preview.Clock,
		}
		s.config.Handlers.Preview = s.preview
	}
	return s.config
}

func (c *cluster) setup(machine clock.PassiveClock) *setup {
	server := clocktesting.NewFakePassiveClock(now)
	yes := func() bool { return true }
	devices, known := sliceview.New(), tracker.New()
	outages := handlers.NewOutages()
	each(c, func(node *corev1.Node) {
		known.SetNode(tracker.NodeOf(node), now)
		outages.OnAdd(node, true)
	})
	each(c, func(pod *corev1.Pod) { known.SetPod(tracker.PodOf(pod)) })
	each(c, func(budget *policyv1.PodDisruptionBudget) { known.SetBudget(tracker.BudgetOf(budget)) })
	each(c, func(claim *resourcev1.ResourceClaim) { known.SetClaim(tracker.ClaimOf(claim)) })
	each(c, func(class *resourcev1.DeviceClass) { devices.SetClass(class) })
	each(c, func(slice *resourcev1.ResourceSlice) {
		known.SetSlice(tracker.SliceOf(slice), now)
		devices.SetSlice(slice)
	})
	each(c, func(rule *resourcev1.DeviceTaintRule) { known.SetRule(tracker.RuleOf(rule), now) })
	known.SetDevicesKnown(true)
	return &setup{
		tracker: known,
		view: &preview.View{
			Tracker: known, Rules: decide.Rules{}, PodsKnown: yes, NodesKnown: yes, DevicesKnown: yes, BudgetsKnown: yes,
			Policies: func() *eviction.Set { return c.policies.Evictions }, NamespaceLabels: c.namespaceLabels,
		},
		preview: &handlers.Preview{
			Clock: server, Off: map[tracker.SourceKind]string{}, Selection: selection{devices: devices},
			Metrics: handlers.NewPreviewMetrics(prometheus.NewPedanticRegistry()),
		},
		config: webhook.Config{
			Options: webhook.Options{
				// Connections obey this clock, and nothing that is answered hangs on it.
				Clock: machine, Metrics: webhook.NewMetrics(prometheus.NewPedanticRegistry()),
				Budget: 30 * time.Second, Bodies: webhook.NewBodies(32 << 20),
			},
			Handlers: handlers.Config{
				Clock: machine, ServerClock: server,
				Readers: handlers.Readers{
					Policies: c, Namespaces: handlers.NewNamespaces(c.reader, c.reader, machine), Live: c.reader, Cache: c.reader,
					DeviceClasses:  handlers.NewDeviceClasses(c.reader, c.reader, machine),
					RuntimeClasses: handlers.NewRuntimeClasses(c.reader, c.reader, machine),
				},
				Authorizers: handlers.Authorizers{Authorizer: authorizer.AuthorizerFunc(c.Authorize)},
				Users:       handlers.Users{Selves: []string{"system:serviceaccount:tollgate-system:tollgate"}},
				APIServer: handlers.APIServer{
					DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 300}, MaxTimeAddedSkew: time.Minute,
				},
				Features: handlers.Features{NodeTaintTimestamps: true, SchedulingDirectives: true, DeviceTaintAdmission: true},
				Trackers: handlers.Trackers{
					Spread:  &handlers.Spread{Nodes: known, Known: yes, Clock: machine},
					Outages: outages, DeviceTaints: known,
				},
			},
		},
	}
}

func (c *cluster) namespaceLabels(name string) (set labels.Labels, known bool) {
	each(c, func(namespace *corev1.Namespace) {
		if namespace.Name == name {
			set, known = labels.Set(namespace.Labels), true
		}
	})
	return set, known
}

// errDown is what everything answers that is down.
var errDown = errors.New("it does not answer")

// silent is an authorizer that does not answer.
var silent = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", errDown
})

// nothing is a source of policies that has read none.
type nothing struct{}

// Current implements what the endpoints hold policies by.
func (nothing) Current() *policyset.Set { return nil }

// knownSettings are what files of the corpus name.
func knownSettings() map[string]func(*testing.T, *setup) {
	no := func() bool { return false }
	return map[string]func(*testing.T, *setup){
		"mode Window":                         func(_ *testing.T, s *setup) { s.config.Handlers.Window, s.view.Rules.Window = true, true },
		"mode Observe":                        func(_ *testing.T, s *setup) { s.preview.Observe = true },
		"comparison operators are not obeyed": func(_ *testing.T, s *setup) { s.config.Handlers.IgnoreComparisonOperators = true },
		"plugin ExtendedResourceToleration":   func(_ *testing.T, s *setup) { s.config.Handlers.ExtendedResourceToleration = true },
		"plugin PodTolerationRestriction":     func(_ *testing.T, s *setup) { s.config.Handlers.PodTolerationRestriction = true },
		"without SchedulingDirectives":        func(_ *testing.T, s *setup) { s.config.Handlers.SchedulingDirectives = false },
		"without NodeTaintTimestamps": func(_ *testing.T, s *setup) {
			s.config.Handlers.NodeTaintTimestamps, s.config.Handlers.Outages = false, nil
		},
		"without DeviceTaintAdmission":    func(_ *testing.T, s *setup) { s.config.Handlers.DeviceTaintAdmission = false },
		"without NodeTaintEviction":       func(_ *testing.T, s *setup) { s.view.NodesKnown, s.config.Handlers.Spread = nil, nil },
		"without DeviceTaintEviction":     func(_ *testing.T, s *setup) { s.view.DevicesKnown, s.config.Handlers.DeviceTaints = nil, nil },
		"the pods have not been read":     func(_ *testing.T, s *setup) { s.view.PodsKnown = no },
		"the budgets have not been read":  func(_ *testing.T, s *setup) { s.view.BudgetsKnown = no },
		"the policies have not been read": func(_ *testing.T, s *setup) { s.config.Handlers.Policies = nothing{} },
		"another scheduler binds, named packer": func(_ *testing.T, s *setup) {
			s.config.Handlers.Schedulers = append(handlers.DefaultSchedulers(), "packer")
		},
		"no room for another body": func(_ *testing.T, s *setup) {
			s.config.Bodies = webhook.NewBodies(1)
		},
		"without any eviction": func(_ *testing.T, s *setup) {
			s.preview, s.config.Handlers.Spread, s.config.Handlers.DeviceTaints = nil, nil, nil
		},
		"without DeviceTaintRules": func(_ *testing.T, s *setup) {
			s.config.Handlers.WithoutDeviceTaintRules = true
			s.preview.Off[tracker.SourceRule], s.preview.Off[tracker.SourcePatch] = "DeviceTaintRules", "DeviceTaintRules"
			s.preview.Selection = nil
		},
		"without ResourceSlicePatches": func(_ *testing.T, s *setup) {
			s.preview.Off[tracker.SourcePatch], s.preview.Selection = "ResourceSlicePatches", nil
		},
		"the devices have not been read": func(_ *testing.T, s *setup) {
			s.tracker.SetDevicesKnown(false)
			s.view.DevicesKnown = no
			s.preview.Selection = selection{devices: sliceview.New(), unread: true}
		},
		"RBAC does not answer": func(_ *testing.T, s *setup) { s.config.Handlers.Authorizer = silent },
		"RBAC does not answer tenants": func(_ *testing.T, s *setup) {
			s.config.Handlers.Authorizer, s.config.Handlers.Operators = silent, s.config.Handlers.Authorizer
		},
		"the API server does not answer": func(t *testing.T, s *setup) {
			t.Helper()
			s.config.Handlers.Live = fake.NewClientBuilder().WithScheme(schemeOfCluster(t)).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return errDown
				},
			}).Build()
		},
		"callers have to be known": func(t *testing.T, s *setup) {
			t.Helper()
			who, err := auth.NewCallers(auth.CallerOptions{
				Required: true, Clock: clock.RealClock{}, ServerClock: clock.RealClock{}, Metrics: auth.NewCallerMetrics(prometheus.NewPedanticRegistry()),
			})
			require.NoError(t, err)
			s.config.Callers = who
		},
	}
}
