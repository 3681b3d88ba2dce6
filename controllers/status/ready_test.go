package status

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// world is an API server with policies.
type world struct {
	client.Client

	mu       sync.Mutex
	current  *policyset.Set
	handlers []toolscache.ResourceEventHandler
	changed  chan struct{}
	reads    int
	writes   int
	err      error
	// before is called before each write, nil for nothing.
	before func()
	// registration is for the controller, nil for nothing.
	registration func() (registered bool, message string)
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	w := &world{changed: make(chan struct{}, 1)}
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				w.mu.Lock()
				w.reads++
				w.mu.Unlock()
				return c.Get(ctx, key, obj, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				w.mu.Lock()
				w.writes++
				err, before := w.err, w.before
				w.mu.Unlock()
				if before != nil {
					before()
				}
				if err != nil {
					return err
				}
				if err := c.SubResource(subresource).Patch(ctx, obj, patch, opts...); err != nil {
					return err
				}
				w.tell(obj)
				return nil
			},
		}).Build()
	return w
}

func (w *world) GetInformer(_ context.Context, obj client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return &fakeInformer{world: w, object: obj}, nil
}

type fakeInformer struct {
	cache.Informer

	world  *world
	object client.Object
}

func (f *fakeInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	f.world.mu.Lock()
	f.world.handlers = append(f.world.handlers, handler)
	f.world.mu.Unlock()
	if err := f.world.Get(context.Background(), types.NamespacedName{Name: "p"}, f.object); err == nil {
		handler.OnAdd(f.object, true)
	}
	return nil, nil //nolint:nilnil // It is only handed back.
}

func (f *fakeInformer) RemoveEventHandler(toolscache.ResourceEventHandlerRegistration) error {
	return nil
}

// tell tells all of an object, whatever their kind: names are all that counts.
func (w *world) tell(object client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, handler := range w.handlers {
		handler.OnUpdate(object, object)
	}
}

// Current implements policies.
func (w *world) Current() *policyset.Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current
}

// Subscribe implements policies.
func (w *world) Subscribe() (<-chan struct{}, func()) { return w.changed, func() {} }

// enforce puts policies into force.
func (w *world) enforce(policies ...v1alpha1.GatePolicy) {
	w.mu.Lock()
	w.current = w.current.WithGates(policies)
	w.mu.Unlock()
	w.changed <- struct{}{}
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// condition returns what a policy says, and whether it says so of its generation.
func (w *world) condition(t *testing.T, object client.Object, conditions *[]metav1.Condition) *metav1.Condition {
	t.Helper()
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Name: "p"}, object))
	return meta.FindStatusCondition(*conditions, v1alpha1.ConditionReady)
}

// led runs test while a controller runs.
func led(t *testing.T, w *world, enabled func(policyset.Kind) bool, test func()) {
	t.Helper()
	c := NewReady(controller.Base{
		Cache: w, Status: w.Status(), Policies: w, Clock: clock.RealClock{}, Local: clock.RealClock{},
		Leads: func() bool { return true }, Timeout: time.Second,
	}, enabled, w.registration)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Start(ctx) }()
	rest(time.Second)
	test()
	stop()
	require.NoError(t, <-done)
}

func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func all(policyset.Kind) bool { return true }

func none(policyset.Kind) bool { return false }

func named(generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "p", UID: "p", Generation: generation}
}

func gatePolicy(generation int64, gates ...string) *v1alpha1.GatePolicy {
	return &v1alpha1.GatePolicy{ObjectMeta: named(generation), Spec: v1alpha1.GatePolicySpec{Gates: gates}}
}

func TestAPolicySaysThatItIsInForceOnceItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := gatePolicy(3, "example.com/a")
		w := newWorld(t, object)
		led(t, w, all, func() {
			rest(time.Minute)
			require.Nil(t, w.condition(t, object, &object.Status.Conditions), "no replica judges by it yet")
			w.enforce(*gatePolicy(2, "example.com/a"))
			rest(time.Minute)
			require.Nil(t, w.condition(t, object, &object.Status.Conditions), "this replica judges by what it was")
			w.mu.Lock()
			require.LessOrEqual(t, w.reads, len(policyset.Kinds())*2+3, "who waits does not ask")
			w.mu.Unlock()
			w.enforce(*gatePolicy(3, "example.com/a"))
			rest(time.Second)
			condition := w.condition(t, object, &object.Status.Conditions)
			require.Equal(t, metav1.ConditionTrue, condition.Status)
			require.Equal(t, reasonInForce, condition.Reason)
			require.EqualValues(t, 3, condition.ObservedGeneration)
			require.EqualValues(t, 3, object.Status.ObservedGeneration)
			writes := w.count()
			w.tell(object)
			rest(time.Hour)
			require.Equal(t, writes, w.count(), "what is said is not said again")

			object.Status.Conditions = nil
			require.NoError(t, w.Status().Update(t.Context(), object))
			w.tell(object)
			rest(time.Second)
			require.NotNil(t, w.condition(t, object, &object.Status.Conditions), "somebody had removed it")
		})
	})
}

func TestAPolicyIsReadyOnceItsWebhooksAreRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := gatePolicy(1, "example.com/a")
		w := newWorld(t, object)
		w.current = w.current.WithGates([]v1alpha1.GatePolicy{*object})
		registered, message := false, ""
		w.registration = func() (bool, string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return registered, message
		}
		say := func(r bool, m string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			registered, message = r, m
		}
		led(t, w, all, func() {
			require.Nil(t, w.condition(t, object, &object.Status.Conditions), "they are being registered")
			say(false, "There is no configuration.")
			rest(time.Second)
			condition := w.condition(t, object, &object.Status.Conditions)
			require.Equal(t, metav1.ConditionFalse, condition.Status)
			require.Equal(t, reasonNotRegistered, condition.Reason)
			require.Equal(t, "There is no configuration.", condition.Message)
			say(true, "")
			w.tell(object)
			rest(time.Second)
			require.Equal(t, reasonInForce, w.condition(t, object, &object.Status.Conditions).Reason)
		})
	})
}

func TestD03APolicyThatIsNotValidSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := gatePolicy(1, "a b")
		w := newWorld(t, object)
		w.current = w.current.WithGates([]v1alpha1.GatePolicy{*object})
		led(t, w, all, func() {
			condition := w.condition(t, object, &object.Status.Conditions)
			require.Equal(t, metav1.ConditionFalse, condition.Status)
			require.Equal(t, reasonPartOfIt, condition.Reason)
			require.Contains(t, condition.Message, "spec.gates[0]")
		})
	})
}

func TestAPolicyOfAKindThatIsSwitchedOffSaysSo(t *testing.T) {
	for gate, object := range map[string]client.Object{
		"TolerationPolicies": &v1alpha1.TolerationPolicy{ObjectMeta: named(1)},
		"PlacementPolicies":  &v1alpha1.PlacementPolicy{ObjectMeta: named(1)},
		"TaintPolicies":      &v1alpha1.TaintPolicy{ObjectMeta: named(1)},
		"GatePolicies":       &v1alpha1.GatePolicy{ObjectMeta: named(1)},
		"EvictionPolicies":   &v1alpha1.EvictionPolicy{ObjectMeta: named(1)},
	} {
		t.Run(gate, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, object)
				led(t, w, none, func() {
					require.NoError(t, w.Get(t.Context(), types.NamespacedName{Name: "p"}, object))
					for _, k := range policyset.Kinds() {
						if k.Gate != gate {
							continue
						}
						_, conditions := k.Status(object)
						require.Equal(t, reasonDisabled, (*conditions)[0].Reason)
						require.Contains(t, (*conditions)[0].Message, gate)
					}
				})
			})
		})
	}
}

func TestWhatOthersSayOfAnEvictionPolicyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &v1alpha1.EvictionPolicy{ObjectMeta: named(3)}
		object.Spec.Taints = []v1alpha1.TaintSelector{{Key: "a"}}
		held := metav1.Condition{Type: "Held", Status: metav1.ConditionTrue, Reason: "BreakerTripped", LastTransitionTime: metav1.Unix(1, 0)}
		object.Status = v1alpha1.EvictionPolicyStatus{
			Held: 7, Holding: []v1alpha1.HeldEvictions{{Kind: "Node", Name: "n", Pods: 7}}, Conditions: []metav1.Condition{held},
			Breaker: &v1alpha1.EvictionBreakerStatus{Granted: []v1alpha1.BreakerGrant{{Until: metav1.NewMicroTime(time.Unix(2, 0)), Pods: 5}}},
		}
		want := object.Status.DeepCopy()
		w := newWorld(t, object)
		w.current = w.current.WithEvictions([]v1alpha1.EvictionPolicy{*object})
		led(t, w, all, func() {
			require.Equal(t, reasonInForce, w.condition(t, object, &object.Status.Conditions).Reason)
			require.EqualValues(t, 3, object.Status.ObservedGeneration)
			require.Equal(t, 1, w.count())
			meta.RemoveStatusCondition(&object.Status.Conditions, v1alpha1.ConditionReady)
			object.Status.ObservedGeneration = 0
			for _, status := range []*v1alpha1.EvictionPolicyStatus{want, &object.Status} { // times come back in another zone
				status.Conditions[0].LastTransitionTime = metav1.Time{}
				status.Breaker.Granted[0].Until = metav1.NewMicroTime(status.Breaker.Granted[0].Until.UTC())
			}
			require.Equal(t, *want, object.Status)
		})
	})
}

func TestAStatusThatSomebodyElseWritesMeanwhileIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := &v1alpha1.EvictionPolicy{ObjectMeta: named(1)}
		object.Spec.Taints = []v1alpha1.TaintSelector{{Key: "a"}}
		w := newWorld(t, object)
		w.current = w.current.WithEvictions([]v1alpha1.EvictionPolicy{*object})
		once := sync.OnceFunc(func() {
			breaker := &v1alpha1.EvictionPolicy{}
			require.NoError(t, w.Get(t.Context(), types.NamespacedName{Name: "p"}, breaker))
			breaker.Status.Held = 9
			require.NoError(t, w.Status().Update(t.Context(), breaker))
		})
		w.before = once
		led(t, w, all, func() {
			require.NotNil(t, w.condition(t, object, &object.Status.Conditions))
			require.EqualValues(t, 9, object.Status.Held)
			require.Equal(t, 2, w.count(), "the first attempt is of an older version")
		})
	})
}

func TestAStatusThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := gatePolicy(1, "a")
		w := newWorld(t, object)
		w.err, w.current = errors.New("away"), w.current.WithGates([]v1alpha1.GatePolicy{*object})
		led(t, w, all, func() {
			w.mu.Lock()
			w.err = nil
			w.mu.Unlock()
			rest(time.Minute)
			require.NotNil(t, w.condition(t, object, &object.Status.Conditions))
		})
	})
}

func TestAConditionIsNotTooLong(t *testing.T) {
	kind := policyset.Kind{Validate: func(policyset.Object) field.ErrorList {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), strings.Repeat("ä", maxMessage), "is long")}
	}}
	condition := (&ReadyController{enabled: all}).readyCondition(&kind, &v1alpha1.TolerationPolicy{})
	require.LessOrEqual(t, len(condition.Message), maxMessage+len("..."))
	require.True(t, strings.HasSuffix(condition.Message, "..."))
}

// guardPolicy returns a PlacementPolicy with a guard that registers a taint.
func guardPolicy() *v1alpha1.PlacementPolicy {
	return &v1alpha1.PlacementPolicy{ObjectMeta: named(1), Spec: v1alpha1.PlacementPolicySpec{
		Match: v1alpha1.PlacementMatch{Namespaces: []string{"banana"}},
		Guard: &v1alpha1.PlacementGuard{
			Taints:   []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: "banana", Effect: "NoSchedule"}},
			Register: &v1alpha1.GuardRegistration{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "banana"}}},
		},
	}}
}

func TestTheStatusShowsThePoliciesThatAGuardStandsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := guardPolicy()
		w := newWorld(t, object)
		w.current = w.current.WithPlacement([]v1alpha1.PlacementPolicy{*object})
		led(t, w, all, func() {
			require.Equal(t, reasonInForce, w.condition(t, object, &object.Status.Conditions).Reason)
			require.Equal(t, []v1alpha1.TolerationGrant{{Namespaces: []string{"banana"}}}, object.Status.Guard.TolerationPolicy.Grants)
			require.Equal(t, "dedicated", object.Status.Guard.TaintPolicy.Register[0].Taints[0].Key)
			writes := w.count()
			w.tell(object)
			rest(time.Hour)
			require.Equal(t, writes, w.count(), "an unchanged status is not written again")

			object.Spec.Pod, object.Spec.Guard, object.Generation = &v1alpha1.PodPlacement{SchedulingGates: []string{"a"}}, nil, 2
			require.NoError(t, w.Update(t.Context(), object))
			w.mu.Lock()
			w.current = w.current.WithPlacement([]v1alpha1.PlacementPolicy{*object})
			w.mu.Unlock()
			w.tell(object)
			rest(time.Second)
			require.EqualValues(t, 2, w.condition(t, object, &object.Status.Conditions).ObservedGeneration)
			require.Nil(t, object.Status.Guard)
		})
	})
}

func TestAGuardNeedsTheKindsThatItStandsFor(t *testing.T) {
	for off, want := range map[string]string{"TolerationPolicy": "TolerationPolicies", "TaintPolicy": "TaintPolicies"} {
		t.Run(off, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				object := guardPolicy()
				w := newWorld(t, object)
				w.current = w.current.WithPlacement([]v1alpha1.PlacementPolicy{*object})
				led(t, w, func(k policyset.Kind) bool { return k.Name != off }, func() {
					condition := w.condition(t, object, &object.Status.Conditions)
					require.Equal(t, reasonPartOfIt, condition.Reason)
					require.Equal(t, "spec.guard: Forbidden: needs the feature gate "+want+", which is off", condition.Message)
					require.Equal(t, off != "TolerationPolicy", object.Status.Guard.TolerationPolicy != nil, "the status shows what is in force")
					require.Equal(t, off != "TaintPolicy", object.Status.Guard.TaintPolicy != nil, "the status shows what is in force")
				})
			})
		})
	}
}
