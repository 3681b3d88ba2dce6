package simulate

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
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/preview"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/ratelimit"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// engine simulates the evictions of a cluster. It decides with the functions of Tollgate, asks the
// checks that they ask, and moves its own clock from one event to the next. No pod is replaced, and
// a pod is gone as soon as it is evicted.
type engine struct {
	cluster *state.Cluster
	shown   *evictions.Cluster
	teller  *preview.Teller
	// force applies steps that the limits of TaintPolicies refuse.
	force bool

	begin, now time.Time
	steps      []step
	// wakes are the times at which pods are decided about again.
	wakes map[tracker.Key]time.Time
	queue *ratelimit.Queue
	// breakers are the breakers of policies that have counted a pod, by UID.
	breakers map[types.UID]*breaker
	held     map[tracker.Key]held
	result   result
}

// result is what happened.
type result struct {
	steps []outcome
	gone  []departure
	// held are the pods that were due and held at the end, and waiting those that are due later.
	held    []held
	waiting []evictions.Eviction
}

// outcome is what a step did.
type outcome struct {
	step
	// previews are the sentences about the objects that the step writes.
	previews []string
	// refused are the reasons for which TaintPolicies refuse the step; warnings those for which
	// they warn.
	refused, warnings []string
	// applied is false if the step was refused.
	applied bool
}

// departure is a pod that was evicted.
type departure struct {
	evictions.Eviction

	at time.Duration
	// how says how the pod left.
	how string
}

// held is a pod that is due and held.
type held struct {
	evictions.Eviction

	since time.Duration
}

// breaker counts the pods that a policy lets go.
type breaker struct {
	policy *eviction.Policy
	// gone are the times at which pods left, ascending.
	gone []time.Time
	// tripped is when the breaker tripped; zero while it has not.
	tripped time.Time
}

// newEngine returns the simulation of steps on a cluster, from its time on.
func newEngine(cluster *state.Cluster, steps []step, force bool) *engine {
	shown := evictions.NewCluster(cluster)
	shown.Disruption = &checks.NodeDisruption{}
	begin := cluster.Now.Truncate(time.Second) // As times of taints are.
	e := &engine{
		cluster: cluster, shown: shown, force: force, begin: begin, now: begin, steps: ordered(steps),
		wakes: map[tracker.Key]time.Time{}, queue: ratelimit.NewQueue(), breakers: map[types.UID]*breaker{}, held: map[tracker.Key]held{},
	}
	cluster.Now = begin
	e.teller = preview.TellerOf(cluster)
	return e
}

// run simulates until nothing more happens, at most for a time.
func (e *engine) run(ctx context.Context, lasts time.Duration) (*result, error) {
	e.wake(e.cluster.Tracker.Exposed(), e.begin)
	end := e.begin.Add(lasts)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("simulate: %w", err)
		}
		called, in := e.queue.Next(e.now)
		e.wake(called, e.now)
		next, found := e.next(in)
		if !found || next.After(end) {
			break
		}
		if next.After(e.now) {
			e.now, e.cluster.Now = next, next
		}
		if err := e.apply(ctx); err != nil {
			return nil, err
		}
		e.release()
		e.decide()
	}
	e.finish()
	return &e.result, nil
}

// next returns the time of the next event; false for none. in is the time until the rate limits let
// the next pod go, zero for never.
func (e *engine) next(in time.Duration) (at time.Time, found bool) {
	consider := func(t time.Time) {
		if !found || t.Before(at) {
			at, found = t, true
		}
	}
	if len(e.steps) > 0 {
		consider(e.begin.Add(e.steps[0].at))
	}
	for _, t := range e.wakes {
		consider(t)
	}
	if in > 0 && e.queue.Len() > 0 {
		consider(e.now.Add(in))
	}
	for _, b := range e.breakers {
		if !b.tripped.IsZero() && len(b.gone) > 0 {
			consider(b.gone[0].Add(b.policy.Breaker.Window))
		}
	}
	return at, found
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
	for len(e.steps) > 0 && !e.begin.Add(e.steps[0].at).After(e.now) {
		next := e.steps[0]
		e.steps = e.steps[1:]
		o := outcome{step: next}
		var err error
		if next.target != nil {
			err = e.applyDevices(ctx, &o)
		} else {
			err = e.applyNodes(ctx, &o)
		}
		if err != nil {
			return fmt.Errorf("step %q: %w", next.text, err)
		}
		e.result.steps = append(e.result.steps, o)
		e.wake(e.cluster.Tracker.Exposed(), e.now)
		e.wake(slices.Collect(maps.Keys(e.held)), e.now)
	}
	return nil
}

// applyNodes applies a step to nodes.
func (e *engine) applyNodes(ctx context.Context, o *outcome) error {
	found := false
	for _, node := range e.cluster.Tracker.Nodes() {
		if !o.selects(&node) {
			continue
		}
		found = true
		taints := preview.Changed(node.Written, &o.changes)
		for i := range taints {
			if taints[i].TimeAdded == nil {
				taints[i].TimeAdded = new(metav1.NewTime(e.now))
			}
		}
		p, err := e.teller.Node(ctx, node.Name, node.Written, taints)
		if err != nil {
			return err
		}
		if o.take(&p, e.force) {
			uid := e.cluster.Tracker.UIDOf(tracker.Source{Kind: tracker.SourceNode, Name: node.Name})
			e.cluster.Tracker.SetNode(tracker.Node{Name: node.Name, UID: uid, Taints: taints, Labels: node.Labels}, e.now)
		}
	}
	if !found {
		return errors.New("there is no such node")
	}
	return nil
}

// applyDevices applies a step to devices, as DeviceTaintRules.
func (e *engine) applyDevices(ctx context.Context, o *outcome) error {
	for _, taint := range o.changes.Remove {
		name := ruleName(o.target, taint.Key)
		rule, ok := e.cluster.Tracker.Rule(name)
		if !ok {
			return fmt.Errorf("no earlier step gave taint %s to device %s", taint.Key, o.target)
		}
		e.wake(e.cluster.Tracker.DeleteRule(name, rule.UID), e.now)
		delete(e.cluster.Rule, name)
		o.previews, o.applied = append(o.previews, "device/"+o.target.String()+": taint "+taint.Key+" is gone"), true
	}
	if len(o.changes.Add) == 0 {
		return nil
	}
	p, err := e.teller.Target(ctx, o.target, o.changes.Add)
	if err != nil {
		return err
	}
	if !o.take(&p, e.force) {
		return nil
	}
	for _, taint := range o.changes.Add {
		name := ruleName(o.target, taint.Key)
		rule := &resourcev1.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + strconv.FormatInt(e.now.Unix(), 10)), Generation: 1, CreationTimestamp: metav1.NewTime(e.now)},
			Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: o.target.DeviceSelector(), Taint: resourcev1.DeviceTaint{
				Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect), TimeAdded: new(metav1.NewTime(e.now)),
			}},
		}
		e.wake(e.cluster.Tracker.SetRule(tracker.RuleOf(rule), e.now), e.now)
		if e.cluster.Rule != nil {
			e.cluster.Rule[name] = rule
		}
	}
	return nil
}

// ruleName returns the name of the rule that a step makes.
func ruleName(target *preview.Target, key string) string {
	return "simulated " + target.String() + " " + key
}

// take records a preview, and reports whether the write is made.
func (o *outcome) take(p *preview.Preview, force bool) bool {
	o.previews = append(o.previews, p.Sentence())
	o.refused, o.warnings = append(o.refused, p.Refusals...), append(o.warnings, p.Warnings...)
	made := force || len(p.Refusals) == 0
	o.applied = o.applied || made
	return made
}

// release resets the breakers into whose window all held pods fit again.
func (e *engine) release() {
	for _, b := range e.breakers {
		b.forget(e.now)
		if b.tripped.IsZero() || e.heldBy(b.policy) > b.room(e.cluster.Tracker.Live()) {
			continue
		}
		b.tripped = time.Time{}
		e.wake(slices.Collect(maps.Keys(e.held)), e.now)
	}
}

// heldBy returns the number of pods that the breaker of a policy binds and some breaker holds.
func (e *engine) heldBy(policy *eviction.Policy) int {
	count := 0
	for _, h := range e.held {
		if h.Hold.Reason == checks.BreakerTripped && slices.Contains(h.Way.Breakers, policy) {
			count++
		}
	}
	return count
}

// forget removes the pods that left before the window.
func (b *breaker) forget(now time.Time) {
	at := slices.IndexFunc(b.gone, func(left time.Time) bool { return left.Add(b.policy.Breaker.Window).After(now) })
	if at < 0 {
		at = len(b.gone)
	}
	b.gone = b.gone[at:]
}

// room returns how many more pods may go, when live pods are left.
func (b *breaker) room(live int) int {
	return b.policy.Breaker.Limit(live, len(b.gone)) - len(b.gone)
}

// decide decides about the pods that are woken now, in the order of their deadlines.
func (e *engine) decide() {
	moment := e.shown.At(e.now)
	clear(moment.Tripped)
	for uid, b := range e.breakers {
		if !b.tripped.IsZero() {
			moment.Tripped[uid] = b.tripped
		}
	}
	var due []evictions.Eviction
	for key, at := range e.wakes {
		if at.After(e.now) {
			continue
		}
		delete(e.wakes, key)
		if one, leaves := e.look(moment, key); leaves {
			due = append(due, one)
		}
	}
	slices.SortFunc(due, func(a, b evictions.Eviction) int {
		return cmp.Or(a.At.Compare(b.At), tracker.CompareKeys(a.Key, b.Key))
	})
	for i := range due {
		e.evict(moment, due[i].Key)
	}
}

// look decides about a pod. It returns the eviction, if the pod has to leave now and nothing that
// the API shows holds it.
func (e *engine) look(moment *evictions.Moment, key tracker.Key) (evictions.Eviction, bool) {
	situation, ok := e.cluster.Tracker.Lookup(key)
	var one evictions.Eviction
	if ok {
		one, ok = moment.Eviction(&situation)
	}
	if !ok || one.State == evictions.Leaving {
		e.queue.Leave(e.now, key, false)
		delete(e.held, key)
		return one, false
	}
	if one.State == evictions.Due {
		return one, true
	}
	e.queue.Leave(e.now, key, false)
	if one.State == evictions.Waiting {
		delete(e.held, key)
		e.wake([]tracker.Key{key}, one.At)
	} else {
		e.hold(&one)
	}
	return one, false
}

// hold records a held pod, and wakes it when the hold ends at the latest.
func (e *engine) hold(one *evictions.Eviction) {
	since := e.now.Sub(e.begin)
	if before, ok := e.held[one.Key]; ok {
		since = before.since
	}
	e.held[one.Key] = held{*one, since}
	if one.Hold.Until.After(e.now) {
		e.wake([]tracker.Key{one.Key}, one.Hold.Until)
	}
}

// evict asks the checks that grant something, and evicts a pod that is due. A pod before it may have
// changed what they grant, so the pod is decided about again.
func (e *engine) evict(moment *evictions.Moment, key tracker.Key) {
	one, leaves := e.look(moment, key)
	if !leaves {
		return
	}
	if one.By == evictions.ByTollgate {
		if len(one.Way.Paces) > 0 && !e.queue.Ask(e.now, key, ratelimit.LimitsOf(one.Way.Paces)) {
			delete(e.held, key)
			return
		}
		if policy := e.trips(one.Way.Breakers); policy != nil {
			e.queue.Leave(e.now, key, false)
			moment.Tripped[policy.UID] = e.now
			if one, leaves = e.look(moment, key); !leaves {
				return
			}
		}
	}
	e.queue.Leave(e.now, key, true)
	delete(e.held, key)
	e.leave(&one)
}

// trips returns the first of the policies whose breaker has no room, which trips; nil if all have.
func (e *engine) trips(policies []*eviction.Policy) *eviction.Policy {
	for _, policy := range policies {
		b, ok := e.breakers[policy.UID]
		if !ok {
			b = &breaker{policy: policy}
			e.breakers[policy.UID] = b
		}
		if b.room(e.cluster.Tracker.Live()) <= 0 {
			b.tripped = e.now
			return policy
		}
	}
	return nil
}

// leave records the eviction of a pod.
func (e *engine) leave(one *evictions.Eviction) {
	e.result.gone = append(e.result.gone, departure{*one, e.now.Sub(e.begin), method(one, e.now)})
	if one.By == evictions.ByTollgate {
		for _, policy := range one.Way.Breakers {
			e.breakers[policy.UID].gone = append(e.breakers[policy.UID].gone, e.now)
		}
	}
	if situation, ok := e.cluster.Tracker.Lookup(one.Key); ok {
		for _, budget := range e.cluster.Tracker.Budgets(one.Namespace) {
			if budget.Guards(&situation.Pod) { // A deletion counts as well: one healthy pod less.
				budget.Allowed, budget.ResourceVersion = max(budget.Allowed-1, 0), ""
				e.cluster.Tracker.SetBudget(budget)
			}
		}
	}
	e.teller.Leaving(one.Key)
	e.cluster.Tracker.DeletePod(one.Key)
}

// finish records the pods that have not left.
func (e *engine) finish() {
	for _, h := range e.held {
		e.result.held = append(e.result.held, h)
	}
	slices.SortFunc(e.result.held, func(a, b held) int {
		return cmp.Or(cmp.Compare(a.since, b.since), tracker.CompareKeys(a.Key, b.Key))
	})
	for _, one := range e.shown.List(e.now, &evictions.Filter{}) {
		if _, holds := e.held[one.Key]; !holds && one.State != evictions.Leaving {
			e.result.waiting = append(e.result.waiting, one)
		}
	}
}

// because names the taint of the first reason of an eviction, and the object that has it.
func because(one *evictions.Eviction) string {
	reason := &one.Because[0]
	author := reason.Taint.Author()
	text := reason.Taint.String() + " of " + strings.ToLower(string(author.Kind)) + " " + author.Name
	if reason.Taint.Source.Kind.OnDevice() {
		text = reason.Taint.String() + " of device " + reason.Device.String()
	}
	return text
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
