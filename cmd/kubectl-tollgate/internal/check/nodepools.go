package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// nodePools is the resource of Karpenter's NodePools. Karpenter launches nodes for pods that fit
// what a NodePool says of its nodes, and does not read TaintPolicies.
var nodePools = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}

// nodePool is the part of a NodePool that says what labels and taints its nodes have. The fields
// are those of karpenter.sh/v1; encoding/json finds them in spite of their case.
type nodePool struct {
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Taints, StartupTaints []corev1.Taint
				Requirements          []corev1.NodeSelectorRequirement
			}
		}
	}
}

// JudgeNodePool judges a NodePool of Karpenter: it warns of the taints that TaintPolicies register on
// its nodes and that it does not name. It returns false for other objects, and where no policy
// registers a taint.
func (c *Checker) JudgeNodePool(object cli.Object) (Result, bool) {
	if object.GroupVersionKind() != nodePools.GroupVersion().WithKind("NodePool") || !c.policies.Taints.Registers() {
		return Result{}, false
	}
	result := Result{Position: object.Position, APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName()}
	var pool nodePool
	content, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(content, &pool)
	}
	if err != nil {
		result.Verdict, result.Message = Undecided, err.Error()
		return result, true
	}
	// Labels of which a requirement allows several values are not on all nodes of the pool.
	labels := map[string]string{"karpenter.sh/nodepool": pool.Metadata.Name}
	maps.Copy(labels, pool.Spec.Template.Metadata.Labels)
	for _, r := range pool.Spec.Template.Spec.Requirements {
		if r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			labels[r.Key] = r.Values[0]
		}
	}
	for _, r := range c.policies.Taints.Register(labels) {
		if finding, ok := pool.lacks(&r); ok {
			result.Findings = append(result.Findings, finding)
		}
	}
	result.conclude(true)
	return result, true
}

// lacks returns the warning of a registered taint that Karpenter does not know of, or knows in
// another way than the nodes have it.
func (p *nodePool) lacks(r *taint.Registered) (policy.Finding, bool) {
	const taints, startup = "spec.template.spec.taints", "spec.template.spec.startupTaints"
	spec := &p.Spec.Template.Spec
	kept := len(spec.Taints)
	named := slices.Concat(spec.Taints, spec.StartupTaints)
	at := slices.IndexFunc(named, func(t corev1.Taint) bool { return r.Is(&t) })
	same := at >= 0
	if !same {
		at = slices.IndexFunc(named, func(t corev1.Taint) bool { return t.Key == r.Taint.Key })
	}
	field, value, remedy := taints, r.String(), "add it"
	problem := "the policy registers the taint on the nodes and the NodePool does not name it, so Karpenter launches nodes for pods that do not tolerate it"
	switch {
	case at >= kept:
		field = fmt.Sprintf("%s[%d]", startup, at-kept)
	case at >= 0:
		field = fmt.Sprintf("%s[%d]", taints, at)
	}
	switch {
	case same:
		problem, remedy = "the policy keeps the taint on the nodes, so Karpenter never takes a node for initialized", "name it in "+taints
	case at >= 0:
		problem, remedy = "the policy registers the taint with another value or effect on the nodes", "write "+value
		value = named[at].ToString()
	case !r.Reconcile:
		remedy = "add it, or to " + startup + " if it is removed when a node has started"
	}
	return policy.Finding{
		Policy: policy.Ref("TaintPolicy", r.Policy), Reason: policy.RegisteredTaintMissing, Actions: []v1alpha1.ValidationAction{v1alpha1.Warn},
		Field: field, Value: value, Problem: problem, Remedy: remedy,
	}, !same || at >= kept && r.Reconcile
}
