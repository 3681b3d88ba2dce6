package placement

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

const createAgain = "Tollgate adds it to what is created: create it again, or add it"

// JudgePod returns what is to be said about a pod as it would be stored: where it
// contradicts the policies, which refuses it; a gate that it lacks, which refuses it
// too, because a pod without would pass by whoever opens the gate; and everything
// else that it should have been given, which is only warned of.
func (m Matching) JudgePod(pod Pod) []policy.Finding {
	found := report{most: MaxFindings}
	if !m.Empty() {
		m.judgePod(pod, &found)
	}
	return found.findings
}

func (m Matching) judgePod(pod Pod, to *report) {
	var needs []need
	if !pod.FromDaemonSetController {
		needs = m.needs()
	}
	s, lacks := newSteering(needs, pod.Spec), m.GivePod(pod)
	s.contradictions(to)
	m.missingGates(pod, &lacks, to)
	// From here on nothing refuses.
	m.failures(to)
	s.quarrels(to)
	m.missing(&lacks, to)
}

// failures warns of policies of which it could not be told whether they apply. That
// opens nothing: their gates are given all the same.
func (m Matching) failures(to *report) {
	for _, f := range m.failed {
		if to.cut {
			return
		}
		gives := "nothing"
		if f.policy.gates() != nil {
			gives = "its scheduling gates to pods, and nothing else"
		}
		to.add(warning(policy.Finding{
			Reason:  policy.PlacementMissing,
			Policy:  refTo(f.policy.name),
			Field:   "metadata",
			Problem: f.gives(gives),
		}))
	}
}

// contradictions refuses what the pod says against the policies.
func (s *steering) contradictions(to *report) {
	for _, c := range s.clashes() {
		if to.cut {
			return
		}
		f := policy.Finding{
			Reason:  policy.PlacementContradicted,
			Policy:  refsTo(s.authors(c.key)),
			Field:   "spec.nodeSelector",
			Value:   requirementWords(&c.own),
			Problem: "contradicts the policy, which steers the pod to nodes with " + needsWords(of(c.key, s.needs)),
			Remedy:  "leave it out, or narrow it to what the policy allows",
		}
		if c.term >= 0 {
			f.Field = termPath(c.term)
		}
		to.add(f)
	}
}

// quarrels warns of policies that contradict each other. The pod can do nothing
// about it, and will find no node.
func (s *steering) quarrels(to *report) {
	for _, key := range keysOf(s.needs) {
		if wanted := of(key, s.needs); !satisfiable(wanted) {
			to.add(warning(policy.Finding{
				Reason:  policy.PlacementContradicted,
				Policy:  refsTo(s.authors(key)),
				Field:   "spec.affinity",
				Value:   needsWords(wanted),
				Problem: "no node can satisfy what the policies require together, so the pod will not be scheduled",
				Remedy:  "ask who wrote the policies",
			}))
		}
	}
}

// authors returns whose needs are about a label.
func (s *steering) authors(key string) []string {
	var names []string
	for i := range s.needs {
		if s.needs[i].Key == key {
			names = append(names, s.needs[i].policies...)
		}
	}
	return sortedSet(names)
}

// missing warns of what the pod should have been given beside gates.
func (m Matching) missing(lacks *PodAdditions, to *report) {
	m.each(lacks, func(policies []string, at, value string) {
		to.add(warning(policy.Finding{
			Reason:  policy.PlacementMissing,
			Policy:  refsTo(policies),
			Field:   at,
			Value:   value,
			Problem: "is given by the policy, and is not there",
			Remedy:  createAgain,
		}))
	})
}

// missingGates refuses a pod that lacks a gate. One that is put on a node by name
// cannot wait, and so cannot be put there.
func (m Matching) missingGates(pod Pod, lacks *PodAdditions, to *report) {
	problem, remedy := "is given by the policy, and is not there", createAgain
	if pod.Spec.NodeName != "" {
		m.giveGates(pod.Spec, lacks)
		problem = "the policy holds the pod back behind this gate, and a pod that is put on a node by name cannot wait"
		remedy = "leave spec.nodeName out"
	}
	for _, gate := range lacks.gates {
		if to.cut {
			return
		}
		to.add(policy.Finding{
			Reason:  policy.PlacementMissing,
			Policy:  refTo(gate.policy),
			Field:   "spec.schedulingGates",
			Value:   printable(*gate.value, maxName),
			Problem: problem + m.doubt(gate.policy),
			Remedy:  remedy,
		})
	}
}

// doubt says that it could not be told whether a policy applies, where that is so.
func (m Matching) doubt(name string) string {
	for _, f := range m.failed {
		switch {
		case f.policy.name != name:
		case f.missing != nil:
			return " (" + f.unknown() + ": create it before the pod)"
		default:
			return " (a matchCondition of the policy failed, and who makes it fail is not let by: " + printable(f.problem, maxProblem) + ")"
		}
	}
	return ""
}

// spreaders returns the policies that set defaults of topology spread.
func (m Matching) spreaders() []string {
	var names []string
	for _, c := range m.policies {
		if c.pod.spread.NodeTaintsPolicy != nil || c.pod.spread.NodeAffinityPolicy != nil {
			names = append(names, c.name)
		}
	}
	return names
}

func warning(f policy.Finding) policy.Finding {
	f.Actions = []v1alpha1.ValidationAction{v1alpha1.Warn}
	return f
}

func refTo(name string) string { return "PlacementPolicy/" + name }

func refsTo(names []string) string {
	refs := make([]string, 0, len(names))
	for _, name := range names {
		refs = append(refs, refTo(name))
	}
	return strings.Join(refs, ", ")
}

func termPath(index int) string {
	path := field.NewPath("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	if index < 0 {
		return path.String()
	}
	return path.Index(index).String()
}

func (d *SpreadDefault) words() string {
	var words []string
	add := func(name string, p *corev1.NodeInclusionPolicy) {
		if p != nil {
			words = append(words, name+": "+string(*p))
		}
	}
	add("nodeTaintsPolicy", d.NodeTaintsPolicy)
	add("nodeAffinityPolicy", d.NodeAffinityPolicy)
	return strings.Join(words, ", ")
}
