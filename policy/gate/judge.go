package gate

import (
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
)

// Judge decides whether who may make pod of old. Every policy that guards a gate
// must have who among its owners for the gate to go, and for the node selector or
// the node affinity to change while the old pod waits behind it: Kubernetes looks at
// the old pod too, so one update may tighten and let go (SD-04). Whether a change
// tightens is not judged here.
//
// Anyone may create a pod with any gate: that holds nobody but the pod.
func (s *Set) Judge(who *authenticationv1.UserInfo, pod, old *corev1.PodSpec) policy.Decision {
	return s.JudgeAt(field.NewPath("spec"), who, pod, old)
}

// JudgeAt is Judge for the template of a Job's pods, which changes while the Job is
// suspended (SD-15). Path is where the spec of the pod stands.
func (s *Set) JudgeAt(path *field.Path, who *authenticationv1.UserInfo, pod, old *corev1.PodSpec) policy.Decision {
	if s.Len() == 0 || len(old.SchedulingGates) == 0 {
		return policy.Decide(nil)
	}
	r := report{path: path.Child("schedulingGates")}
	stay := make(sets.Set[string], len(pod.SchedulingGates))
	for _, gate := range pod.SchedulingGates {
		stay.Insert(gate.Name)
	}
	changed := changedDirectives(path, pod, old)
	for _, gate := range old.SchedulingGates {
		for _, position := range s.guarding(gate.Name) {
			c := s.Policies[position]
			if c.owners.Includes(who) {
				continue
			}
			if !stay.Has(gate.Name) {
				r.add(c, c.removed(gate.Name, r.path.String()))
			}
			for _, path := range changed {
				r.add(c, c.tightened(gate.Name, path))
			}
		}
	}
	return policy.Decide(r.findings)
}

// changedDirectives returns the paths of the directives that Kubernetes lets change
// behind a gate, and that did.
func changedDirectives(spec *field.Path, pod, old *corev1.PodSpec) []string {
	var changed []string
	if !equality.Semantic.DeepEqual(pod.NodeSelector, old.NodeSelector) {
		changed = append(changed, spec.Child("nodeSelector").String())
	}
	if !equality.Semantic.DeepEqual(nodeAffinity(pod), nodeAffinity(old)) {
		changed = append(changed, spec.Child("affinity", "nodeAffinity").String())
	}
	return changed
}

func nodeAffinity(pod *corev1.PodSpec) *corev1.NodeAffinity {
	if pod.Affinity == nil {
		return nil
	}
	return pod.Affinity.NodeAffinity
}

func (c *compiled) removed(gate, path string) policy.Finding {
	return policy.Finding{
		Reason:  policy.GateNotOwned,
		Policy:  c.ref,
		Actions: slices.Clone(c.actions),
		Field:   path,
		Value:   policy.Short(gate, maxGate),
		Problem: c.withMessage("only an owner of the gate may remove it"),
		Remedy:  c.remedy,
	}
}

func (c *compiled) tightened(gate, path string) policy.Finding {
	return policy.Finding{
		Reason:  policy.GatedPodNotOwned,
		Policy:  c.ref,
		Actions: slices.Clone(c.actions),
		Field:   path,
		Value:   "held by " + policy.Short(gate, maxGate),
		Problem: c.withMessage("only an owner of the gate may change it while the pod waits behind the gate"),
		Remedy:  c.remedy,
	}
}

func (c *compiled) withMessage(problem string) string {
	if c.message == "" {
		return problem
	}
	return problem + ": " + c.message
}

// MaxFindings bounds the findings of a decision: a pod may have any number of gates,
// and the answer must stay readable.
const MaxFindings = 20

// report collects findings up to the bound, but always one that denies where there is
// one, so that the bound never changes the verdict.
type report struct {
	path        *field.Path
	findings    []policy.Finding
	denied, cut bool
}

func (r *report) add(c *compiled, f policy.Finding) {
	switch {
	case len(r.findings) < MaxFindings-2 || c.denies && !r.denied:
		r.findings = append(r.findings, f)
		r.denied = r.denied || c.denies
	case !r.cut:
		r.findings = append(r.findings, policy.Finding{
			Reason:  policy.MoreFindings,
			Policy:  c.ref,
			Actions: slices.Clone(c.actions),
			Field:   r.path.String(),
			Problem: "more gates are guarded by this policy or others than are listed",
		})
		r.cut = true
	}
}
