package evictions

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Cluster is the state from which evictions are computed. It is read-only.
type Cluster struct {
	Tracker *tracker.Tracker
	// Rules are the rules of the evictor, without the tolerations of mode Window.
	Rules evictor.Rules
	// Mode is the mode of Tollgate; empty where it is not installed.
	Mode configv1alpha1.EvictionMode
	// NodesOff is true if Tollgate does not evict for node taints, DevicesOff for device taints:
	// the Kubernetes controllers do then.
	NodesOff, DevicesOff bool
	// Set are the EvictionPolicies in force, nil for none, and Policies the same objects with
	// their status.
	Set      *eviction.Set
	Policies []v1alpha1.EvictionPolicy
	// Namespaces returns the labels of a namespace; false if unknown.
	Namespaces func(name string) (labels.Labels, bool)
	// Said has the holds that events report.
	Said Said
}

// List returns the pods that have to leave and match a filter, ordered by when they leave.
func (c *Cluster) List(now time.Time, filter *Filter) []Eviction {
	l := c.look(now)
	var list []Eviction
	for _, key := range c.Tracker.Exposed() {
		if !filter.admitsNamespace(key.Namespace) {
			continue
		}
		situation, ok := c.Tracker.Lookup(key)
		if !ok {
			continue
		}
		if e, leaves := l.at(situation); leaves && filter.admits(&e) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Eviction) int { return compare(&a, &b) })
	return list
}

// looker evaluates pods at one time.
type looker struct {
	*Cluster

	now        time.Time
	statuses   map[types.UID]*v1alpha1.EvictionPolicyStatus
	disruption evictor.NodeDisruption
}

func (c *Cluster) look(now time.Time) *looker {
	l := &looker{Cluster: c, now: now, statuses: map[types.UID]*v1alpha1.EvictionPolicyStatus{}}
	for i := range c.Policies {
		l.statuses[c.Policies[i].UID] = &c.Policies[i].Status
	}
	nodes, down := c.Tracker.NodesDown()
	l.disruption.Observe(now, nodes, down)
	return l
}

// at returns the eviction of a pod; false if it stays.
func (l *looker) at(s tracker.Situation) (Eviction, bool) {
	leaving := s.Pod.Terminating
	if leaving {
		// A terminating pod is evaluated as if it were running, to find the cause.
		s.Pod.Terminating, s.Pod.Finished = false, false
	}
	e, ok := l.decide(&s)
	if !ok {
		return Eviction{}, false
	}
	e.Key, e.Node = s.Pod.Key, s.Pod.NodeName
	if s.Pod.Disruption != nil && s.Pod.Disruption.Status == corev1.ConditionTrue {
		e.Disruption = s.Pod.Disruption.Reason
	}
	if leaving {
		if e.At.After(l.now) && e.Disruption == "" {
			return Eviction{}, false // Deleted for another reason.
		}
		e.State, e.Hold = Leaving, Hold{}
	}
	return e, true
}

// decide returns when a pod is evicted, by which component, and its hold.
func (l *looker) decide(s *tracker.Situation) (Eviction, bool) {
	native := l.Rules.Decide(l.now, *s)
	switch l.Mode {
	case configv1alpha1.EvictionReplace:
		ours := slices.DeleteFunc(slices.Clone(native.Because), func(r evictor.Reason) bool { return !l.evicts(&r) })
		theirs := slices.DeleteFunc(slices.Clone(native.Because), func(r evictor.Reason) bool { return l.evicts(&r) })
		return l.byEither(&s.Pod, ours, theirs)
	case configv1alpha1.EvictionWindow:
		return l.byEither(&s.Pod, l.inWindow(s), native.Because)
	case configv1alpha1.EvictionObserve:
	}
	return l.byEither(&s.Pod, nil, native.Because)
}

// evicts reports whether Tollgate evicts for the kind of taint of a reason.
func (l *looker) evicts(reason *evictor.Reason) bool {
	if reason.Taint.Source.Kind.OnDevice() {
		return !l.DevicesOff
	}
	return !l.NodesOff
}

// byKubernetes returns the eviction by the Kubernetes controllers, which ignore holds.
func (l *looker) byKubernetes(because []evictor.Reason) Eviction {
	return Eviction{State: l.stateAt(because[0].At), At: because[0].At, Because: because, By: ByKubernetes}
}

// byEither returns the earlier eviction: by Tollgate for ours, unless held, or by Kubernetes for
// theirs.
func (l *looker) byEither(pod *tracker.Pod, ours, theirs []evictor.Reason) (Eviction, bool) {
	switch {
	case len(ours) == 0 && len(theirs) == 0:
		return Eviction{}, false
	case len(ours) == 0:
		return l.byKubernetes(theirs), true
	case len(theirs) == 0:
		return l.byTollgate(pod, ours), true
	}
	e, then := l.byTollgate(pod, ours), theirs[0].At
	if !then.After(l.now) || (e.Hold.None() && then.Before(e.At)) {
		e = l.byKubernetes(theirs)
		e.Because = joinReasons(e.Because, ours)
		return e, true
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

// joinReasons appends those of others whose taints are not in because.
func joinReasons(because, others []evictor.Reason) []evictor.Reason {
	because = slices.Clone(because)
	for i := range others {
		same := func(r evictor.Reason) bool {
			return r.Taint.Source == others[i].Taint.Source && r.Device == others[i].Device && r.Taint.String() == others[i].Taint.String()
		}
		if !slices.ContainsFunc(because, same) {
			because = append(because, others[i])
		}
	}
	return because
}

// inWindow returns the reasons to leave within the windows of a pod, after which Kubernetes
// deletes it. Other reasons are left to Kubernetes.
func (l *looker) inWindow(s *tracker.Situation) []evictor.Reason {
	rules := l.Rules
	rules.Window = true
	decision := rules.Decide(l.now, *s)
	subject := evictor.SubjectOf(&s.Pod, l.Namespaces)
	return slices.DeleteFunc(slices.Clone(decision.Because), func(reason evictor.Reason) bool {
		way, err := evictor.Treat(l.Set, &reason, &subject)
		return !l.evicts(&reason) || (err == nil && (way.Policy == nil || way.Policy.WindowSeconds == nil))
	})
}

func (l *looker) stateAt(at time.Time) State {
	if at.After(l.now) {
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
