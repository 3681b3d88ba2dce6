package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// policiesAt returns the EvictionPolicies as they were at a revision, and whether no
// one could have known others: that none was changed since then.
func (x *index) policiesAt(since time.Time, revision int64) (policies []*v1alpha1.EvictionPolicy, quiet bool) {
	quiet = true
	for _, n := range x.named[kindPolicy] {
		var last *v1alpha1.EvictionPolicy
		chain := x.chains[n]
		for i, v := range chain {
			if v.Revision > revision {
				break
			}
			policy, _ := v.Object.(*v1alpha1.EvictionPolicy)
			changed := i == 0 || v.Gone || chain[i-1].Gone || generation(chain[i-1]) != generation(v)
			if changed && !v.Seen.Before(since) {
				quiet = false
			}
			if last = policy; v.Gone {
				last = nil
			}
		}
		if last != nil {
			policies = append(policies, last)
		}
	}
	slices.SortFunc(policies, governs)
	return policies, quiet
}

func generation(v *Version) int64 { return v.Object.GetGeneration() }

// governs orders policies: the highest priority first, then the older, then by name.
func governs(a, b *v1alpha1.EvictionPolicy) int {
	return cmp.Or(
		cmp.Compare(b.Spec.Priority, a.Spec.Priority),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

// selects reports whether a policy is about a pod that leaves because of a taint.
func (x *index) selects(policy *v1alpha1.EvictionPolicy, pod *corev1.Pod, r *reason, revision int64) bool {
	if !slices.ContainsFunc(policy.Spec.Taints, func(s v1alpha1.TaintSelector) bool { return selectsTaint(&s, r) }) {
		return false
	}
	var ofNamespace map[string]string
	if v := x.at(name{kindNamespace, "", pod.Namespace}, revision); v != nil {
		ofNamespace = v.Object.GetLabels()
	}
	return matches(policy.Spec.PodSelector, pod.Labels, true) && matches(policy.Spec.NamespaceSelector, ofNamespace, true)
}

func selectsTaint(s *v1alpha1.TaintSelector, r *reason) bool {
	target := cmp.Or(s.Target, v1alpha1.TaintTargetNode)
	if target != r.target {
		return false
	}
	key := s.Key == r.key
	switch prefix, wild := strings.CutSuffix(s.Key, "*"); {
	case s.Key == "*":
		key = target == v1alpha1.TaintTargetDevice || !system(r.key)
	case wild:
		key = strings.HasPrefix(r.key, prefix)
	}
	return key &&
		(len(s.Values) == 0 || slices.Contains(s.Values, r.value)) &&
		(len(s.Effects) == 0 || slices.Contains(s.Effects, corev1.TaintEffectNoExecute)) &&
		(len(s.Drivers) == 0 || slices.Contains(s.Drivers, r.driver))
}

func system(key string) bool {
	return strings.HasPrefix(key, "node.kubernetes.io/") || strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/")
}

func matches(selector *metav1.LabelSelector, have map[string]string, absent bool) bool {
	if selector == nil {
		return absent
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(have))
}

// governing returns the policy that decides about an eviction; nil for none.
func (x *index) governing(policies []*v1alpha1.EvictionPolicy, pod *corev1.Pod, r *reason, revision int64) *v1alpha1.EvictionPolicy {
	for _, policy := range policies {
		if x.selects(policy, pod, r, revision) {
			return policy
		}
	}
	return nil
}

// keeps reports why a policy keeps a pod; empty where it does not.
func keeps(policy *v1alpha1.EvictionPolicy, pod *corev1.Pod) string {
	switch {
	case policy == nil:
		return ""
	case policy.Spec.Paused:
		return "paused"
	case policy.Spec.Protect != nil && protects(policy.Spec.Protect, pod):
		return "protected"
	}
	return ""
}

func protects(protection *v1alpha1.EvictionProtection, pod *corev1.Pod) bool {
	return slices.Contains(protection.PriorityClassNames, pod.Spec.PriorityClassName) && pod.Spec.PriorityClassName != "" ||
		matches(protection.PodSelector, pod.Labels, false)
}

// methodOf returns how a policy makes pods leave at a time, of a pod that has had to
// since due.
func methodOf(policy *v1alpha1.EvictionPolicy, due, now time.Time) string {
	if policy == nil || policy.Spec.Method != v1alpha1.EvictionMethodEvict {
		return methodDelete
	}
	if d := policy.Spec.DeleteAfter; d != nil && !now.Before(due.Add(d.Duration)) {
		return methodDelete
	}
	return methodEvict
}
