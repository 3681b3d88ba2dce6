package gate

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/policy"
)

// Judge decides whether a user may update a pod. The user must be an owner of every policy that
// guards a gate to remove the gate, and to change the node selector or the node affinity while
// the old pod waits behind it: Kubernetes looks at the old pod too, so one update may tighten
// and let go (SD-04). Whether a change tightens is not judged here.
//
// Every user may create a pod with any gate, because that holds no other pod.
func (s *Set) Judge(by *authenticationv1.UserInfo, pod, old *corev1.PodSpec) policy.Decision {
	return s.JudgeAt(field.NewPath("spec"), by, pod, old)
}

// JudgeAt is Judge for the template of the pods of a Job, which changes while the Job is
// suspended (SD-15). Path is the path of the spec of the pod.
func (s *Set) JudgeAt(path *field.Path, by *authenticationv1.UserInfo, pod, old *corev1.PodSpec) policy.Decision {
	if s.Len() == 0 || len(old.SchedulingGates) == 0 {
		return policy.Decide(nil)
	}
	var r policy.Report
	gates := path.Child("schedulingGates").String()
	add := func(c *compiled, f policy.Finding) {
		f.Policy, f.Actions = c.ref, slices.Clone(c.actions)
		r.Add(c.denies, func() policy.Finding {
			f.Remedy = c.remedy
			if c.message != "" {
				f.Problem += ": " + c.message
			}
			return f
		}, policy.Finding{
			Reason: policy.MoreFindings, Policy: f.Policy, Actions: f.Actions, Field: gates,
			Problem: "more gates are guarded by this policy or others than are listed",
		})
	}
	stay := sets.New(pod.SchedulingGates...)
	var changed []string // the paths of the directives that Kubernetes lets change behind a gate
	if !equality.Semantic.DeepEqual(pod.NodeSelector, old.NodeSelector) {
		changed = append(changed, path.Child("nodeSelector").String())
	}
	if !equality.Semantic.DeepEqual(ptr.Deref(pod.Affinity, corev1.Affinity{}).NodeAffinity, ptr.Deref(old.Affinity, corev1.Affinity{}).NodeAffinity) {
		changed = append(changed, path.Child("affinity", "nodeAffinity").String())
	}
	for _, gate := range old.SchedulingGates {
		for _, position := range s.guarding(gate.Name) {
			c := s.Policies[position]
			if c.owners.Includes(by) {
				continue
			}
			name := policy.Short(gate.Name, maxGate)
			if !stay.Has(gate) {
				add(c, policy.Finding{
					Reason: policy.GateNotOwned, Field: gates, Value: name, Problem: "only an owner of the gate may remove it",
				})
			}
			for _, path := range changed {
				add(c, policy.Finding{
					Reason: policy.GatedPodNotOwned, Field: path, Value: "held by " + name,
					Problem: "only an owner of the gate may change it while the pod waits behind the gate",
				})
			}
		}
	}
	return policy.Decide(r.Findings)
}

// Guard is a policy that guards a gate, to explain why a pod waits.
type Guard struct {
	// Policy is "GatePolicy/name".
	Policy string
	// Owners describes the owners of the gate, as a denial does.
	Owners string
	// Denies is false where removal by others is a warning, or only recorded.
	Denies bool
	// Message is the message of the policy; empty for none.
	Message string
}

// Guards returns the policies that guard a gate, by name. Only a user who is an owner of all of
// them may remove it; without any, every user who may update the pod.
func (s *Set) Guards(gate string) []Guard {
	if s.Len() == 0 {
		return nil
	}
	var guards []Guard
	for _, position := range s.guarding(gate) {
		c := s.Policies[position]
		guards = append(guards, Guard{Policy: c.ref, Owners: c.remedy, Denies: c.denies, Message: c.message})
	}
	return guards
}
