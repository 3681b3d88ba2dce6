package preview

import (
	"context"
	"encoding/json"
	"errors"
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

// NodeWrite is a write that adds taints to a node and that no user asks for.
type NodeWrite struct {
	// Node is the node as it stands. It is not written to.
	Node *corev1.Node
	// Given are the taints that it is to be given.
	Given []corev1.Taint
	// User is who writes it.
	User   authenticationv1.UserInfo
	DryRun bool
}

// Node judges taints that Tollgate itself is about to give to a node. Match conditions
// see the request that it would be. The error is or wraps ErrUnread or
// ErrUnfollowed where a limit holds and nobody knows of the pods; for the nil
// Limits, where pods are not followed, it is the latter.
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
	write := Write{
		Carrier: tracker.Source{Kind: tracker.SourceNode, Name: w.Node.Name}, Set: set, DryRun: w.DryRun, own: true,
		Input: taint.Input{User: &review.Request.UserInfo, Review: review},
	}
	if l == nil {
		write.Input.Writes = taint.NodeWrites(written.Spec.Taints, w.Node.Spec.Taints, time.Time{})
		return Verdict{}, write.Fault(ctx, ErrUnfollowed)
	}
	now := l.config.Clock.Now()
	review.Authorizer = l.config.Authorizer
	write.Input.Now, write.Input.Writes = now, taint.NodeWrites(written.Spec.Taints, w.Node.Spec.Taints, now)
	changes, err := l.config.View.Node(
		tracker.Node{Name: w.Node.Name, Taints: w.Node.Spec.Taints}, tracker.Node{Name: w.Node.Name, Taints: written.Spec.Taints}, now)
	if errors.Is(err, ErrUnread) || errors.Is(err, ErrUnfollowed) {
		return Verdict{}, write.Fault(ctx, err)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("foretell what happens to pods: %w", err)
	}
	return l.Judge(ctx, &write, changes, now)
}

// review returns the write as the request that it would be.
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

// encode returns a node as the API has it: a client's copy does not say what it is.
func encode(node *corev1.Node) ([]byte, error) {
	said := *node
	said.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	raw, err := json.Marshal(&said)
	if err != nil {
		return nil, fmt.Errorf("encode node %s: %w", node.Name, err)
	}
	return raw, nil
}
