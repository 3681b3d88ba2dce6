package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
)

// nodeLifecycleControllers are the identities under which the node lifecycle
// controller taints nodes.
var nodeLifecycleControllers = []string{
	"system:serviceaccount:kube-system:node-controller",
	"system:kube-controller-manager",
}

func isNodeLifecycleController(req admission.Request) bool {
	return slices.Contains(nodeLifecycleControllers, req.UserInfo.Username)
}

// nodeFields are the fields of a node that admission looks at.
type nodeFields struct {
	Metadata struct {
		Name            string                  `json:"name"`
		Labels          map[string]string       `json:"labels"`
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Taints json.RawMessage `json:"taints"`
	} `json:"spec"`
}

// decodeNodes returns the node of a request and, on an update, the node that it was;
// nil when it is created.
func decodeNodes(req admission.Request) (node, old *taint.Node, err error) {
	if node, err = decodeNode(req.Object.Raw); err != nil {
		return nil, nil, err
	}
	if req.Operation == admissionv1.Update {
		if old, err = decodeNode(req.OldObject.Raw); err != nil {
			return nil, nil, err
		}
	}
	return node, old, nil
}

func decodeNode(raw []byte) (*taint.Node, error) {
	var fields nodeFields
	if err := unmarshal(raw, &fields); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode node: %w", err)}
	}
	node := &taint.Node{
		Name:   fields.Metadata.Name,
		Labels: fields.Metadata.Labels,
		Owners: fields.Metadata.OwnerReferences,
	}
	if err := decodeField(fields.Spec.Taints, "spec.taints", &node.Taints); err != nil {
		return nil, &badReviewError{err}
	}
	return node, nil
}

// taintsOn returns the taints of a node, none of one that is not there.
func taintsOn(node *taint.Node) []corev1.Taint {
	if node == nil {
		return nil
	}
	return node.Taints
}

// nodeJudge judges the taints of nodes, and what keeps nodes from getting rid of them.
type nodeJudge struct {
	clock    clock.PassiveClock
	maxSkew  time.Duration
	governor *governor
	preview  *Preview
}

// Judge implements judge.
func (j *nodeJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	node, old, err := decodeNodes(req)
	if err != nil {
		return admission.Response{}, err
	}
	now, maxSkew := j.clock.Now(), j.maxSkew
	if isNodeLifecycleController(req) {
		// Its times are corrected by the mutator. While that was away, a clock that
		// is ahead must not keep a node that fails from being tainted.
		maxSkew = -1
	}
	errs := validation.ValidateNode(node.Taints, taintsOn(old), now, maxSkew)
	if !isNodeLifecycleController(req) {
		// However many taints a node has that fails, it has to be tainted.
		errs = append(validation.ValidateNodeCount(node.Taints, taintsOn(old)), errs...)
	}
	found := findings(errs)
	warnings := validation.NodeWarnings(node.Taints, taintsOn(old), now)
	if j.governor.isSelf(&req) {
		return respond(ctx, policy.Decide(found), warnings), nil
	}
	marked, err := twinsRemarked(&req)
	if err != nil {
		return admission.Response{}, err
	}
	found = append(found, marked...)
	policies, err := j.governor.current()
	if err != nil {
		return admission.Response{}, err
	}
	set := policies.Taints
	change := taint.NodeChange{New: node, Old: old, User: &req.UserInfo}
	writes := taint.NodeWrites(node.Taints, taintsOn(old), now)
	in := j.governor.input(&req, set.Chosen(change, writes, now))
	judged, fault := j.governor.judge(ctx, set, in)
	decision := policy.Decide(slices.Concat(found, set.JudgeNode(change), judged))
	if fault != nil && decision.Verdict != policy.Denied {
		return admission.Response{}, fault
	}
	if decision.Verdict == policy.Denied || change.Registers() {
		return judgedBy(respond(ctx, decision, warnings), policies), nil
	}
	// Pods are hit as hard by a taint that a policy keeps on the node, whoever adds it,
	// and where the node is new, there may be those of an earlier one of its name.
	in.Writes = writes
	seen, err := j.preview.node(ctx, req, set, in, cmp.Or(req.Name, node.Name), taintsOn(old), node.Taints)
	if err != nil {
		return admission.Response{}, err
	}
	return judgedBy(seen.respond(ctx, decision, warnings), policies), nil
}

// nodeStatusJudge judges what a node may change of itself by way of its status: the
// API server takes no taints there, but labels.
type nodeStatusJudge struct {
	governor *governor
}

// Judge implements judge.
func (j *nodeStatusJudge) Judge(ctx context.Context, req admission.Request) (admission.Response, error) {
	node, old, err := decodeNodes(req)
	if err != nil {
		return admission.Response{}, err
	}
	policies, err := j.governor.current()
	if err != nil {
		return admission.Response{}, err
	}
	node.Taints = taintsOn(old)
	found, err := twinsRemarked(&req)
	if err != nil {
		return admission.Response{}, err
	}
	judged := policies.Taints.JudgeNode(taint.NodeChange{New: node, Old: old, User: &req.UserInfo})
	return judgedBy(respond(ctx, policy.Decide(append(found, judged...)), nil), policies), nil
}
