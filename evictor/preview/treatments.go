package preview

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// treatments are the rules of the evictor, the EvictionPolicies in force, nil for none, and the
// labels of namespaces, which policies select by.
type treatments struct {
	rules           decide.Rules
	set             *eviction.Set
	namespaceLabels func(name string) (labels.Labels, bool)
}

// of returns how a pod leaves because of a reason. While the labels of its namespace are
// not known, no policy applies: the pod counts as one that leaves, and the evictor holds it.
func (t *treatments) of(pod *tracker.Pod, reason *decide.Reason) eviction.Treatment {
	if t.set.Len() == 0 {
		return eviction.Treatment{}
	}
	subject := decide.SubjectOf(pod, t.namespaceLabels)
	treatment, _ := decide.Treat(t.set, reason, &subject)
	return treatment
}

// prospect is a decision as far as EvictionPolicies let the pod leave.
type prospect struct {
	decide.Decision

	// protected is the policy that protects the pod if it stays, and paused the policy that
	// holds it for now; nil for none.
	protected, paused *eviction.Policy
	// breakers are the policies whose breakers count the eviction.
	breakers []*eviction.Policy
}

// settle applies the policies to a decision. A reason that a policy protects the pod from
// does not count. The pod is held while a pause holds every reason that is due by then.
func (t *treatments) settle(now time.Time, pod *tracker.Pod, decision decide.Decision) prospect {
	if t.set.Len() == 0 || decision.Verdict != decide.EvictAt {
		return prospect{Decision: decision}
	}
	var protected *eviction.Policy
	var left []decide.Reason
	var ways []eviction.Treatment
	for i := range decision.Because {
		if way := t.of(pod, &decision.Because[i]); way.Protected {
			protected = cmp.Or(protected, way.Policy)
		} else {
			left, ways = append(left, decision.Because[i]), append(ways, way)
		}
	}
	if len(left) == 0 {
		return prospect{protected: protected}
	}
	p := prospect{Decision: decide.NewDecision(now, left)}
	for i := range p.Due(decide.Later(p.At, now)) {
		if policy := ways[i].Policy; policy == nil || !policy.Paused {
			p.breakers = ways[i].Breakers
			return p
		}
	}
	p.paused = ways[0].Policy
	return p
}
