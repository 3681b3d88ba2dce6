package placement

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

const createAgain = "Tollgate adds it to what is created: create it again, or add it"

// JudgePod returns the findings about a pod as it would be stored. Contradictions of the
// policies, and missing gates, without which a pod would not wait for the owners of the gate,
// refuse it. Everything else that is missing is a warning.
func (m Matching) JudgePod(pod Pod) []policy.Finding {
	found := report{most: MaxFindings}
	if !m.Empty() {
		m.judgePod(pod, &found)
	}
	return found.findings
}

func (m Matching) judgePod(pod Pod, to *report) {
	s := m.steering(pod)
	lacks := m.give(pod, s)
	s.contradictions(to)
	m.missingGates(pod, &lacks, to)
	// From here on nothing refuses.
	m.failures(to)
	s.inconsistencies(to)
	m.missing(&lacks, to)
}

// failures warns of policies that may be for the object. Their gates are given in any
// case.
func (m Matching) failures(to *report) {
	for _, f := range m.failed {
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

// contradictions refuses the conflicts of the pod with the policies.
func (s *steering) contradictions(to *report) {
	for _, c := range s.conflicts() {
		f := policy.Finding{
			Reason:  policy.PlacementContradicted,
			Policy:  refsTo(s.authors(func(own *need) bool { return own.Key == c.key })),
			Field:   "spec.nodeSelector",
			Value:   requirementWords(&c.own),
			Problem: "contradicts the policy, which steers the pod to nodes with " + needsWords(about(c.key, s.wanted)),
			Remedy:  "leave it out, or narrow it to what the policy allows",
		}
		if c.term >= 0 {
			f.Field = termPath(c.term)
		}
		to.add(f)
	}
}

// inconsistencies warns of policies that contradict each other, so that no node fits the
// pod.
func (s *steering) inconsistencies(to *report) {
	for _, key := range s.keys {
		if wanted := about(key, s.wanted); !satisfiable(wanted) {
			to.add(warning(policy.Finding{
				Reason:  policy.PlacementContradicted,
				Policy:  refsTo(s.authors(func(own *need) bool { return own.Key == key })),
				Field:   "spec.affinity",
				Value:   needsWords(wanted),
				Problem: "no node can satisfy what the policies require together, so the pod will not be scheduled",
				Remedy:  "ask who wrote the policies",
			}))
		}
	}
}

// missing warns of missing additions other than gates.
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

// missingGates refuses a pod that lacks a gate, and a pod with a nodeName, which cannot wait
// behind one.
func (m Matching) missingGates(pod Pod, lacks *PodAdditions, to *report) {
	problem, remedy := "is given by the policy, and is not there", createAgain
	if pod.Spec.NodeName != "" {
		m.giveGates(pod.Spec, lacks)
		problem = "the policy holds the pod back behind this gate, and a pod that is put on a node by name cannot wait"
		remedy = "leave spec.nodeName out"
	}
	for _, gate := range lacks.gates {
		to.add(policy.Finding{
			Reason:  policy.PlacementMissing,
			Policy:  refTo(gate.policy),
			Field:   "spec.schedulingGates",
			Value:   policy.Short(*gate.value, maxName),
			Problem: problem + m.doubt(gate.policy),
			Remedy:  remedy,
		})
	}
}

// doubt explains why it is unknown whether a policy is for the pod, where that is so.
func (m Matching) doubt(name string) string {
	for _, f := range m.failed {
		switch {
		case f.policy.name != name:
		case f.missing != nil:
			return " (" + f.unknown() + ": create it before the pod)"
		default:
			return " (a matchCondition of the policy failed, and who makes it fail is not let by: " + policy.Short(f.problem, maxProblem) + ")"
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
	return policy.JoinRefs(refs)
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

// MaxFindings bounds the findings about one object.
const MaxFindings = 32

// report collects findings up to a number. Those that refuse are added before warnings, so
// that the bound never changes the verdict.
type report struct {
	most     int
	findings []policy.Finding
	// cut says that there was more, and that all that follows is dropped.
	cut bool
}

func (r *report) add(f policy.Finding) {
	switch {
	case len(r.findings) < r.most-1:
		r.findings = append(r.findings, f)
	case !r.cut:
		r.findings = append(r.findings, policy.Finding{
			Reason:  policy.MoreFindings,
			Policy:  f.Policy,
			Actions: f.Actions,
			Field:   f.Field,
			Problem: "more is amiss, by this policy or others, than is listed",
		})
		r.cut = true
	}
}

// The maximum lengths of texts from users and policies in messages.
const (
	maxName    = 128
	maxProblem = 512
	maxNeeds   = 512
)

// tolerationWords says what is tolerated as a user would write it.
func tolerationWords(t *corev1.Toleration) string {
	key := t.Key
	if key == "" {
		key = "*"
	}
	text := policy.Short(key, policy.MaxKeyLength)
	switch operatorOf(t) {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpLt:
		text += "<" + policy.Short(t.Value, policy.Value)
	case corev1.TolerationOpGt:
		text += ">" + policy.Short(t.Value, policy.Value)
	case corev1.TolerationOpEqual:
		text += "=" + policy.Short(t.Value, policy.Value)
	default:
		text += " " + policy.Short(string(t.Operator), policy.Enum) + " " + policy.Short(t.Value, policy.Value)
	}
	if t.Effect != "" {
		text += ":" + policy.Short(string(t.Effect), policy.Enum)
	}
	if t.TolerationSeconds != nil {
		text += " for " + strconv.FormatInt(*t.TolerationSeconds, 10) + "s"
	}
	return text
}

// requirementWords says what is required of a label.
func requirementWords(r *corev1.NodeSelectorRequirement) string {
	key := policy.Short(r.Key, policy.MaxKeyLength)
	values := policy.ShortList(r.Values, ", ", policy.Value)
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		if len(r.Values) == 1 {
			return key + "=" + values
		}
		return key + " in [" + values + "]"
	case corev1.NodeSelectorOpNotIn:
		return key + " not in [" + values + "]"
	case corev1.NodeSelectorOpExists:
		return key
	case corev1.NodeSelectorOpDoesNotExist:
		return "no " + key
	case corev1.NodeSelectorOpGt:
		return key + " > " + values
	case corev1.NodeSelectorOpLt:
		return key + " < " + values
	default:
		return key + " " + policy.Short(string(r.Operator), policy.Enum) + " [" + values + "]"
	}
}

func needsWords(requirements []corev1.NodeSelectorRequirement) string {
	words := make([]string, 0, len(requirements))
	for i := range requirements {
		words = append(words, requirementWords(&requirements[i]))
	}
	return policy.Short(strings.Join(words, " and "), maxNeeds)
}
