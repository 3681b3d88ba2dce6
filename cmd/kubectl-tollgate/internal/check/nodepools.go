package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
)

// nodePools is the resource of Karpenter's NodePools. Karpenter launches nodes for pods that fit
// what a NodePool says of its nodes, and does not read TaintPolicies.
var nodePools = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}

// nodePoolLabel is the label that Karpenter gives the nodes of a NodePool, with its name.
const nodePoolLabel = "karpenter.sh/nodepool"

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

func isNodePool(object *unstructured.Unstructured) bool {
	return object.GetKind() == "NodePool" && object.GroupVersionKind().GroupVersion() == nodePools.GroupVersion()
}

// labels returns the labels that all nodes of the pool have. Those of which a requirement allows
// several values are not among them.
func (p *nodePool) labels() map[string]string {
	labels := map[string]string{nodePoolLabel: p.Metadata.Name}
	maps.Copy(labels, p.Spec.Template.Metadata.Labels)
	for _, r := range p.Spec.Template.Spec.Requirements {
		if r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
			labels[r.Key] = r.Values[0]
		}
	}
	return labels
}

// JudgeNodePool judges a NodePool of Karpenter by the taints that TaintPolicies register on its
// nodes. It returns false for other objects, and where no policy registers a taint.
func (c *Checker) JudgeNodePool(object cli.Object) (Result, bool) {
	if !isNodePool(object.Unstructured) || !c.policies.Taints.Registers() {
		return Result{}, false
	}
	result := judgeNodePool(c.policies.Taints, object.Unstructured)
	result.Position = object.Position
	return result, true
}

// judgeNodePool warns of the taints that policies register on the nodes of a NodePool and that
// it does not name.
func judgeNodePool(set *taint.Set, object *unstructured.Unstructured) Result {
	result := Result{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName()}
	var pool nodePool
	content, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(content, &pool)
	}
	if err != nil {
		result.Verdict, result.Message = Undecided, err.Error()
		return result
	}
	for _, r := range set.Register(pool.labels()) {
		if finding, ok := pool.lacks(&r); ok {
			result.Findings = append(result.Findings, finding)
		}
	}
	result.conclude(true)
	return result
}

// lacks returns the warning of a registered taint that Karpenter does not know of, or knows in
// another way than the nodes have it.
func (p *nodePool) lacks(r *taint.Registered) (policy.Finding, bool) {
	const taints, startup = "spec.template.spec.taints", "spec.template.spec.startupTaints"
	spec := &p.Spec.Template.Spec
	is := func(t corev1.Taint) bool { return r.Is(&t) }
	sameKey := func(t corev1.Taint) bool { return t.Key == r.Taint.Key }
	finding := policy.Finding{
		Policy: policy.Ref("TaintPolicy", r.Policy), Reason: policy.RegisteredTaintMissing, Actions: []v1alpha1.ValidationAction{v1alpha1.Warn},
		Field: taints, Value: r.String(), Remedy: "add it",
		Problem: "the policy registers the taint on the nodes and the NodePool does not name it, so Karpenter launches nodes for pods that do not tolerate it",
	}
	if slices.ContainsFunc(spec.Taints, is) {
		return finding, false
	}
	if at := slices.IndexFunc(spec.StartupTaints, is); at >= 0 {
		finding.Field, finding.Remedy = fmt.Sprintf("%s[%d]", startup, at), "name it in "+taints
		finding.Problem = "the policy keeps the taint on the nodes, so Karpenter never takes a node for initialized"
		return finding, r.Reconcile
	}
	for _, list := range []struct {
		field  string
		taints []corev1.Taint
	}{{taints, spec.Taints}, {startup, spec.StartupTaints}} {
		if at := slices.IndexFunc(list.taints, sameKey); at >= 0 {
			finding.Field, finding.Value = fmt.Sprintf("%s[%d]", list.field, at), list.taints[at].ToString()
			finding.Problem, finding.Remedy = "the policy registers the taint with another value or effect on the nodes", "write "+r.String()
			return finding, true
		}
	}
	if !r.Reconcile {
		finding.Remedy = "add it, or to " + startup + " if it is removed when a node has started"
	}
	return finding, true
}

// scanNodePools judges the NodePools of a cluster, if it serves any, by the given TaintPolicies,
// else by its own.
func (c *command) scanNodePools(ctx context.Context, clients *cli.Clients, given Policies, report *Report) error {
	_, err := clients.Version(ctx, nodePools.GroupResource(), nodePools.Version)
	if errors.Is(err, cli.ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(c.policies) == 0 {
		_, err = given.read(ctx, clients, "taintpolicies")
	}
	if err == nil {
		err = c.judgeNodePools(ctx, clients, given, report)
	}
	if apierrors.IsForbidden(err) {
		report.Notes = append(report.Notes, "TaintPolicies or NodePools may not be listed: whether NodePools name the taints of their nodes is not known")
		return nil
	}
	return err
}

func (c *command) judgeNodePools(ctx context.Context, clients *cli.Clients, given Policies, report *Report) error {
	gates, err := settings.NewFeatureGates(c.config.FeatureGates)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	set := given.InForce(settings.Kinds(gates)).Taints
	if !set.Registers() {
		return nil
	}
	report.Policies += set.Len()
	return clients.EachCustom(ctx, nodePools, func(object *unstructured.Unstructured) error {
		c.take(report, judgeNodePool(set, object))
		return nil
	})
}

// take adds the result for an existing object to a report. Those that are allowed are only
// counted, unless all are wanted: there may be thousands.
func (c *command) take(report *Report, result Result) {
	if result.Verdict == Allowed && c.output.Format != "wide" {
		report.Unlisted++
		return
	}
	report.Results = append(report.Results, result)
}
