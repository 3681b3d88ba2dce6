package breaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

const attemptTimeout = 3 * time.Second

var errLost = errors.New("connection lost")

// store is an API server with EvictionPolicies and EvictionApprovals, and the network before it.
type store struct {
	mu        sync.Mutex
	version   int
	policies  map[string]*v1alpha1.EvictionPolicy
	approvals map[string]*v1alpha1.EvictionApproval
	// compiled are the policies as compiled after the last change of one; nil until they are asked for.
	compiled *eviction.Set
	writes   int
	reads    int
	// fault returns the fault of the next request; nil for no faults.
	fault func(write bool) fault
	// after is called after each write that was carried out, without the lock.
	after func()
	// trace has the grants of each write, for the log of a test that fails.
	trace []string
	// most is the highest number of grants that a status had.
	most int
}

// fault is a fault of a request.
type fault struct {
	// delay is the time until the request is carried out, and answer the time from then to the answer.
	delay, answer time.Duration
	// refused is true if the request fails, and lost if its answer is lost. A write whose answer is lost is
	// carried out after late.
	refused, lost bool
	late          time.Duration
	// err is the error of a request that fails; nil for an internal error.
	err error
}

func newStore() *store {
	return &store{policies: map[string]*v1alpha1.EvictionPolicy{}, approvals: map[string]*v1alpha1.EvictionApproval{}}
}

func (s *store) next(ctx context.Context, write bool) (fault, error) {
	s.mu.Lock()
	var f fault
	if write {
		s.writes++
	} else {
		s.reads++
	}
	if s.fault != nil {
		f = s.fault(write)
	}
	s.mu.Unlock()
	if err := pause(ctx, f.delay); err != nil {
		return f, err
	}
	if f.refused && f.err != nil {
		return f, f.err
	}
	if f.refused {
		return f, apierrors.NewInternalError(errLost)
	}
	return f, nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (s *store) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	f, err := s.next(ctx, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	found := false
	switch into := obj.(type) {
	case *v1alpha1.EvictionPolicy:
		var p *v1alpha1.EvictionPolicy
		if p, found = s.policies[key.Name]; found {
			p.DeepCopyInto(into)
		}
	case *v1alpha1.EvictionApproval:
		var a *v1alpha1.EvictionApproval
		if a, found = s.approvals[key.Name]; found {
			a.DeepCopyInto(into)
		}
	}
	s.mu.Unlock()
	if err := pause(ctx, f.answer); err != nil {
		return err
	}
	if f.lost {
		return errLost
	}
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Group: "tollgate.dev"}, key.Name)
	}
	return nil
}

func (s *store) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.approvals {
		list.(*v1alpha1.EvictionApprovalList).Items = append(list.(*v1alpha1.EvictionApprovalList).Items, *a.DeepCopy())
	}
	return nil
}

func (s *store) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	f, err := s.next(ctx, true)
	if err != nil {
		return err
	}
	if f.lost && f.late > 0 {
		go func() {
			time.Sleep(f.late)
			_ = s.apply(obj, data) // The caller has its answer already.
		}()
		return errLost
	}
	if err := s.apply(obj, data); err != nil {
		return err
	}
	if s.after != nil {
		s.after()
	}
	if err := pause(ctx, f.answer); err != nil {
		return err
	}
	if f.lost {
		return errLost
	}
	return nil
}

func (s *store) apply(obj client.Object, change []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stored client.Object
	switch obj.(type) {
	case *v1alpha1.EvictionPolicy:
		if p, ok := s.policies[obj.GetName()]; ok {
			stored = p
		}
	case *v1alpha1.EvictionApproval:
		if a, ok := s.approvals[obj.GetName()]; ok {
			stored = a
		}
	}
	if stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, obj.GetName())
	}
	var precondition struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(change, &precondition); err != nil {
		return err
	}
	if precondition.Metadata.ResourceVersion != stored.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, obj.GetName(), errors.New("it was changed"))
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, change)
	if err != nil {
		return err
	}
	s.version++
	switch stored := stored.(type) {
	case *v1alpha1.EvictionPolicy:
		written := &v1alpha1.EvictionPolicy{}
		if err := json.Unmarshal(after, written); err != nil {
			return err
		}
		stored.Status = written.Status
		if b := stored.Status.Breaker; b != nil {
			s.trace = append(s.trace, fmt.Sprintf("%s %s has %v", time.Now().Format(time.TimeOnly+".000"), obj.GetName(), b.Granted))
			s.most = max(s.most, len(b.Granted))
		}
	case *v1alpha1.EvictionApproval:
		written := &v1alpha1.EvictionApproval{}
		if err := json.Unmarshal(after, written); err != nil {
			return err
		}
		stored.Status = written.Status
	}
	stored.SetResourceVersion(strconv.Itoa(s.version))
	return nil
}

// change changes a policy, and creates it if there is none.
func (s *store) change(name string, change func(*v1alpha1.EvictionPolicy)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.policies[name]
	if !ok {
		p = &v1alpha1.EvictionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)}}
		p.Spec.Taints = []v1alpha1.TaintSelector{{Key: "*"}}
		s.policies[name] = p
	}
	before := p.DeepCopy().Spec
	change(p)
	if !equality.Semantic.DeepEqual(before, p.Spec) || p.Generation == 0 {
		p.Generation++
	}
	s.version++
	p.ResourceVersion = strconv.Itoa(s.version)
	s.compiled = nil
}

// remove deletes a policy.
func (s *store) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.policies, name)
	s.compiled = nil
}

func (s *store) status(name string) v1alpha1.EvictionPolicyStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policies[name].DeepCopy().Status
}

func (s *store) approve(name string, change func(*v1alpha1.EvictionApproval)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &v1alpha1.EvictionApproval{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name + time.Now().String()), CreationTimestamp: metav1.Now(),
	}}
	a.Spec = v1alpha1.EvictionApprovalSpec{
		Node: "n", MaxPods: 1, ExpiresAfter: metav1.Duration{Duration: time.Hour},
		Taint: v1alpha1.ApprovedTaint{Key: "broken", Effect: corev1.TaintEffectNoExecute},
	}
	change(a)
	s.version++
	a.ResourceVersion = strconv.Itoa(s.version)
	s.approvals[name] = a
}

func (s *store) released(name string) v1alpha1.EvictionApprovalStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.approvals[name].DeepCopy().Status
}

// set returns the policies in force.
func (s *store) set() *eviction.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compiled == nil {
		var list []v1alpha1.EvictionPolicy
		for _, p := range s.policies {
			list = append(list, *p.DeepCopy())
		}
		s.compiled = eviction.Compile(list)
	}
	return s.compiled
}

// replica is a keeper and the rest of its process.
type replica struct {
	*Keeper

	stop context.CancelFunc
	done chan error

	mu       sync.Mutex
	live     int
	held     map[types.UID]int
	settled  bool
	released []types.UID
	events   []string
	standing tracker.Taint
	// ahead is the error of its clock of the API server.
	ahead time.Duration
	// unsure is true while it may have lost the lease.
	unsure bool
	// old is the set of policies in force on it; nil for those of the API server.
	old *eviction.Set
}

func (r *replica) locked(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *replica) Eventf(_ runtime.Object, eventType, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, eventType+" "+reason+": "+fmt.Sprintf(format, args...))
}

func (r *replica) sentEvents() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.events...)
}

// offClock is a clock of the API server that is ahead.
type offClock struct{ replica *replica }

func (c offClock) Now() time.Time {
	c.replica.mu.Lock()
	defer c.replica.mu.Unlock()
	return time.Now().Add(c.replica.ahead)
}
func (c offClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func newReplica(s *store) *replica {
	r := &replica{live: 1000, held: map[types.UID]int{}, settled: true}
	r.Keeper = New(Options{
		API: API{Reader: s, Status: s, Approvals: s, Recorder: r},
		Cluster: Cluster{
			Policies: func() *eviction.Set {
				r.mu.Lock()
				old := r.old
				r.mu.Unlock()
				if old != nil {
					return old
				}
				return s.set()
			},
			Live: func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.live },
			Standing: func(source tracker.Source, key string) (first, last tracker.Taint, ok bool) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.standing, r.standing, source.Name == "n" && key == "broken" && !r.standing.TimeAdded.IsZero()
			},
		},
		Lease: Lease{Leads: func() bool { r.mu.Lock(); defer r.mu.Unlock(); return !r.unsure }, Timeout: attemptTimeout},
		Clock: offClock{r}, Local: clock.RealClock{},
		Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
	})
	r.Follow(r)
	return r
}

// HeldByPolicy implements evictor.
func (r *replica) HeldByPolicy() map[types.UID]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held)
}

// Settled implements evictor.
func (r *replica) Settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled
}

// WakeHeld implements evictor.
func (r *replica) WakeHeld(policy types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = append(r.released, policy)
}

// lead begins a term.
func (r *replica) lead(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r.stop, r.done = stop, make(chan error, 1)
	go func() { r.done <- r.Start(ctx) }()
}

// retire ends a term.
func (r *replica) retire(t *testing.T) {
	t.Helper()
	r.stop()
	require.NoError(t, <-r.done)
}

var cause = &tracker.Taint{Source: tracker.Source{Kind: tracker.SourceNode, Name: "n"}, Key: "broken", Effect: corev1.TaintEffectNoExecute}

// Answer is what the Keeper answers, as tests look at it. Exactly one of its fields is set.
type Answer struct {
	Permit *Permit
	HeldBy *eviction.Policy
	Wait   time.Duration
}

// Permit allows one pod to be evicted.
type Permit struct{ undo func(checks.Now, checks.End) }

func (p *Permit) Settle(evicted bool) {
	switch {
	case p.undo == nil:
	case evicted:
		p.undo(checks.Now{}, checks.Left)
	default:
		p.undo(checks.Now{}, checks.Stayed)
	}
}

// Ask asks the Keeper about a pod, because of a taint.
func (r *replica) Ask(pod types.UID, policies []*eviction.Policy, taint *tracker.Taint) Answer {
	of := &checks.Eviction{Reason: &decide.Reason{Taint: *taint}, Pod: &tracker.Pod{Key: tracker.Key{UID: pod}}}
	of.Treatment.Breakers = slices.DeleteFunc(slices.Clone(policies), func(p *eviction.Policy) bool { return p.Breaker == nil })
	switch answer := r.Keeper.Ask(checks.Now{}, of); {
	case answer.Hold != nil:
		at := slices.IndexFunc(policies, func(p *eviction.Policy) bool { return p.UID == answer.Hold.Policy })
		return Answer{HeldBy: policies[at], Wait: answer.Wait}
	case answer.Wait > 0:
		return Answer{Wait: answer.Wait}
	default:
		return Answer{Permit: &Permit{answer.Undo}}
	}
}

// policies returns the policies in force with these names.
func (r *replica) policies(names ...string) []*eviction.Policy {
	set := r.options.Policies()
	var list []*eviction.Policy
	for _, name := range names {
		list = append(list, set.ByUID(types.UID("uid of "+name)))
	}
	return list
}

// try asks for a number of new pods, and returns how many of them get a permit and how many are held.
func (r *replica) try(pods int, names ...string) (gone, held int) {
	for range pods {
		switch answer := r.answer(names...); {
		case answer.Permit != nil:
			answer.Permit.Settle(true)
			gone++
		case answer.HeldBy != nil:
			held++
		}
	}
	return gone, held
}

// holding returns the names of the policies whose breakers are tripped, as the replica last read them.
func (r *replica) holding() []string {
	r.Keeper.mu.Lock()
	defer r.Keeper.mu.Unlock()
	var names []string
	for _, l := range r.ledgers {
		if l.tripped() {
			names = append(names, l.name)
		}
	}
	return names
}

// newUID returns the UID of a pod that has not asked yet.
func newUID() types.UID { return uuid.NewUUID() }

// answer asks for a new pod until it does not have to wait, at most for a minute.
func (r *replica) answer(names ...string) Answer { return r.answerFor(newUID(), names...) }

// answerFor does the same for a pod.
func (r *replica) answerFor(pod types.UID, names ...string) Answer {
	var answer Answer
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		answer = r.Ask(pod, r.policies(names...), cause)
		if answer.Wait == 0 {
			return answer
		}
		time.Sleep(answer.Wait)
	}
	return answer
}

func (r *replica) goes(t *testing.T, want int, names ...string) {
	t.Helper()
	gone, held := r.try(want+1, names...)
	require.Equal(t, want, gone)
	require.Equal(t, 1, held)
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// bounded returns a change that gives a policy a breaker.
func bounded(pods int32, window time.Duration) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) {
		p.Spec.Breaker = &v1alpha1.EvictionBreaker{MaxPods: new(pods), Window: metav1.Duration{Duration: window}}
	}
}

// led runs a test with a replica that leads and a policy "p", which change changes.
func led(t *testing.T, change func(*v1alpha1.EvictionPolicy), test func(t *testing.T, s *store, r *replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.change("p", change)
		r := newReplica(s)
		r.lead(t)
		test(t, s, r)
		r.retire(t)
	})
}

func seeded(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}
