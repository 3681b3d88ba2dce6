package preview

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// treating is where it is known how pods are treated. The zero treating knows no
// EvictionPolicy.
type treating struct {
	policies        func() *eviction.Set
	namespaceLabels func(name string) (labels.Labels, bool)
}

// now returns the treatments by the policies that are in force; nil if there are none.
func (t treating) now() *treatments {
	if t.policies == nil {
		return nil
	}
	set := t.policies()
	if set.Len() == 0 {
		return nil
	}
	return &treatments{set: set, namespaceLabels: t.namespaceLabels}
}

// treatments are how pods are treated by one set of policies. Nil is as Kubernetes does
// it.
type treatments struct {
	set             *eviction.Set
	namespaceLabels func(name string) (labels.Labels, bool)
}

// of returns how a pod leaves because of a taint. Where that cannot be told, because
// the labels of a namespace are not known, nothing speaks for the pod: it counts as one
// that leaves. The evictor holds it until they are.
func (t *treatments) of(pod *tracker.Pod, taint *tracker.Taint, driver string) eviction.Treatment {
	if t == nil {
		return eviction.Treatment{}
	}
	subject := eviction.Subject{
		Namespace: pod.Namespace, Labels: pod.Labels(), PriorityClassName: pod.PriorityClassName(),
	}
	if t.namespaceLabels != nil {
		subject.NamespaceLabels, subject.NamespaceKnown = t.namespaceLabels(pod.Namespace)
	}
	target := v1alpha1.TaintTargetNode
	if taint.Source.Kind.OnDevice() {
		target = v1alpha1.TaintTargetDevice
	}
	treatment, err := t.set.For(&eviction.Taint{
		Target: target, Driver: driver, Key: taint.Key, Value: taint.Value, Effect: taint.Effect,
	}, &subject)
	if err != nil {
		return eviction.Treatment{}
	}
	return treatment
}

// prospect is what becomes of a pod as far as EvictionPolicies let it leave.
type prospect struct {
	decide.Decision

	// protected is the policy because of which it stays, and paused the one that holds
	// it for now; nil for none.
	protected, paused *eviction.Policy
	// breakers are those that count it when it leaves.
	breakers []*eviction.Policy
}

// settle returns what becomes of a pod that has to leave by a decision. What a policy
// protects it from is no reason. It is held when every reason that is due by then is.
func (t *treatments) settle(now time.Time, pod *tracker.Pod, decision decide.Decision) prospect {
	p := prospect{Decision: decision}
	if t == nil || decision.Verdict != decide.EvictAt {
		return p
	}
	var left []decide.Reason
	var ways []eviction.Treatment
	for i := range decision.Because {
		reason := &decision.Because[i]
		way := t.of(pod, &reason.Taint, reason.Device.Driver)
		if !way.Protected {
			left, ways = append(left, *reason), append(ways, way)
		} else if p.protected == nil {
			p.protected = way.Policy
		}
	}
	if len(left) == 0 {
		p.Decision = decide.Decision{}
		return p
	}
	at := left[0].At
	p.protected = nil
	p.Decision = decide.Decision{Verdict: decide.EvictAt, At: at, Wait: max(at.Sub(now), 0), Because: left}
	p.breakers, p.paused = cause(left, ways, later(at, now))
	return p
}

// cause returns the breakers of the first reason that is due by then and that no pause
// holds; if there is none, the policy that holds the first.
func cause(reasons []decide.Reason, ways []eviction.Treatment, by time.Time) (breakers []*eviction.Policy, paused *eviction.Policy) {
	for i := range reasons {
		if reasons[i].At.After(by) {
			break
		}
		if ways[i].Policy == nil || !ways[i].Policy.Paused {
			return ways[i].Breakers, nil
		}
	}
	return nil, ways[0].Policy
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
