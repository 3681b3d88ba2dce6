package checks

import "strings"

// Reason is the reason why a pod that is due is held. The values are metric labels.
type Reason string

// The reasons.
const (
	// Paused means that the policy of the eviction is paused.
	Paused Reason = "paused"
	// Protected means that the policy of the eviction protects the pod.
	Protected Reason = "protected"
	// NodesDown means that all nodes are down, which is more likely a failure of the control plane
	// than of all nodes at once (J03).
	NodesDown Reason = "nodes_down"
	// Looping means that pods of one controller are evicted again and again because of one
	// taint (J12).
	Looping Reason = "looping"
	// TwinMissing means that the replacement of the pod could return: in mode Window, the
	// NoSchedule taint that is paired with the NoExecute taint has to exist first.
	TwinMissing Reason = "twin_missing"
	// NamespaceUnknown means that a policy selects namespaces by labels, and the labels of the
	// namespace are not known.
	NamespaceUnknown Reason = "namespace_unknown"
	// BreakerTripped means that a breaker allows no more pods to leave.
	BreakerTripped Reason = "breaker_tripped"
	// Budget means that a PodDisruptionBudget does not allow the eviction.
	Budget Reason = "budget"
)

// texts has the name of each reason in conditions, and the text that explains it and says what ends the
// hold. {policy} stands for the EvictionPolicy, and {name} for its name.
var texts = map[Reason]struct{ condition, text string }{
	Paused:    {condition: "Paused", text: "{policy} is paused. To let them go: kubectl tollgate resume policy {name}"},
	Protected: {condition: "Protected", text: "{policy} protects them. They stay until the taint goes, or spec.protect is changed"},
	NodesDown: {condition: "NodesDown", text: "every node is not ready or unreachable, which is hardly the fault of all of them. They go on when a node is back"},
	Looping: {condition: "Looping", text: "pods of the same controller are evicted because of it again and again. " +
		"They go one after the other, more and more slowly; keep new pods off with the effect NoSchedule"},
	TwinMissing:      {condition: "TwinMissing", text: "nothing keeps new pods off yet. They go once the same taint stands there with the effect NoSchedule"},
	NamespaceUnknown: {condition: "NamespaceUnknown", text: "{policy} asks for labels of their namespace, which are not known yet"},
	BreakerTripped: {condition: "BreakerTripped", text: "the breaker of {policy} has let as many pods go as it may. " +
		"Approve with an EvictionApproval for this object or for the policy, or raise spec.breaker"},
	Budget: {condition: "BudgetExceeded", text: "their PodDisruptionBudgets do not let them go. This is tried again and again, as {policy} says (method Evict)"},
}

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Paused, Protected, NodesDown, Looping, TwinMissing, NamespaceUnknown, BreakerTripped, Budget}
}

// Condition returns the reason for conditions.
func (r Reason) Condition() string {
	if known, ok := texts[r]; ok {
		return known.condition
	}
	return "Held"
}

// Explain returns why pods are held, and what ends the hold. policy is the name of the EvictionPolicy
// that holds them, empty for none.
func (r Reason) Explain(policy string) string {
	return strings.NewReplacer("{policy}", "EvictionPolicy "+policy, "{name}", policy).Replace(texts[r].text)
}

// FoundByRequest reports whether only an attempt to evict the pod shows that the hold has ended.
func (r Reason) FoundByRequest() bool { return r == BreakerTripped || r == Budget }
