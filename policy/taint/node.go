package taint

import (
	"maps"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// Node is what of a node is judged.
type Node struct {
	Name   string
	Labels map[string]string
	Owners []metav1.OwnerReference
	Taints []corev1.Taint
}

// NodeChange is a write of a node: Old is nil when it is created.
type NodeChange struct {
	New, Old *Node
	User     *authenticationv1.UserInfo
}

// Registers reports whether it is the node that creates itself.
func (c NodeChange) Registers() bool {
	name, ok := IsNode(c.User)
	return c.Old == nil && ok && name == c.New.Name
}

// Chosen returns those of the writes that are the requester's choice. What a node
// brings when it registers itself hurts nobody but itself. Kubernetes gives a node that
// is created the taint of one that is not ready (TP-17), whoever creates it, and what
// policies give a node is theirs.
//
// On a node that exists that is only what they were to keep there before, and still
// are, as Tollgate itself would add it: who writes the label by which a node is given a
// taint, and the taint too, has chosen both. And who changes a taint, if only its time,
// has chosen that.
func (s *Set) Chosen(c NodeChange, writes []Write, now time.Time) []Write {
	if c.Registers() || len(writes) == 0 {
		return nil
	}
	if c.Old == nil {
		registered := s.Register(c.New.Labels)
		return slices.DeleteFunc(slices.Clone(writes), func(w Write) bool {
			return w.New.Key == corev1.TaintNodeNotReady && w.New.Effect == corev1.TaintEffectNoSchedule || among(registered, w.New)
		})
	}
	kept := slices.DeleteFunc(s.Register(c.New.Labels), func(r Registered) bool { return !r.Reconcile })
	if len(kept) == 0 {
		return writes
	}
	before := slices.DeleteFunc(s.Register(c.Old.Labels), func(r Registered) bool { return !r.Reconcile })
	return slices.DeleteFunc(slices.Clone(writes), func(w Write) bool {
		return w.Operation == v1alpha1.TaintAdd && among(kept, w.New) && among(before, w.New) &&
			(w.New.TimeAdded.IsZero() || now.Sub(w.New.TimeAdded).Abs() <= stampWindow)
	})
}

// among reports whether one of the registered taints is t, whatever its time.
func among(registered []Registered, t Taint) bool {
	return slices.ContainsFunc(registered, func(r Registered) bool {
		return r.Taint.Key == t.Key && r.Taint.Effect == t.Effect && r.Taint.Value == t.Value
	})
}

// JudgeNode holds a write of a node against what policies register, and keeps nodes
// from getting out of it: by labels, with their own credentials, or by being deleted
// and coming back (C22). Who else may write which taints is for Judge to say.
func (s *Set) JudgeNode(c NodeChange) []policy.Finding {
	found := s.kept(c)
	if _, ok := IsNode(c.User); !ok {
		return found
	}
	if finding := owned(c); finding != nil {
		found = append(found, *finding)
	}
	return append(found, s.left(c)...)
}

// kept finds the registered taints that are missing from a node which is created, and
// those that are taken from one where they are kept.
func (s *Set) kept(c NodeChange) []policy.Finding {
	if c.Old != nil && sameTaints(c.New.Taints, c.Old.Taints) {
		return nil
	}
	var found []policy.Finding
	for _, r := range s.Register(c.New.Labels) {
		has := func(n *Node) bool {
			return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return r.Is(&t) })
		}
		switch {
		case has(c.New):
		case c.Old == nil:
			found = append(found, r.by.complete(policy.Finding{
				Reason:  policy.RegisteredTaintMissing,
				Field:   taintsPath().String(),
				Value:   r.String(),
				Problem: "a node with these labels is created with this taint, and comes without it",
				Remedy:  "create the node with the taint, or again when Tollgate's mutating webhook answers, which adds it",
			}, ""))
		case r.Reconcile && has(c.Old):
			found = append(found, r.by.complete(policy.Finding{
				Reason:  policy.RegisteredTaintRemoved,
				Field:   taintsPath().String(),
				Value:   r.String(),
				Problem: "the policy keeps this taint on nodes with these labels",
				Remedy:  "change the labels of the node, or the policy, first",
			}, ""))
		}
	}
	return found
}

func taintsPath() *field.Path { return field.NewPath("spec", "taints") }

// owned finds a node that makes itself somebody's dependent. The garbage collector
// would delete it, and it could come back with other labels (CVE-2025-5187). Newer API
// servers refuse that when a node changes itself, but not when it comes.
func owned(c NodeChange) *policy.Finding {
	var before []metav1.OwnerReference
	if c.Old != nil {
		before = c.Old.Owners
	}
	if equality.Semantic.DeepEqual(c.New.Owners, before) {
		return nil
	}
	return &policy.Finding{
		Reason:  policy.NodeOwned,
		Field:   field.NewPath("metadata", "ownerReferences").String(),
		Problem: "a node may not say who owns it: it could have itself deleted, and come back without its taints",
		Remedy:  "leave ownerReferences as they are",
	}
}

// left finds the registered taints that a node would no longer be given, because it
// changed its own labels.
func (s *Set) left(c NodeChange) []policy.Finding {
	if c.Old == nil || !s.Registers() || maps.Equal(c.New.Labels, c.Old.Labels) {
		return nil
	}
	after := s.Register(c.New.Labels)
	var found []policy.Finding
	for _, r := range s.Register(c.Old.Labels) {
		if slices.ContainsFunc(after, func(a Registered) bool { return a.Taint == r.Taint }) {
			continue
		}
		found = append(found, r.by.complete(policy.Finding{
			Reason:  policy.NodeLeavesSelector,
			Field:   field.NewPath("metadata", "labels").String(),
			Value:   policy.ShortList(changedLabels(c.New.Labels, c.Old.Labels), ", ", policy.MaxKeyLength),
			Problem: "the node would change its own labels so that it is no longer given the taint " + r.String(),
			Remedy:  "have somebody else change the labels",
		}, ""))
	}
	return found
}

func changedLabels(now, old map[string]string) []string {
	changed := map[string]struct{}{}
	for key, value := range now {
		if before, ok := old[key]; !ok || before != value {
			changed[key] = struct{}{}
		}
	}
	for key := range old {
		if _, ok := now[key]; !ok {
			changed[key] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(changed))
}

// sameTaints reports whether two lists are the same taints in the same order.
func sameTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Taint) bool { return OfNode(&a) == OfNode(&b) })
}
