package registration_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/controllers/registration"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// world is an API server with webhook configurations, endpoints and policies.
type world struct {
	client.Client

	mu       sync.Mutex
	current  *policyset.Set
	handlers []toolscache.ResourceEventHandler
	changed  chan struct{}
	// patched are the kinds of the configurations that were written, in order; fail is the
	// error of a write, nil for none.
	patched []string
	fail    func(kind string) error
	// messages are those of Registered, after each change.
	messages []string
}

func newWorld(objects ...client.Object) *world {
	w := &world{changed: make(chan struct{}, 1), current: policyset.None()}
	w.Client = fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			kind := "mutating"
			if _, ok := obj.(*admissionregistrationv1.ValidatingWebhookConfiguration); ok {
				kind = "validating"
			}
			w.mu.Lock()
			fail := w.fail
			w.mu.Unlock()
			if fail != nil {
				if err := fail(kind); err != nil {
					return err
				}
			}
			if err := c.Patch(ctx, obj, patch, opts...); err != nil {
				return err
			}
			w.mu.Lock()
			w.patched = append(w.patched, kind)
			w.mu.Unlock()
			w.tell(obj)
			return nil
		},
	}).Build()
	return w
}

type informer struct {
	cache.Informer

	world *world
}

func (w *world) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return &informer{world: w}, nil
}

func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.world.mu.Lock()
	defer i.world.mu.Unlock()
	i.world.handlers = append(i.world.handlers, handler)
	return nil, nil //nolint:nilnil // It is only handed back.
}

func (i *informer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error { return nil }

// tell tells the controller that an object changed. One handler is enough: all do the same.
func (w *world) tell(object client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.handlers) > 0 {
		w.handlers[0].OnUpdate(object, object)
	}
}

func (w *world) Current() *policyset.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

func (w *world) Subscribe() (<-chan struct{}, func()) { return w.changed, func() {} }

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// enforce puts policies in force.
func (w *world) enforce(change func(*policyset.Set) *policyset.Set) {
	w.set(func() { w.current = change(w.current) })
	w.changed <- struct{}{}
	rest(time.Millisecond)
}

func (w *world) validating(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	var c admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "tollgate"}, &c))
	return &c
}

func (w *world) mutating(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	var c admissionregistrationv1.MutatingWebhookConfiguration
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "tollgate"}, &c))
	return &c
}

// names returns the names of all webhooks, sorted.
func (w *world) names(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, hook := range w.validating(t).Webhooks {
		names = append(names, strings.TrimSuffix(hook.Name, ".tollgate.dev"))
	}
	for _, hook := range w.mutating(t).Webhooks {
		names = append(names, strings.TrimSuffix(hook.Name, ".tollgate.dev"))
	}
	slices.Sort(names)
	return names
}

func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// installed returns both configurations as they are installed, with the bundle that replicas
// annotate.
func installed() []client.Object {
	meta := metav1.ObjectMeta{Name: "tollgate", UID: "u", Annotations: map[string]string{
		certs.AnnotationBundle: "bundle", registration.AnnotationRegistration: "Managed",
	}}
	return []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: *meta.DeepCopy()},
	}
}

// endpoints returns a slice with one endpoint.
func endpoints(ready bool) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "tollgate-1", Namespace: "tollgate-system", Labels: map[string]string{discoveryv1.LabelServiceName: "tollgate"}},
		Endpoints:  []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
}

// led runs test while a controller leads.
func led(t *testing.T, w *world, test func(c *registration.Controller)) {
	t.Helper()
	deriver, err := registration.NewDeriver(registration.Settings{
		Namespace: "tollgate-system", Service: "tollgate", NodeTaintTimestamps: true, DeviceTaintAdmission: true,
	})
	require.NoError(t, err)
	var c *registration.Controller
	c = registration.New(controller.Base{
		Cache: w, Policies: w, Clock: clock.RealClock{}, Local: clock.RealClock{}, Leads: func() bool { return true }, Timeout: time.Second,
	}, registration.Options{
		Name: "tollgate", Deriver: deriver, Client: w,
		Metrics: registration.NewMetrics(prometheus.NewRegistry()),
		Changed: func() {
			_, message := c.Registered()
			w.set(func() { w.messages = append(w.messages, message) })
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	rest(time.Millisecond)
	test(c)
	stop()
	require.NoError(t, <-done)
	w.set(func() { w.handlers = nil })
}

func guarding(list ...string) func(*policyset.Set) *policyset.Set {
	return func(s *policyset.Set) *policyset.Set {
		var policies []v1alpha1.TolerationPolicy
		for _, name := range list {
			policies = append(policies, v1alpha1.TolerationPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TolerationPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}}},
			})
		}
		return s.WithTolerations(policies)
	}
}

func registered(t *testing.T, c *registration.Controller) {
	t.Helper()
	ok, message := c.Registered()
	require.True(t, ok)
	require.Empty(t, message)
}

func TestNothingIsRegisteredBeforeAReplicaIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(false))...)
		led(t, w, func(c *registration.Controller) {
			require.Empty(t, w.names(t))
			ok, message := c.Registered()
			require.False(t, ok)
			require.Equal(t, "No replica is ready to answer reviews.", message)
			slice := endpoints(false)
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
			slice.Endpoints = endpoints(true).Endpoints
			require.NoError(t, w.Update(t.Context(), slice))
			w.tell(slice)
			rest(2 * time.Second)
			registered(t, c)
			require.Contains(t, w.names(t), "pods")
			require.NotContains(t, w.names(t), "templates")
			require.NotContains(t, w.names(t), "mutate-pods")
			for _, hook := range w.validating(t).Webhooks {
				require.Equal(t, "bundle", string(hook.ClientConfig.CABundle))
			}
			require.Equal(t, []string{"mutating", "validating"}, w.patched)
			require.True(t, c.Wrote(w.validating(t)))
			require.True(t, c.Wrote(w.mutating(t)))
			rest(3 * time.Minute)
			require.Len(t, w.patched, 2, "nothing is written twice")
		})
	})
}

func TestPoliciesBringAndTakeWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(true))...)
		led(t, w, func(c *registration.Controller) {
			w.enforce(guarding("a"))
			registered(t, c)
			require.Contains(t, w.names(t), "templates")
			require.Equal(t, "tolerations", w.validating(t).Annotations[registration.AnnotationReasons])
			w.enforce(guarding())
			registered(t, c)
			require.Contains(t, w.names(t), "templates", "other replicas may have the policy")
			rest(59 * time.Second)
			require.Contains(t, w.names(t), "templates")
			rest(2 * time.Second)
			require.NotContains(t, w.names(t), "templates")
		})
	})
}

func TestAPolicyThatComesBackKeepsItsWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(true))...)
		led(t, w, func(*registration.Controller) {
			w.enforce(guarding("a"))
			w.enforce(guarding())
			rest(50 * time.Second)
			w.enforce(guarding("b"))
			rest(50 * time.Second)
			w.enforce(guarding())
			rest(50 * time.Second)
			require.Contains(t, w.names(t), "templates")
		})
	})
}

func TestTheNextLeaderGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(true))...)
		// The leader ends between the two writes.
		w.fail = func(kind string) error {
			if kind == "validating" {
				return errors.New("killed")
			}
			return nil
		}
		led(t, w, func(c *registration.Controller) {
			w.enforce(guarding("a"))
			ok, _ := c.Registered()
			require.False(t, ok)
			require.Empty(t, w.validating(t).Webhooks)
		})
		w.fail = nil
		led(t, w, func(c *registration.Controller) {
			registered(t, c)
			require.Contains(t, w.names(t), "templates")
		})
		// A leader that has not read that policy, as after an etcd was restored, keeps its webhook for a while.
		w.set(func() { w.current = policyset.None() })
		led(t, w, func(*registration.Controller) {
			rest(30 * time.Second)
			require.Contains(t, w.names(t), "templates")
		})
		led(t, w, func(*registration.Controller) {
			rest(30 * time.Second)
			require.Contains(t, w.names(t), "templates", "each leader waits itself")
			w.set(func() { w.current = nil })
			rest(3 * time.Minute)
		})
		require.Contains(t, w.names(t), "templates", "without any policies read nothing goes")
	})
}

func TestNoReplicaTakesNoWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(true))...)
		led(t, w, func(c *registration.Controller) {
			w.enforce(guarding("a"))
			before := w.names(t)
			require.NoError(t, w.Delete(t.Context(), endpoints(true)))
			w.enforce(guarding())
			rest(3 * time.Minute)
			require.Equal(t, before, w.names(t))
			_, message := c.Registered()
			require.Equal(t, "No replica is ready to answer reviews.", message)

			// The CA is another one: without it no replica would become ready.
			v := w.validating(t)
			v.Annotations[certs.AnnotationBundle] = "next"
			require.NoError(t, w.Update(t.Context(), v))
			rest(5 * time.Second)
			require.Equal(t, "next", string(w.validating(t).Webhooks[0].ClientConfig.CABundle))
			require.Equal(t, before, w.names(t))
		})
	})
}

func TestEditsAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(true))...)
		led(t, w, func(c *registration.Controller) {
			want := w.validating(t).Webhooks
			v := w.validating(t)
			v.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
			v.Webhooks[1].MatchConditions = append(v.Webhooks[1].MatchConditions, admissionregistrationv1.MatchCondition{Name: "never", Expression: "false"})
			v.Webhooks = append(v.Webhooks[:3], v.Webhooks[4:]...)
			require.NoError(t, w.Update(t.Context(), v))
			require.False(t, c.Wrote(v))
			w.tell(v)
			rest(time.Second)
			require.Equal(t, want, w.validating(t).Webhooks)
			registered(t, c)
		})
	})
}

func TestADeletedConfigurationStaysDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(true))...)
		led(t, w, func(c *registration.Controller) {
			gone := w.validating(t)
			require.NoError(t, w.Delete(t.Context(), gone))
			w.tell(gone)
			rest(9 * time.Second)
			require.True(t, apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(gone), gone)))
			_, message := c.Registered()
			require.Equal(t, "The validating webhook configuration tollgate does not exist: Tollgate is not called.", message)
			require.Contains(t, w.messages, message, "policies are looked at again")

			// The manifest is applied again, and replicas annotate the bundle.
			require.NoError(t, w.Create(t.Context(), installed()[0]))
			rest(2 * time.Second)
			registered(t, c)
			require.NotEmpty(t, w.validating(t).Webhooks)
		})
	})
}

// As after a rollback to manifests with webhooks, while the replica that registers them still leads.
func TestAConfigurationThatIsNotForTheLeaderIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(true))...)
		led(t, w, func(c *registration.Controller) {
			v := w.validating(t)
			delete(v.Annotations, registration.AnnotationRegistration)
			v.Webhooks = []admissionregistrationv1.ValidatingWebhook{{Name: "validate.tollgate.dev"}}
			require.NoError(t, w.Update(t.Context(), v))
			w.tell(v)
			w.enforce(guarding("a"))
			rest(3 * time.Minute)
			require.Len(t, w.validating(t).Webhooks, 1)
			ok, message := c.Registered()
			require.False(t, ok)
			require.Equal(t, "The validating webhook configuration tollgate is not installed for webhook.registration Managed: apply the manifests that are,"+
				" which annotate it with tollgate.dev/registration=Managed.", message)

			v = w.validating(t)
			v.Annotations[registration.AnnotationRegistration] = "Managed"
			require.NoError(t, w.Update(t.Context(), v))
			w.tell(v)
			rest(2 * time.Second)
			registered(t, c)
			require.Contains(t, w.names(t), "templates")
			require.NotContains(t, w.names(t), "validate")
		})
	})
}

func TestWithoutABundleNothingIsRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := append(installed(), endpoints(true))
		for _, o := range objects[:2] {
			o.SetAnnotations(map[string]string{registration.AnnotationRegistration: "Managed"})
		}
		w := newWorld(objects...)
		led(t, w, func(c *registration.Controller) {
			require.Empty(t, w.names(t))
			_, message := c.Registered()
			require.Equal(t, "No replica has written a CA bundle yet.", message)
		})
	})
}

func TestAWriterThatRevertsDoesNotKeepThisOneBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(append(installed(), endpoints(true))...)
		led(t, w, func(c *registration.Controller) {
			stop := make(chan struct{})
			var reverting sync.WaitGroup
			reverting.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(200 * time.Millisecond):
					}
					v := w.validating(t)
					v.Webhooks = nil
					if w.Update(t.Context(), v) == nil {
						w.tell(v)
					}
				}
			})
			rest(20 * time.Second)
			close(stop)
			reverting.Wait()
			w.mu.Lock()
			writes := len(w.patched)
			w.mu.Unlock()
			require.Less(t, writes, 80)
			rest(time.Minute)
			registered(t, c)
		})
	})
}
