package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// engine simulates the evictions of a cluster. It decides with the functions of Tollgate, asks the
// checks that they ask, and moves the time of the cluster from one event to the next. No pod is
// replaced, and a pod is gone as soon as it is evicted.
type engine struct {
	*state.Cluster

	shown  *evictions.Cluster
	teller *Teller
	force  bool
	begin  time.Time
	steps  []step
	// wakes are the times at which pods are decided about again.
	wakes map[tracker.Key]time.Time
	queue *ratelimit.Queue
	// breakers are the breakers of policies that have counted a pod, by UID.
	breakers map[types.UID]*breaker
	held     map[tracker.Key]held
	document simulation
}

// held is a pod that is due and held, since a time in seconds from the beginning.
type held struct {
	evictions.Eviction

	since float64
}

// breaker counts the pods that a policy lets go.
type breaker struct {
	policy *eviction.Policy
	// gone are the times at which pods left, ascending.
	gone []time.Time
	// tripped is when the breaker tripped; zero while it has not.
	tripped time.Time
}

// play simulates steps on a cluster, from its time on, until nothing more happens, at most for a time.
// Force applies steps that the limits of TaintPolicies refuse.
func play(ctx context.Context, cluster *state.Cluster, steps []step, lasts time.Duration, force bool) (*simulation, error) {
	begin := cluster.Now.Truncate(time.Second) // As times of taints are.
	cluster.Now = begin
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	e := &engine{
		Cluster: cluster, shown: evictions.NewCluster(cluster), teller: TellerOf(cluster), force: force, begin: begin, steps: steps,
		wakes: map[tracker.Key]time.Time{}, queue: ratelimit.NewQueue(), breakers: map[types.UID]*breaker{}, held: map[tracker.Key]held{},
		document: simulation{
			APIVersion: "cli.tollgate.dev/v1alpha1", Kind: "Simulation", Begin: metav1.NewTime(begin),
			Steps: []stepDone{}, Left: []left{}, Held: []holding{}, Waiting: []waiting{},
		},
	}
	e.shown.Disruption = &checks.NodeDisruption{}
	e.wake(cluster.Tracker.Exposed(), begin)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("simulate: %w", err)
		}
		called, in := e.queue.Next(e.Now)
		e.wake(called, e.Now)
		next := e.next(in)
		if next.IsZero() || next.After(begin.Add(lasts)) {
			break
		}
		if next.After(e.Now) {
			e.Now = next
		}
		if err := e.apply(ctx); err != nil {
			return nil, err
		}
		e.release()
		e.decide()
	}
	e.finish()
	return &e.document, nil
}

// next returns the time of the next event; zero for none. in is the time until the rate limits let
// the next pod go, zero for never.
func (e *engine) next(in time.Duration) (at time.Time) {
	consider := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if len(e.steps) > 0 {
		consider(e.begin.Add(e.steps[0].at))
	}
	for _, t := range e.wakes {
		consider(t)
	}
	if in > 0 && e.queue.Len() > 0 {
		consider(e.Now.Add(in))
	}
	for _, b := range e.breakers {
		if !b.tripped.IsZero() && len(b.gone) > 0 {
			consider(b.gone[0].Add(b.policy.Breaker.Window))
		}
	}
	return at
}

// wake has pods decided about again at a time, or earlier.
func (e *engine) wake(keys []tracker.Key, at time.Time) {
	for _, key := range keys {
		if before, ok := e.wakes[key]; !ok || at.Before(before) {
			e.wakes[key] = at
		}
	}
}

// apply applies the steps of now, and has the pods that they concern decided about.
func (e *engine) apply(ctx context.Context) error {
	for len(e.steps) > 0 && !e.begin.Add(e.steps[0].at).After(e.Now) {
		next := e.steps[0]
		e.steps = e.steps[1:]
		done := stepDone{At: next.at.Seconds(), Step: next.text}
		apply := e.applyNodes
		if next.target != nil {
			apply = e.applyDevices
		}
		if err := apply(ctx, &next, &done); err != nil {
			return fmt.Errorf("step %q: %w", next.text, err)
		}
		e.document.Steps = append(e.document.Steps, done)
		e.wake(e.Tracker.Exposed(), e.Now)
		e.wake(slices.Collect(maps.Keys(e.held)), e.Now)
	}
	return nil
}

// applyNodes applies a step to nodes.
func (e *engine) applyNodes(ctx context.Context, s *step, done *stepDone) error {
	for _, node := range e.Tracker.Nodes() {
		if !s.selects(&node) {
			continue
		}
		taints := Changed(node.Written, &s.changes)
		for i := range taints {
			if taints[i].TimeAdded == nil {
				taints[i].TimeAdded = new(metav1.NewTime(e.Now))
			}
		}
		p, err := e.teller.Node(ctx, node.Name, node.Labels.Map(), node.Written, taints)
		if err != nil {
			return err
		}
		if e.take(&p, done) {
			uid := e.Tracker.UIDOf(tracker.Source{Kind: tracker.SourceNode, Name: node.Name})
			e.Tracker.SetNode(tracker.Node{Name: node.Name, UID: uid, Taints: taints, Labels: node.Labels}, e.Now)
		}
	}
	if len(done.Effects) == 0 {
		return errors.New("there is no such node")
	}
	return nil
}

// applyDevices applies a step to devices, as DeviceTaintRules.
func (e *engine) applyDevices(ctx context.Context, s *step, done *stepDone) error {
	device := s.target.String()
	ruleName := func(taint Taint) string { return "simulated " + device + " " + taint.Key }
	for _, taint := range s.changes.Remove {
		name := ruleName(taint)
		rule, ok := e.Tracker.Rule(name)
		if !ok {
			return fmt.Errorf("no earlier step gave taint %s to device %s", taint.Key, device)
		}
		e.wake(e.Tracker.DeleteRule(name, rule.UID), e.Now)
		delete(e.Rule, name)
		done.Effects, done.Applied = append(done.Effects, "device/"+device+": taint "+taint.Key+" is gone"), true
	}
	if len(s.changes.Add) == 0 {
		return nil
	}
	p, err := e.teller.Target(ctx, s.target, s.changes.Add)
	if err != nil || !e.take(&p, done) {
		return err
	}
	for _, taint := range s.changes.Add {
		name, now := ruleName(taint), metav1.NewTime(e.Now)
		taint.TimeAdded = &now
		rule := &resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + strconv.FormatInt(now.Unix(), 10)), Generation: 1, CreationTimestamp: now},
			Spec:       s.target.RuleSpec(taint),
		}
		e.wake(e.Tracker.SetRule(tracker.RuleOf(rule), e.Now), e.Now)
		e.Rule[name] = rule
	}
	return nil
}

// take records a preview of a step, and reports whether the write is made.
func (e *engine) take(p *Preview, done *stepDone) bool {
	done.Effects = append(done.Effects, p.Sentence())
	done.Refused, done.Warnings = append(done.Refused, p.Refusals...), append(done.Warnings, p.Warnings...)
	made := e.force || len(p.Refusals) == 0
	done.Applied = done.Applied || made
	return made
}

// release resets the breakers into whose window all held pods fit again.
func (e *engine) release() {
	for _, b := range e.breakers {
		for len(b.gone) > 0 && !b.gone[0].Add(b.policy.Breaker.Window).After(e.Now) {
			b.gone = b.gone[1:]
		}
		if b.tripped.IsZero() {
			continue
		}
		waiting := 0
		for _, h := range e.held {
			if e.binds(b.policy, &h.Eviction) {
				waiting++
			}
		}
		if waiting <= b.room(e.Tracker.Live()) {
			b.tripped = time.Time{}
			e.wake(slices.Collect(maps.Keys(e.held)), e.Now)
		}
	}
}

// binds reports whether the breaker of a policy binds a pod that is due, because of any of its taints.
func (e *engine) binds(policy *eviction.Policy, due *evictions.Eviction) bool {
	situation, _ := e.Tracker.Lookup(due.Key)
	subject := decide.SubjectOf(&situation.Pod, e.shown.Namespaces)
	return slices.ContainsFunc(due.Because, func(reason decide.Reason) bool {
		way, unknown := decide.Treat(e.shown.Set, &reason, &subject)
		why, _ := checks.ByPolicy(way, unknown)
		return why == "" && !reason.At.After(e.Now) && slices.Contains(way.Breakers, policy)
	})
}

// room returns how many more pods may go, when live pods are left.
func (b *breaker) room(live int) int {
	return b.policy.Breaker.Limit(live, len(b.gone)) - len(b.gone)
}

// decide decides about the pods that are woken now, in the order of their deadlines.
func (e *engine) decide() {
	moment := e.shown.At(e.Now)
	clear(moment.Tripped)
	for uid, b := range e.breakers {
		if !b.tripped.IsZero() {
			moment.Tripped[uid] = b.tripped
		}
	}
	var due []evictions.Eviction
	for key, at := range e.wakes {
		if at.After(e.Now) {
			continue
		}
		delete(e.wakes, key)
		if one, leaves := e.look(moment, key); leaves {
			due = append(due, one)
		}
	}
	slices.SortFunc(due, evictions.Compare) // All are in the same state.
	for i := range due {
		e.evict(moment, due[i].Key)
	}
}

// look decides about a pod. It returns the eviction, if the pod has to leave now and nothing that
// the API shows holds it; else it records a hold, and wakes the pod when that ends at the latest.
func (e *engine) look(moment *evictions.Moment, key tracker.Key) (one evictions.Eviction, leaves bool) {
	situation, ok := e.Tracker.Lookup(key)
	if ok {
		one, ok = moment.Eviction(&situation)
	}
	if ok && one.State == evictions.Due {
		return one, true
	}
	e.queue.Leave(e.Now, key, false)
	h, again := e.held[key]
	delete(e.held, key)
	switch {
	case !ok || one.State == evictions.Leaving:
	case one.State == evictions.Waiting:
		e.wake([]tracker.Key{key}, one.At)
	default:
		if !again {
			h.since = e.Now.Sub(e.begin).Seconds()
		}
		h.Eviction = one
		e.held[key] = h
		if one.Hold.Until.After(e.Now) {
			e.wake([]tracker.Key{key}, one.Hold.Until)
		}
	}
	return one, false
}

// evict asks the checks that grant something, and evicts a pod that is due. A pod before it may have
// changed what they grant, so the pod is decided about again.
func (e *engine) evict(moment *evictions.Moment, key tracker.Key) {
	one, leaves := e.look(moment, key)
	if !leaves {
		return
	}
	if len(one.Way.Paces) > 0 && !e.queue.Ask(e.Now, key, ratelimit.LimitsOf(one.Way.Paces)) {
		delete(e.held, key)
		return
	}
	if policy := e.trips(one.Way.Breakers); policy != nil {
		e.queue.Leave(e.Now, key, false)
		moment.Tripped[policy.UID] = e.Now
		e.evict(moment, key) // Another taint may evict the pod, by other policies.
		return
	}
	e.queue.Leave(e.Now, key, true)
	delete(e.held, key)
	e.document.Left = append(e.document.Left, left{
		podNameOf(&one), e.Now.Sub(e.begin).Seconds(), because(&one.Because[0]), one.Policy, method(&one, e.Now),
	})
	for _, policy := range one.Way.Breakers {
		e.breakers[policy.UID].gone = append(e.breakers[policy.UID].gone, e.Now)
	}
	situation, _ := e.Tracker.Lookup(key)
	for _, budget := range e.Tracker.Budgets(one.Namespace) {
		if budget.Guards(&situation.Pod) { // A deletion counts as well: one healthy pod less.
			budget.Allowed, budget.ResourceVersion = max(budget.Allowed-1, 0), ""
			e.Tracker.SetBudget(budget)
		}
	}
	e.teller.limits.Ledger.Leaving(key)
	e.Tracker.DeletePod(key)
}

// trips returns the first of the policies whose breaker has no room, which trips; nil if all have.
func (e *engine) trips(policies []*eviction.Policy) *eviction.Policy {
	for _, policy := range policies {
		b, ok := e.breakers[policy.UID]
		if !ok {
			b = &breaker{policy: policy}
			e.breakers[policy.UID] = b
		}
		if b.room(e.Tracker.Live()) <= 0 {
			b.tripped = e.Now
			return policy
		}
	}
	return nil
}

// finish records the pods that have not left, and what could not be read.
func (e *engine) finish() {
	d := &e.document
	d.Missing = e.Missing()
	for _, h := range slices.SortedFunc(maps.Values(e.held), func(a, b held) int {
		return cmp.Or(cmp.Compare(a.since, b.since), tracker.CompareKeys(a.Key, b.Key))
	}) {
		d.Held = append(d.Held, holding{podNameOf(&h.Eviction), h.since, h.State, h.Hold.Reason.Condition(), h.Hold.By, h.Hold.Why})
	}
	for _, one := range e.shown.List(e.Now, &evictions.Filter{}) {
		if _, holds := e.held[one.Key]; !holds && one.State != evictions.Leaving {
			d.Waiting = append(d.Waiting, waiting{podNameOf(&one), metav1.NewTime(one.At)})
		}
	}
}

// because names the taint of a reason, and the object that has it.
func because(reason *decide.Reason) string {
	text := reason.Taint.String() + " of "
	if reason.Taint.Source.Kind.OnDevice() {
		return text + "device " + reason.Device.String()
	}
	author := reason.Taint.Author()
	return text + strings.ToLower(string(author.Kind)) + " " + author.Name
}

// method says how a pod leaves.
func method(one *evictions.Eviction, now time.Time) string {
	policy := one.Way.Policy
	switch {
	case one.By == evictions.ByKubernetes:
		return "deleted by Kubernetes"
	case policy == nil || policy.Method != v1alpha1.EvictionMethodEvict:
		return "deleted"
	case policy.DeleteAfter != nil && !now.Before(one.At.Add(*policy.DeleteAfter)):
		return "deleted after deleteAfter"
	default:
		return "evicted"
	}
}
