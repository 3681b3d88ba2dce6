package taint

import (
	"maps"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

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

// Chosen returns the writes that the requester chose and that setters therefore must allow. A
// node that registers itself chooses none: its taints affect only the node itself.
//
// When another user creates a node, Chosen omits the not-ready taint, which Kubernetes adds
// to every new node (TP-17), and the taints that policies register for the node.
//
// When a node is updated, Chosen omits an added taint only if a policy with reconcile
// registers it for the node both before and after the update, and its timeAdded is unset or
// close to now: Tollgate would add the same taint. A requester who adds a taint together with
// the label that registers it chose both. A change of a taint is always chosen, even a change
// of timeAdded alone.
func (s *Set) Chosen(c NodeChange, writes []Write, now time.Time) []Write {
	if c.Registers() || len(writes) == 0 {
		return nil
	}
	registered := s.Register(c.New.Labels)
	if c.Old == nil {
		return slices.DeleteFunc(slices.Clone(writes), func(w Write) bool {
			return w.New.Key == corev1.TaintNodeNotReady && w.New.Effect == corev1.TaintEffectNoSchedule || among(registered, w.New)
		})
	}
	before := s.Register(c.Old.Labels)
	kept := slices.DeleteFunc(registered, func(r Registered) bool {
		return !r.Reconcile || !slices.ContainsFunc(before, func(b Registered) bool { return b.Reconcile && b.Taint == r.Taint })
	})
	if len(kept) == 0 {
		return writes
	}
	return slices.DeleteFunc(slices.Clone(writes), func(w Write) bool {
		return w.Operation == v1alpha1.TaintAdd && among(kept, w.New) && (w.New.TimeAdded.IsZero() || now.Sub(w.New.TimeAdded).Abs() <= stampWindow)
	})
}

// among reports whether one of the registered taints is t, whatever its time.
func among(registered []Registered, t Taint) bool {
	t.TimeAdded = time.Time{}
	return slices.ContainsFunc(registered, func(r Registered) bool { return OfNode(&r.Taint) == t })
}

// JudgeNode returns the violations of registrations by a write of a node: a registered taint
// that is missing at creation, or that is removed although the policy keeps it. It also
// returns changes by which a node, with its own credentials, would lose a registered taint:
// of its labels, or of its owner references, which can get it deleted and created again
// (C22). Judge decides on all other writes of taints.
func (s *Set) JudgeNode(c NodeChange) []policy.Finding {
	found := s.kept(c)
	if _, ok := IsNode(c.User); !ok {
		return found
	}
	// A node that names an owner would be deleted with the owner by the garbage collector, and
	// could come back with other labels (CVE-2025-5187). Newer API servers refuse that when a node
	// changes itself, but not when it comes.
	if !equality.Semantic.DeepEqual(c.New.Owners, ptr.Deref(c.Old, Node{}).Owners) {
		found = append(found, policy.Finding{
			Reason:  policy.NodeOwned,
			Field:   "metadata.ownerReferences",
			Problem: "a node may not say who owns it: it could have itself deleted, and come back without its taints",
			Remedy:  "leave ownerReferences as they are",
		})
	}
	if c.Old == nil || maps.Equal(c.New.Labels, c.Old.Labels) {
		return found
	}
	after := s.Register(c.New.Labels)
	for _, r := range s.Register(c.Old.Labels) {
		if among(after, OfNode(&r.Taint)) {
			continue
		}
		found = append(found, r.by.complete(policy.Finding{
			Reason:  policy.NodeLeavesSelector,
			Field:   "metadata.labels",
			Value:   policy.ShortList(changedLabels(c.New.Labels, c.Old.Labels), ", ", policy.MaxKeyLength),
			Problem: "the node would change its own labels so that it is no longer given the taint " + r.String(),
			Remedy:  "have somebody else change the labels",
		}, ""))
	}
	return found
}

// kept finds the registered taints that are missing from a node which is created, and
// those that are taken from one where they are kept.
func (s *Set) kept(c NodeChange) []policy.Finding {
	if c.Old != nil && slices.EqualFunc(c.New.Taints, c.Old.Taints, func(a, b corev1.Taint) bool { return OfNode(&a) == OfNode(&b) }) {
		return nil
	}
	var found []policy.Finding
	for _, r := range s.Register(c.New.Labels) {
		has := func(n *Node) bool {
			return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return r.Is(&t) })
		}
		if has(c.New) || c.Old != nil && (!r.Reconcile || !has(c.Old)) {
			continue
		}
		f := policy.Finding{
			Reason: policy.RegisteredTaintMissing, Field: "spec.taints", Value: r.String(),
			Problem: "a node with these labels is created with this taint, and comes without it",
			Remedy:  "create the node with the taint, or again when Tollgate's mutating webhook answers, which adds it",
		}
		if c.Old != nil {
			f.Reason, f.Problem = policy.RegisteredTaintRemoved, "the policy keeps this taint on nodes with these labels"
			f.Remedy = "change the labels of the node, or the policy, first"
		}
		found = append(found, r.by.complete(f, ""))
	}
	return found
}

func changedLabels(now, old map[string]string) []string {
	changed := sets.KeySet(now).Union(sets.KeySet(old))
	for key := range changed {
		value, is := now[key]
		if before, was := old[key]; is == was && value == before {
			changed.Delete(key)
		}
	}
	return sets.List(changed)
}

// registration is a compiled registration of taints.
type registration struct {
	*v1alpha1.TaintRegistration

	nodes labels.Selector
}

// Registered is a taint that a node is given by a policy.
type Registered struct {
	Policy string
	// Created is the time of the creation of the policy.
	Created metav1.Time
	Taint   corev1.Taint
	// Reconcile says that the taint is kept on nodes that exist already.
	Reconcile bool

	by *compiled
}

// Kept returns the taints that are kept on a node with labels that exists already.
func (s *Set) Kept(nodeLabels map[string]string) []corev1.Taint {
	var taints []corev1.Taint
	for _, r := range s.Register(nodeLabels) {
		if r.Reconcile {
			taints = append(taints, r.Taint)
		}
	}
	return taints
}

// Is reports whether t is the registered taint, whatever its time.
func (r *Registered) Is(t *corev1.Taint) bool {
	return r.Same(t) && t.Value == r.Taint.Value
}

// Same reports whether t stands where the registered taint would: a node has one of
// each key and effect.
func (r *Registered) Same(t *corev1.Taint) bool {
	return r.Taint.MatchTaint(t)
}

// String returns the taint as kubectl writes it.
func (r *Registered) String() string { return OfNode(&r.Taint).String() }

// Registers reports whether any policy gives nodes taints.
func (s *Set) Registers() bool { return s != nil && len(s.registering) > 0 }

// Register returns the taints for a node with these labels: of all policies, in the
// order of their names, one for each key and effect, the first. It is kept if one of
// those that name the same taint asks for it.
func (s *Set) Register(nodeLabels map[string]string) []Registered {
	if s == nil {
		return nil
	}
	var found []Registered
	for _, c := range s.registering {
		for _, in := range c.registers {
			if !in.nodes.Matches(labels.Set(nodeLabels)) {
				continue
			}
			for _, t := range in.Taints {
				r := Registered{Policy: c.name, Created: c.created, Taint: corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}, Reconcile: in.Reconcile, by: c}
				at := slices.IndexFunc(found, func(have Registered) bool { return have.Same(&r.Taint) })
				if at < 0 {
					found = append(found, r)
				} else if found[at].Taint == r.Taint {
					found[at].Reconcile = found[at].Reconcile || r.Reconcile
				}
			}
		}
	}
	return found
}

// Missing returns the registered taints that a node with these labels does not have. A taint
// with the same key and effect and another value is not missing: a user who may change taints
// set that value.
func (s *Set) Missing(nodeLabels map[string]string, taints []corev1.Taint) []Registered {
	return slices.DeleteFunc(s.Register(nodeLabels), func(r Registered) bool {
		return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return r.Same(&t) })
	})
}

// TTL returns the shortest ttl of the policies that govern a taint, counted from its
// timeAdded, and the name of the policy that sets it. ok is false if no policy sets one. TTL
// does not know whether a policy registers the taint on the node; the caller must keep
// registered taints (Register).
func (s *Set) TTL(taint Taint) (ttl time.Duration, by string, ok bool) {
	for _, position := range s.candidates([]Write{{Operation: v1alpha1.TaintRemove, Old: taint}}) {
		c := s.Policies[position]
		if c.ttl > 0 && (!ok || c.ttl < ttl) && c.governs(taint) {
			ttl, by, ok = c.ttl, c.name, true
		}
	}
	return ttl, by, ok
}
