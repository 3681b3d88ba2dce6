package placement

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

const (
	isMissing   = "is given by the policy, and is not there"
	createAgain = "Tollgate adds it to what is created: create it again, or add it"
)

// JudgePod returns the findings about a pod as it would be stored. Contradictions of the
// policies, and missing gates, without which a pod would not wait for the owners of the gate,
// refuse it. Everything else that is missing is a warning.
func (m Matching) JudgePod(pod Pod) []policy.Finding { return bounded(m.judgePod(pod)) }

func (m Matching) judgePod(pod Pod) report {
	if m.Empty() {
		return nil
	}
	var found report
	s := m.steering(pod)
	lacks := m.give(pod, s)
	for _, c := range s.conflicts() {
		f := policy.Finding{
			Reason:  policy.PlacementContradicted,
			Policy:  refsTo(s.authorsOn(c.key)),
			Field:   "spec.nodeSelector",
			Value:   requirementWords(&c.own),
			Problem: "contradicts the policy, which steers the pod to nodes with " + needsWords(about(c.key, s.needs)),
			Remedy:  "leave it out, or narrow it to what the policy allows",
		}
		if c.place != ofSelector {
			f.Field = termPath(c.place)
		}
		found = append(found, f)
	}
	m.missingGates(pod, &lacks, &found)
	// From here on nothing refuses.
	m.failures(&found)
	for _, key := range s.keys {
		// Policies may contradict each other, so that no node fits the pod.
		if wanted := about(key, s.needs); !satisfiable(wanted) {
			found.warn(policy.Finding{
				Reason:  policy.PlacementContradicted,
				Policy:  refsTo(s.authorsOn(key)),
				Field:   "spec.affinity",
				Value:   needsWords(wanted),
				Problem: "no node can satisfy what the policies require together, so the pod will not be scheduled",
				Remedy:  "ask who wrote the policies",
			})
		}
	}
	for _, missing := range m.gifts(&lacks) {
		found.lacks(missing, createAgain)
	}
	return found
}

// failures warns of policies that may be for the object. Their gates are given in any
// case.
func (m Matching) failures(to *report) {
	for _, f := range m.failed {
		gives := "nothing"
		if f.policy.gates != nil {
			gives = "its scheduling gates to pods, and nothing else"
		}
		problem := "a matchCondition of the policy failed, so it gives " + gives + ": " + f.problem
		if f.claim {
			problem = f.problem + ", so the policy gives " + gives
		}
		to.warn(policy.Finding{Reason: policy.PlacementMissing, Policy: "PlacementPolicy/" + f.policy.name, Field: "metadata", Problem: problem})
	}
}

// missingGates refuses a pod that lacks a gate, and a pod with a nodeName, which cannot wait
// behind one.
func (m Matching) missingGates(pod Pod, lacks *PodAdditions, to *report) {
	problem, remedy := isMissing, createAgain
	if pod.Spec.NodeName != "" {
		m.giveGates(pod.Spec, lacks)
		problem = "the policy holds the pod back behind this gate, and a pod that is put on a node by name cannot wait"
		remedy = "leave spec.nodeName out"
	}
	for i, c := range lacks.gating {
		doubt := "" // whether the policy is for the pod
		for _, f := range m.failed {
			switch {
			case f.policy != c:
			case f.claim:
				doubt = " (" + f.problem + ": create it before the pod)"
			default:
				doubt = " (a matchCondition of the policy failed, and who makes it fail is not let by: " + f.problem + ")"
			}
		}
		*to = append(*to, policy.Finding{
			Reason:  policy.PlacementMissing,
			Policy:  "PlacementPolicy/" + c.name,
			Field:   "spec.schedulingGates",
			Value:   policy.Short(lacks.Gates[i].Name, maxName),
			Problem: problem + doubt,
			Remedy:  remedy,
		})
	}
}

// spreaders returns the policies that set defaults of topology spread.
func (m Matching) spreaders() []string {
	return m.names(func(c *compiled) bool { return c.spread.NodeTaintsPolicy != nil || c.spread.NodeAffinityPolicy != nil })
}

func refsTo(names []string) string {
	refs := make([]string, len(names))
	for i, name := range names {
		refs[i] = "PlacementPolicy/" + name
	}
	return policy.JoinRefs(refs)
}

// termPath returns the path of a required term; that of all of them for a negative index.
func termPath(index int) string {
	const terms = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	if index < 0 {
		return terms
	}
	return fmt.Sprintf("%s[%d]", terms, index)
}

func (d *SpreadDefault) words() string {
	var words []string
	if d.NodeTaintsPolicy != nil {
		words = append(words, "nodeTaintsPolicy: "+string(*d.NodeTaintsPolicy))
	}
	if d.NodeAffinityPolicy != nil {
		words = append(words, "nodeAffinityPolicy: "+string(*d.NodeAffinityPolicy))
	}
	return strings.Join(words, ", ")
}

// MaxFindings bounds the findings about one object.
const MaxFindings = 32

// report collects findings. Those that refuse are added before warnings.
type report []policy.Finding

// bounded returns the findings, of which the last may stand for the rest. The bound never changes
// the verdict.
func bounded(all report) []policy.Finding {
	if len(all) < MaxFindings {
		return all
	}
	last := &all[MaxFindings-1]
	last.Reason, last.Problem = policy.MoreFindings, "more is amiss, by this policy or others, than is listed"
	last.Value, last.Remedy = "", ""
	return all[:MaxFindings]
}

func (r *report) warn(f policy.Finding) {
	f.Actions = []v1alpha1.ValidationAction{v1alpha1.Warn}
	*r = append(*r, f)
}

// lacks warns of an addition that is missing.
func (r *report) lacks(missing Gift, remedy string) {
	r.warn(policy.Finding{
		Reason: policy.PlacementMissing, Policy: refsTo(missing.Policies), Field: missing.Field, Value: missing.Value, Problem: isMissing, Remedy: remedy,
	})
}

// The maximum lengths of texts from users and policies in messages.
const (
	maxName    = 128
	maxProblem = 512
	maxNeeds   = 512
)

// signs are the operators of tolerations that take a value, as they stand before it.
var signs = map[corev1.TolerationOperator]string{corev1.TolerationOpEqual: "=", corev1.TolerationOpLt: "<", corev1.TolerationOpGt: ">"}

// tolerationWords says what is tolerated as a user would write it.
func tolerationWords(t *corev1.Toleration) string {
	text := policy.Short(cmp.Or(t.Key, "*"), policy.MaxKeyLength)
	if operator := operatorOf(t); operator != corev1.TolerationOpExists {
		sign, known := signs[operator]
		if !known {
			sign = " " + policy.Short(string(operator), policy.Enum) + " "
		}
		text += sign + policy.Short(t.Value, policy.Value)
	}
	if t.Effect != "" {
		text += ":" + policy.Short(string(t.Effect), policy.Enum)
	}
	if t.TolerationSeconds != nil {
		text += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
	}
	return text
}

// requirementWords says what is required of a label.
func requirementWords(r *corev1.NodeSelectorRequirement) string {
	format, known := requirementFormats[r.Operator]
	switch {
	case !known:
		format = "%[1]s %[3]s [%[2]s]"
	case r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1:
		format = "%[1]s=%[2]s"
	}
	return fmt.Sprintf(format, policy.Short(r.Key, policy.MaxKeyLength), policy.ShortList(r.Values, ", ", policy.Value), policy.Short(string(r.Operator), policy.Enum))
}

// requirementFormats have the key and the values.
var requirementFormats = map[corev1.NodeSelectorOperator]string{
	corev1.NodeSelectorOpIn:           "%[1]s in [%[2]s]",
	corev1.NodeSelectorOpNotIn:        "%[1]s not in [%[2]s]",
	corev1.NodeSelectorOpExists:       "%[1]s",
	corev1.NodeSelectorOpDoesNotExist: "no %[1]s",
	corev1.NodeSelectorOpGt:           "%[1]s > %[2]s",
	corev1.NodeSelectorOpLt:           "%[1]s < %[2]s",
}

func needsWords(needs requirements) string {
	words := make([]string, len(needs))
	for i := range needs {
		words[i] = requirementWords(&needs[i])
	}
	return policy.Short(strings.Join(words, " and "), maxNeeds)
}
