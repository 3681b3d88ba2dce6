package evictions

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/checks"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// State is the state of the eviction of a pod.
type State string

// The states, in the order in which pods leave.
const (
	// Leaving is a pod whose deletion has begun.
	Leaving State = "Leaving"
	// Due is a pod whose deadline has passed, without a known hold.
	Due State = "Due"
	// Waiting is a pod whose deadline is in the future.
	Waiting State = "Waiting"
	// Blocked is a due pod whose eviction the API server refuses.
	Blocked State = "Blocked"
	// Held is a due pod that Tollgate does not evict for now.
	Held State = "Held"
	// Paused is a pod whose EvictionPolicy is paused, due or not.
	Paused State = "Paused"
	// Protected is a pod that its EvictionPolicy protects, due or not.
	Protected State = "Protected"

	// Gone is a pod of an earlier list that is deleted or finished, and Staying one whose taint is
	// gone or tolerated.
	Gone    State = "Gone"
	Staying State = "Staying"
)

// states are the states of pods that have to leave, in that order.
var states = []State{Leaving, Due, Waiting, Blocked, Held, Paused, Protected}

// Eviction is a pod that has to leave.
type Eviction struct {
	tracker.Key

	Node  string
	State State
	// At is the deadline: the time of the first of Because.
	At time.Time
	// Because are the taints that evict it: first the one that State, At and Hold refer to, then
	// the others, the earliest first. It is never empty.
	Because []decide.Reason
	// By is who evicts it: ByTollgate or ByKubernetes.
	By string
	// Way is how Tollgate treats the first reason, zero for ByKubernetes. Policy is the name of the
	// EvictionPolicy in it, empty for none.
	Way    eviction.Treatment
	Policy string
	// Hold is the hold of the pod, zero for none.
	Hold Hold
	// Disruption is the reason of the condition DisruptionTarget, empty for none. For a Leaving
	// pod it names the cause.
	Disruption string
	// Writers are the field managers of the taints, by source; nil if not requested. The map is
	// shared.
	Writers map[tracker.Source]string
}

// The values of Eviction.By.
const (
	ByTollgate   = "Tollgate"
	ByKubernetes = "Kubernetes"
)

// Hold is a delay of an eviction.
type Hold struct {
	// Reason is the evictor's reason.
	Reason checks.Reason
	// By is the object that holds, as kind/name or kind/namespace/name; empty for none.
	By string
	// Why describes the cause, and what ends it.
	Why string
	// Since is the start of the hold, zero if unknown.
	Since time.Time
	// Until is when the hold ends at the latest, zero for never.
	Until time.Time
	// Word is the source of the hold, such as an event.
	Word string
}

// None reports whether there is no hold.
func (h *Hold) None() bool { return h.Reason == "" }

// Compare orders pods by when they leave.
func Compare(a, b Eviction) int {
	return cmp.Or(
		cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), a.At.Compare(b.At), tracker.CompareKeys(a.Key, b.Key),
	)
}

// Filter selects evictions. Empty fields match all.
type Filter struct {
	Namespace string
	// Node is the node of the pods, Rule and Patch the object whose taint evicts them.
	Node, Rule, Patch string
}

func (f *Filter) matches(e *Eviction) bool {
	from := func(kind tracker.SourceKind, name string) bool {
		return name == "" || slices.ContainsFunc(e.Because, func(r decide.Reason) bool { return r.Taint.From(kind, name) })
	}
	return (f.Node == "" || e.Node == f.Node) && from(tracker.SourceRule, f.Rule) && from(tracker.SourcePatch, f.Patch)
}

// Cluster is the state from which evictions are computed. It is read-only.
type Cluster struct {
	Tracker *tracker.Tracker
	// Rules are the rules of the evictor, without the tolerations of mode Window.
	Rules decide.Rules
	// Terms are the eviction settings of Tollgate; zero where it is not installed. The Kubernetes
	// controllers evict for the kinds of taints for which it does not.
	Terms settings.Eviction
	// Set are the EvictionPolicies in force, nil for none, and Policies the same objects with
	// their status.
	Set      *eviction.Set
	Policies []v1alpha1.EvictionPolicy
	// Namespaces returns the labels of a namespace; false if unknown.
	Namespaces func(name string) (labels.Labels, bool)
	// Events has the holds that events report.
	Events Events
	// Disruption has what was observed of the nodes so far; nil for nothing.
	Disruption *checks.NodeDisruption

	// eventNamespace is the namespace of the readable events, empty for all.
	eventNamespace string
}

// NewCluster returns the Cluster of a snapshot, without events.
func NewCluster(found *state.Cluster) *Cluster {
	c := &Cluster{
		Tracker: found.Tracker, Rules: found.Rules, Terms: found.Tollgate.Terms, Policies: found.EvictionPolicies, Namespaces: found.NamespaceLabels,
	}
	c.Rules.Window = false
	if c.Terms.Policies {
		c.Set = found.Policies.Evictions
	}
	return c
}

// List returns the pods that have to leave and match a filter, ordered by when they leave.
func (c *Cluster) List(now time.Time, filter *Filter) []Eviction {
	m := c.At(now)
	var list []Eviction
	for _, key := range c.Tracker.Exposed() {
		if filter.Namespace != "" && key.Namespace != filter.Namespace {
			continue
		}
		if situation, ok := c.Tracker.Lookup(key); ok {
			if e, leaves := m.Eviction(&situation); leaves && filter.matches(&e) {
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, Compare)
	return list
}

// Moment is a Cluster at one time.
type Moment struct {
	*Cluster

	now time.Time
	// Tripped are the times at which breakers tripped, by policy.
	Tripped    map[types.UID]time.Time
	disruption *checks.NodeDisruption
}

// At returns the cluster as it is at now, to evaluate single pods.
func (c *Cluster) At(now time.Time) *Moment {
	m := &Moment{Cluster: c, now: now, Tripped: map[types.UID]time.Time{}, disruption: cmp.Or(c.Disruption, &checks.NodeDisruption{})}
	for _, policy := range c.Policies {
		if breaker := policy.Status.Breaker; breaker != nil && breaker.Tripped != nil {
			m.Tripped[policy.UID] = breaker.Tripped.Time
		}
	}
	nodes, down := c.Tracker.NodesDown()
	m.disruption.Observe(now, nodes, down)
	return m
}

// Eviction returns the eviction of a pod; false if it stays.
func (m *Moment) Eviction(of *tracker.Situation) (Eviction, bool) {
	s := *of
	leaving := s.Pod.Terminating
	if leaving {
		// A terminating pod is evaluated as if it were running, to find the cause.
		s.Pod.Terminating, s.Pod.Finished = false, false
	}
	e, ok := m.decide(&s)
	if !ok {
		return e, false
	}
	e.Key, e.Node = s.Pod.Key, s.Pod.NodeName
	if condition := s.Pod.Disruption; condition != nil && condition.Status == corev1.ConditionTrue {
		e.Disruption = condition.Reason
	}
	if leaving {
		if e.At.After(m.now) && e.Disruption == "" {
			return e, false // Deleted for another reason.
		}
		e.State, e.Hold = Leaving, Hold{}
	}
	return e, true
}

// decide returns when a pod is evicted, by which component, and its hold. It is the earlier
// eviction: by Tollgate for ours, unless held, or by the Kubernetes controllers, which ignore
// holds, for theirs.
func (m *Moment) decide(s *tracker.Situation) (Eviction, bool) {
	var ours []decide.Reason
	s.Taints = m.disruption.Recount(s.Taints)
	theirs := m.Rules.Decide(m.now, *s).Because
	switch m.Terms.Mode {
	case configv1alpha1.EvictionReplace:
		ours = slices.DeleteFunc(slices.Clone(theirs), func(r decide.Reason) bool { return !m.evicts(r) })
		theirs = slices.DeleteFunc(theirs, m.evicts)
	case configv1alpha1.EvictionWindow:
		ours = m.inWindow(s)
	case configv1alpha1.EvictionObserve:
	}
	var e Eviction
	if len(ours) > 0 {
		e = m.byTollgate(&s.Pod, ours)
	}
	if len(theirs) == 0 {
		return e, len(ours) > 0
	}
	then := theirs[0].At
	if len(ours) == 0 || !then.After(m.now) || (e.Hold.None() && then.Before(e.At)) {
		return Eviction{State: m.stateAt(then), At: then, Because: joinReasons(theirs, ours), By: ByKubernetes}, true
	}
	e.Because = joinReasons(e.Because, theirs)
	if !e.Hold.None() {
		e.Hold.Until = earliest(e.Hold.Until, then)
		if e.State == Protected || e.State == Paused {
			e.At = then
		}
	}
	return e, true
}

// evicts reports whether Tollgate evicts for the kind of taint of a reason.
func (m *Moment) evicts(reason decide.Reason) bool {
	if reason.Taint.Source.Kind.OnDevice() {
		return m.Terms.Devices
	}
	return m.Terms.Nodes
}

// joinReasons appends those of others whose taints are not in because.
func joinReasons(because, others []decide.Reason) []decide.Reason {
	for _, other := range others {
		same := func(r decide.Reason) bool {
			return r.Taint.Source == other.Taint.Source && r.Device == other.Device && r.Taint.String() == other.Taint.String()
		}
		if !slices.ContainsFunc(because, same) {
			because = append(because, other)
		}
	}
	return because
}

// inWindow returns the reasons to leave within the windows of a pod, after which Kubernetes
// deletes it. Other reasons are left to Kubernetes.
func (m *Moment) inWindow(s *tracker.Situation) []decide.Reason {
	rules := m.Rules
	rules.Window = true
	subject := decide.SubjectOf(&s.Pod, m.Namespaces)
	return slices.DeleteFunc(rules.Decide(m.now, *s).Because, func(reason decide.Reason) bool {
		way, err := decide.Treat(m.Set, &reason, &subject)
		return !m.evicts(reason) || (err == nil && (way.Policy == nil || way.Policy.WindowSeconds == nil))
	})
}

func (m *Moment) stateAt(at time.Time) State {
	if at.After(m.now) {
		return Waiting
	}
	return Due
}

// earliest returns the earlier of two times; zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
