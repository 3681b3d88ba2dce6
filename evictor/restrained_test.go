package evictor

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// policyStore is where the evictor of a test gets its policies from.
type policyStore struct {
	mu  sync.Mutex
	all map[string]v1alpha1.EvictionPolicy
	set *eviction.Set
}

func (p *policyStore) current() *eviction.Set {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set
}

func (p *policyStore) change(change func(map[string]v1alpha1.EvictionPolicy)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]v1alpha1.EvictionPolicy{}
	}
	change(p.all)
	var list []v1alpha1.EvictionPolicy
	for _, policy := range p.all {
		list = append(list, policy)
	}
	p.set = eviction.Compile(list)
}

// newPolicy returns a policy over every taint of nodes and devices that is not the
// system's, and over the keys that are given.
func newPolicy(name string, change func(*v1alpha1.EvictionPolicySpec), keys ...string) v1alpha1.EvictionPolicy {
	policy := v1alpha1.EvictionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-policy-uid"), Generation: 1}}
	if len(keys) == 0 {
		keys = []string{"*"}
	}
	for _, target := range []v1alpha1.TaintTarget{v1alpha1.TaintTargetNode, v1alpha1.TaintTargetDevice} {
		for _, key := range keys {
			policy.Spec.Taints = append(policy.Spec.Taints, v1alpha1.TaintSelector{Target: target, Key: key})
		}
	}
	if change != nil {
		change(&policy.Spec)
	}
	return policy
}

// evictionSpec is short for what tests change.
type evictionSpec = v1alpha1.EvictionPolicySpec

func paused(spec *v1alpha1.EvictionPolicySpec) { spec.Paused = true }

func byEviction(spec *v1alpha1.EvictionPolicySpec) { spec.Method = v1alpha1.EvictionMethodEvict }

func deleteAfter(d time.Duration) func(*v1alpha1.EvictionPolicySpec) {
	return func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Method, spec.DeleteAfter = v1alpha1.EvictionMethodEvict, &metav1.Duration{Duration: d}
	}
}

func paced(perSecond, burst int32) func(*v1alpha1.EvictionPolicySpec) {
	return func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Pace = &v1alpha1.EvictionPace{PodsPerSecond: perSecond, Burst: burst}
	}
}

func bounded(spec *v1alpha1.EvictionPolicySpec) {
	spec.Breaker = &v1alpha1.EvictionBreaker{MaxPods: new(int32(1))}
}

// setPolicy creates or replaces policies, and tells the evictor if it runs.
func (w *world) setPolicy(policies ...v1alpha1.EvictionPolicy) {
	w.policies.change(func(all map[string]v1alpha1.EvictionPolicy) {
		for _, policy := range policies {
			all[policy.Name] = policy
		}
	})
	w.policiesChanged()
}

// dropPolicy deletes a policy.
func (w *world) dropPolicy(name string) {
	w.policies.change(func(all map[string]v1alpha1.EvictionPolicy) { delete(all, name) })
	w.policiesChanged()
}

func (w *world) policiesChanged() {
	if w.evictor != nil {
		w.evictor.PoliciesChanged()
		w.pass(0)
	}
}

// rooms are breakers that let so many pods go in all. They know which have gone, so that
// leave that was not used is not lost; with more than one worker they let too many go.
type rooms struct {
	gone func() int

	mu   sync.Mutex
	room int
	// wait is what is answered while it is positive: leave is being written.
	wait  time.Duration
	asked int
}

func (r *rooms) Ask(_ checks.Now, of *checks.Eviction) checks.Answer {
	policies := of.Treatment.Breakers
	if len(policies) == 0 {
		return checks.Answer{}
	}
	gone := r.gone()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	switch {
	case r.wait > 0:
		return checks.Answer{Wait: r.wait}
	case gone >= r.room:
		return trippedBy(of, policies[len(policies)-1])
	}
	return checks.Answer{}
}

func (r *rooms) set(room int, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.room, r.wait = room, wait
}

func (r *rooms) times() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// labelled returns a pod with the labels "app" and, if there are two, "app2".
func labelled(pod *corev1.Pod, values ...string) *corev1.Pod {
	pod.Labels = map[string]string{}
	for i, value := range values {
		pod.Labels[[]string{"app", "app2"}[i]] = value
	}
	return pod
}

// newBudget returns a budget that guards the pods with its name in one of their labels.
func newBudget(name, version string, allowed int) tracker.Budget {
	selector, err := labels.Parse("app=" + name)
	if err != nil {
		panic(err)
	}
	return tracker.Budget{
		Namespace: "default", Name: name, UID: types.UID(name + "-budget-uid"), ResourceVersion: version,
		Selector: selector, Allowed: int32(allowed),
	}
}

// selectTeam returns a selector of namespaces.
func selectTeam(team string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
}

// podName returns the name of the pod with a number.
func podName(i int) string { return "p" + strconv.Itoa(i) }
