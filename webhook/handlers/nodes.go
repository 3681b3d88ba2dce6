package handlers

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/validation"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// nodeLifecycleControllers are the identities under which the node lifecycle
// controller taints nodes.
var nodeLifecycleControllers = []string{
	"system:serviceaccount:kube-system:node-controller",
	"system:kube-controller-manager",
}

func (r request) isNodeLifecycleController() bool {
	return slices.Contains(nodeLifecycleControllers, r.UserInfo.Username)
}

func readNode(f *review.Fields, v review.Value) *taint.Node {
	metadata := f.At(v, "metadata")
	node := &taint.Node{Name: f.Text(metadata, "name"), Labels: f.Texts(metadata, "labels")}
	f.Into(&node.Owners, metadata, "ownerReferences")
	f.Into(&node.Taints, v, "spec", "taints")
	return node
}

// taintsOn returns the taints of a node, none of one that is not there.
func taintsOn(node *taint.Node) []corev1.Taint {
	if node == nil {
		return nil
	}
	return node.Taints
}

// mutateNode adds to nodes that are created the taints that policies register, and writes into
// taints since when they count. On an update no taint is added: a kubelet's own update that
// seems to change taints would be refused (TP-18).
func (r request) mutateNode(context.Context) (jsonPatch, error) {
	node, old := readBoth(r, readNode)
	registration := nodeRegistration{taints: slices.Clone(node.Taints), sent: len(node.Taints), replaced: map[int]bool{}}
	if old == nil {
		if err := r.inForce(); err != nil {
			return nil, err
		}
		registration.add(r.policies.Taints.Register(node.Labels))
	}
	var stamps []validation.NodeTimeAdded
	if r.NodeTaintTimestamps {
		stamps = validation.StampNode(validation.StampInput{
			New:                     registration.taints,
			Old:                     taintsOn(old),
			NodeLifecycleController: r.isNodeLifecycleController(),
			Outage:                  r.outage(),
			Now:                     r.ServerClock.Now(),
		})
	}
	out := registration.patch(stamps)
	// Of a new node Tollgate has added no paired taint.
	if old == nil && annotation(&r.Fields, r.New, v1alpha1.AnnotationTwins) != "" {
		out.remove("/metadata/annotations/" + pointerToken(v1alpha1.AnnotationTwins))
	}
	return out, nil
}

// outage returns since when the node of a request has been tainted because it failed, as far
// as that is remembered.
func (r request) outage() time.Time {
	if r.Outages == nil || r.Operation != admissionv1.Update || !r.isNodeLifecycleController() {
		return time.Time{}
	}
	var conditions []corev1.NodeCondition
	r.Into(&conditions, r.New, "status", "conditions")
	return r.Outages.Since(types.UID(r.Text(r.New, "metadata", "uid")), validation.ReadyOf(conditions))
}

// validateNode judges the taints of nodes, the labels that policies put taints on nodes by, and
// changes that keep nodes from getting rid of taints.
func (r request) validateNode(ctx context.Context) (Result, error) {
	node, old := readBoth(r, readNode)
	before, now, maxSkew := taintsOn(old), r.ServerClock.Now(), r.MaxTimeAddedSkew
	var errs field.ErrorList
	if r.isNodeLifecycleController() {
		// Its times are corrected by the mutating endpoint. While that was away, a clock that
		// is ahead must not keep a node that fails from being tainted, nor must the number of
		// its taints.
		maxSkew = -1
	} else {
		errs = validation.ValidateNodeCount(node.Taints, before)
	}
	found := findings(append(errs, validation.ValidateNode(node.Taints, before, now, maxSkew)...))
	warnings := validation.NodeWarnings(node.Taints, before, now)
	if r.isSelf() {
		return decided(found, warnings, nil), nil
	}
	if err := r.inForce(); err != nil {
		return Result{}, err
	}
	set := r.policies.Taints
	change := taint.NodeChange{New: node, Old: old, User: &r.UserInfo}
	writes := taint.NodeWrites(node.Taints, before, now)
	in := r.taintInput(set.Chosen(change, writes, now))
	found = slices.Concat(found, r.pairMarkChanged(), set.JudgeNode(change))
	return r.enforce(ctx, in, found, warnings, func() (previewed, error) {
		if change.Registers() {
			return previewed{}, nil
		}
		// Pods are hit as hard by a taint that a policy keeps on the node, whichever user
		// adds it, and where the node is new, there may be those of an earlier one of its name.
		in.Writes = writes
		return r.Preview.node(ctx, r, in, cmp.Or(r.Name, node.Name), before, node.Taints)
	})
}

// judgeNodeStatus judges the changes that a node makes of itself by its status: the API
// server takes no taints there, but labels.
func (r request) judgeNodeStatus(context.Context) ([]policy.Finding, []string, error) {
	node, old := readBoth(r, readNode)
	node.Taints = taintsOn(old)
	change := taint.NodeChange{New: node, Old: old, User: &r.UserInfo}
	return append(r.pairMarkChanged(), r.policies.Taints.JudgeNode(change)...), nil, nil
}

// pairMarkChanged returns the finding about a request, by another user than Tollgate, that
// changes which taints of a node are Tollgate's to remove: a node, which may not change its own
// taints, would so be rid of them.
func (r request) pairMarkChanged() []policy.Finding {
	now, old := annotation(&r.Fields, r.New, v1alpha1.AnnotationTwins), annotation(&r.Fields, r.Old, v1alpha1.AnnotationTwins)
	if now == old {
		return nil
	}
	return []policy.Finding{{
		Reason: policy.WindowReserved, Field: "metadata.annotations[" + v1alpha1.AnnotationTwins + "]", Value: review.Clip(now),
		Problem: "says which taints of the node Tollgate added, and removes again",
		Remedy:  "leave the annotation as it is",
	}}
}

// nodeRegistration is the taints of a node that is created while registered taints are added.
type nodeRegistration struct {
	taints []corev1.Taint
	// sent is how many of them the request has, and replaced are the indices of those of these
	// that differ from the request by now.
	sent     int
	replaced map[int]bool
}

// add adds registered taints. One that is there as it is to be stays, and one of the same key
// and effect with another value gives way.
func (n *nodeRegistration) add(registered []taint.Registered) {
	for _, r := range registered {
		added := r.Taint
		at := slices.IndexFunc(n.taints, func(t corev1.Taint) bool { return r.Same(&t) })
		switch {
		case at < 0:
			n.taints = append(n.taints, added)
		case !r.Is(&n.taints[at]):
			n.taints[at], n.replaced[at] = added, true
		}
	}
}

// patch returns the patch that turns the taints of the request into these, with stamps.
func (n *nodeRegistration) patch(stamps []validation.NodeTimeAdded) jsonPatch {
	out := make(jsonPatch, 0, 2*len(stamps))
	for _, stamp := range stamps {
		t := &n.taints[stamp.Index]
		if stamp.Index >= n.sent || n.replaced[stamp.Index] {
			t.TimeAdded = new(metav1.NewTime(stamp.TimeAdded.UTC()))
		} else {
			out.stamp("/spec/taints/"+strconv.Itoa(stamp.Index), t.Key, stamp.TimeAdded)
		}
	}
	for i := range n.sent {
		if n.replaced[i] {
			path := "/spec/taints/" + strconv.Itoa(i)
			out.test(path+"/key", n.taints[i].Key)
			out.replace(path, n.taints[i])
		}
	}
	appendAll(&out, "/spec/taints", nil, n.sent, n.taints[n.sent:])
	return out
}
