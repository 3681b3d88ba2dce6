package tolerations

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
)

// Input is what is judged, and what must be known about the request.
type Input struct {
	// Namespace and NamespaceLabels are the namespace of the object. Labels that
	// could not be had are nil: they satisfy no selector.
	Namespace       string
	NamespaceLabels map[string]string

	// New are the tolerations of the object as it would be stored, and Old those
	// it is stored with: none on create. Only what is in New and not in Old is
	// judged.
	New, Old []corev1.Toleration

	// Path is the path of New.
	Path *field.Path

	// DefaultSeconds are the seconds of the API server's
	// DefaultTolerationSeconds plugin; nil means the 300 it has by default.
	DefaultSeconds *DefaultSeconds

	// FromDaemonSetController says that the DaemonSet controller itself sent the
	// request. An ownerReference does not prove that; the identity of the
	// requester does.
	FromDaemonSetController bool

	// HostNetwork is that of the pod. The DaemonSet controller adds a toleration
	// more where it is set.
	HostNetwork bool

	// Added are further tolerations that the caller knows the API server to have
	// added to this object, such as those of its RuntimeClass. They are not
	// judged; all fields must be the same.
	Added []corev1.Toleration
}

// Judge decides whether the policies allow the tolerations that the request
// adds or changes. The findings are the same whatever order policies came in,
// and no more than MaxFindings.
func (s *Set) Judge(in Input) policy.Decision {
	if s.Len() == 0 {
		return policy.Decide(nil)
	}
	r := report{path: in.Path}
	b := newBaseline(in.New, in.Old)
	for i := b.same; i < len(in.New) && !r.done(); i++ {
		if t := &in.New[i]; !b.stood(t) && !in.system(t) {
			s.judge(&in, i, &r)
		}
	}
	return policy.Decide(r.findings)
}

// judge holds one toleration against the policies that it may come under.
func (s *Set) judge(in *Input, i int, r *report) {
	a := newAsk(&in.New[i])
	candidates := s.index.candidates(&a)
	for !r.done() {
		position, ok := candidates.next()
		if !ok {
			return
		}
		c := &s.policies[position]
		if v := c.violation(&a, in); v.guard != nil {
			r.add(c, &a, i, in.Namespace, v)
		}
	}
}

// violation says which guard of a policy stands against a toleration: nil where
// none does.
type violation struct {
	guard *guard
	// bounded says that the namespace may tolerate the taints, but no longer
	// than limit seconds.
	bounded bool
	limit   int64
}

func (c *compiled) violation(a *ask, in *Input) violation {
	g := c.guardOf(a)
	if g == nil {
		return violation{}
	}
	allowed := c.allowance(in.Namespace, in.NamespaceLabels)
	switch {
	case !allowed.granted:
		return violation{guard: g}
	case allowed.bounded && !a.within(allowed.limit):
		return violation{guard: c.outlasted(a), bounded: true, limit: allowed.limit}
	default:
		return violation{}
	}
}
