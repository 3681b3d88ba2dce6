package preview

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

// NodeWrite is a write of the leader that adds taints to a node.
type NodeWrite struct {
	// Node is the stored node. It is not changed.
	Node *corev1.Node
	// Given are the taints to add.
	Given []corev1.Taint
	// User is the user of the write.
	User   authenticationv1.UserInfo
	DryRun bool
}

// Node judges taints that Tollgate itself is about to add to a node. Match conditions
// get the request that the write would be. The error is or wraps ErrUnread or
// ErrUnfollowed where a limit applies and the pods are not known; for the nil
// Limits, where pods are not watched, it is the latter.
func (l *Limits) Node(ctx context.Context, set *taint.Set, w NodeWrite) (Verdict, error) {
	if !slices.ContainsFunc(w.Given, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }) {
		return Verdict{}, nil
	}
	written := w.Node.DeepCopy()
	written.Spec.Taints = append(written.Spec.Taints, w.Given...)
	review, err := w.review(written)
	if err != nil {
		return Verdict{}, err
	}
	var now time.Time
	if l != nil {
		now, review.Authorizer = l.Clock.Now(), l.Authorizer
	}
	write := Write{
		Carrier: tracker.Source{Kind: tracker.SourceNode, Name: w.Node.Name}, Set: set, DryRun: w.DryRun, own: true,
		Input: taint.Input{
			User: &review.Request.UserInfo, Review: review, Now: now,
			Writes: taint.NodeWrites(written.Spec.Taints, w.Node.Spec.Taints, now),
		},
	}
	if l == nil {
		return Verdict{}, write.Fault(ctx, ErrUnfollowed)
	}
	changes, err := l.View.Node(
		tracker.Node{Name: w.Node.Name, Taints: w.Node.Spec.Taints}, tracker.Node{Name: w.Node.Name, Taints: written.Spec.Taints}, now)
	if err != nil {
		return Verdict{}, write.Fault(ctx, err)
	}
	return l.Judge(ctx, &write, changes, now)
}

// review returns the request that the write would be.
func (w *NodeWrite) review(written *corev1.Node) (*cel.Review, error) {
	object, err := encode(written)
	if err != nil {
		return nil, err
	}
	old, err := encode(w.Node)
	if err != nil {
		return nil, err
	}
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Node"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "nodes"}
	return &cel.Review{Request: &admissionv1.AdmissionRequest{
		Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
		Name: w.Node.Name, Operation: admissionv1.Update, UserInfo: w.User, DryRun: &w.DryRun,
		Object: runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
	}}, nil
}

// encode returns a node with its kind, which a node that a client returns does not have.
func encode(node *corev1.Node) ([]byte, error) {
	typed := *node
	typed.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	raw, err := json.Marshal(&typed)
	if err != nil {
		return nil, fmt.Errorf("encode node %s: %w", node.Name, err)
	}
	return raw, nil
}
