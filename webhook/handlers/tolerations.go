package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// policySource hands out the policies in force. A snapshot never changes, so a
// review sees all of a policy change or nothing of it. Nil says that they have
// not been read yet, which is not the same as that there are none.
type policySource interface {
	Current() *policyset.Set
}

// errNoPolicies is why nothing can be decided right after the start.
var errNoPolicies = errors.New("the policies have not been read yet")

// readBoth reads the object of a request and, on an update, the old one, which is the zero value
// otherwise.
func readBoth[T any](r request, read func(*review.Fields, review.Value) T) (object, old T) {
	object = read(&r.Fields, r.New)
	if r.Operation == admissionv1.Update {
		old = read(&r.Fields, r.Old)
	}
	return object, old
}

// readWrite reads the object of a request, which is nil when it is deleted, and the one before,
// which is nil when it is created.
func readWrite[T any](r request, read func(*review.Fields, review.Value) *T) (object, old *T) {
	if r.Operation != admissionv1.Delete {
		object = read(&r.Fields, r.New)
	}
	if r.Operation != admissionv1.Create {
		old = read(&r.Fields, r.Old)
	}
	return object, old
}

// namespaceReader reads namespaces.
type namespaceReader interface {
	// Namespace returns a namespace as it was known a moment ago.
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
	// Confirmed returns a namespace as it is now, not as a cache knows it.
	Confirmed(ctx context.Context, name string) (*corev1.Namespace, error)
}

// tolerationReview is the review of one object that tolerations stand in, by TolerationPolicies.
// Objects are read for it only where a policy guards a toleration of the request, which is rare. It
// is not safe for concurrent use.
type tolerationReview struct {
	request

	// subject is the pod, the claim, or the template of one within the object.
	subject review.Value
	// in is the known part of the input; the rest is added when it is first needed.
	in toleration.Input
	// forResources are tolerations that the API server adds for the resources that the pod
	// requests, see podAdditions, and windows those that Tollgate adds. Neither gets a pod past
	// the scheduler.
	forResources, windows []corev1.Toleration
}

// judge returns the violations of policies by tolerations.
func (r *tolerationReview) judge(ctx context.Context, asked ...toleration.Asked) ([]policy.Finding, error) {
	set := r.policies.Tolerations
	if set.Len() == 0 {
		return nil, nil
	}
	in := r.in
	in.Asked = asked
	in.Added = slices.Concat(in.Added, r.forResources, r.windows)
	if !set.Concerns(in) {
		return nil, nil
	}
	return r.decide(ctx, asked, in.Added, set.NeedsNamespace(in), set.Judge)
}

// judgeUngated judges existing tolerations, when the last gate of a pod goes. The user who set
// them was judged then; their place is looked at anew.
func (r *tolerationReview) judgeUngated(ctx context.Context, asked toleration.Asked) ([]policy.Finding, error) {
	again := *r
	again.in.RequesterUnknown = true
	// The reference alone proves nothing, but a user's request in the DaemonSet controller's
	// place was judged when it was made.
	if owner := readOwner(&r.Fields, r.New); owner != nil && owner.Kind == "DaemonSet" {
		again.in.FromDaemonSetController = true
	}
	return again.judge(ctx, asked)
}

// judgeNode returns the violations of policies by putting a pod with these tolerations on a node
// past the scheduler: each guarded taint that keeps pods out has to be tolerated, and the
// toleration granted. Path is the field that names the node.
func (r *tolerationReview) judgeNode(ctx context.Context, node string, path *field.Path, has []corev1.Toleration) ([]policy.Finding, error) {
	set := r.policies.Tolerations
	if set.Len() == 0 {
		return nil, nil
	}
	taints, found, err := r.nodes.taints(ctx, node)
	if err != nil {
		return nil, err
	}
	if !found {
		return r.judgeUnknownNode(ctx, node, path)
	}
	if !set.GuardsNode(taints) {
		return nil, nil
	}
	r.in.Path = path
	asked := []toleration.Asked{{Path: path, New: has}}
	return r.decide(ctx, asked, r.in.Added, set.NodeNeedsNamespace(taints), func(ctx context.Context, in toleration.Input) (policy.Decision, error) {
		return set.JudgeNode(ctx, in, taints)
	})
}

// judgeUnknownNode judges a pod that is put on a node that does not exist. It is judged like one
// that tolerates everything: the node may come while the pod waits, with taints that no later
// review looks at.
func (r *tolerationReview) judgeUnknownNode(ctx context.Context, node string, path *field.Path) ([]policy.Finding, error) {
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	found, err := r.judge(ctx, toleration.Asked{Path: path, New: everything})
	for i := range found {
		f := &found[i]
		f.Field = path.String()
		if f.Reason == policy.MoreFindings {
			continue
		}
		f.Reason, f.Value = policy.PassNotGranted, review.Clip(node)
		f.Problem = "there is no such node, and a pod that waits for it would pass the guarded taints that it comes with"
		f.Remedy = "leave the pod to the scheduler, or wait until the node is there"
	}
	return found, err
}

// decide decides about the object itself, with its namespace where that is needed. Only where that
// refuses it, or fails, the tolerations count that the object inherits from its owner: those that the
// owner had a moment ago, and before these refuse, those that it has now.
func (r *tolerationReview) decide(
	ctx context.Context, asked []toleration.Asked, added []corev1.Toleration, namespaced bool, by func(context.Context, toleration.Input) (policy.Decision, error),
) ([]policy.Finding, error) {
	r.complete()
	if namespaced {
		if err := r.confirmNamespace(ctx); err != nil {
			return nil, err
		}
	}
	in := r.in
	in.Asked, in.Added = asked, added
	began := r.owners.clock.Now()
	decision, err := by(ctx, in)
	for since := (time.Time{}); err != nil || len(decision.Findings) > 0; since = began {
		from, failed := r.inherited(ctx, since)
		if failed != nil {
			return nil, failed
		}
		if len(from.value) > 0 {
			in.Inherited = from.value
			decision, err = by(ctx, in)
		}
		if from.asOf.IsZero() || !from.asOf.Before(began) {
			break // there is no owner, or nothing newer to be had
		}
	}
	return decision.Findings, err
}

// inherited returns the tolerations that the object inherits from its owner, read no earlier
// than since, if the requester makes objects from templates.
func (r *tolerationReview) inherited(ctx context.Context, since time.Time) (inheritance, error) {
	if !r.owners.trusts(r.UserInfo.Username) {
		return inheritance{}, nil
	}
	owner := readOwner(&r.Fields, r.New)
	if owner == nil {
		return inheritance{}, nil
	}
	revision := "" // of its StatefulSet that the pod says it was made from
	if owner.Kind == "StatefulSet" {
		revision = r.Text(r.New, "metadata", "labels", appsv1.StatefulSetRevisionLabel)
	}
	return r.owners.of(ctx, r.Namespace, owner, revision, since)
}

// complete adds the user and the labels of the request to the input.
func (r *tolerationReview) complete() {
	if r.in.Review != nil {
		return
	}
	if r.policies.Tolerations.AuditNeedsLabels() {
		r.in.Labels = r.Texts(r.subject, "metadata", "labels")
	}
	r.in.Namespace, r.in.User = r.Namespace, r.UserInfo
	if r.in.Claim == nil {
		r.in.ServiceAccount = cmp.Or(r.Text(r.subject, "spec", "serviceAccountName"), "default")
		r.in.Pod = objectOf(r.subject)
	}
	r.in.Review = &cel.Review{Request: &r.AdmissionRequest, Authorizer: r.Authorizer, Turns: r.Turns}
}

// confirmNamespace adds the namespace to the input. A read of the API server is the dearest part of
// a review, and most policies do not look at labels of namespaces.
func (r *tolerationReview) confirmNamespace(ctx context.Context) error {
	if r.in.NamespaceLabels != nil {
		return nil
	}
	namespace, err := r.Namespaces.Confirmed(ctx, r.Namespace)
	if err != nil {
		return err
	}
	r.in.NamespaceLabels, r.in.Review.Namespace = namespace.Labels, namespace
	if r.in.NamespaceLabels == nil {
		r.in.NamespaceLabels = map[string]string{} // known to have none
	}
	return nil
}

// objectOf returns the text of an object; that of an empty one where there is none.
func objectOf(v review.Value) json.RawMessage {
	if v.IsNull() {
		return json.RawMessage("{}")
	}
	return v.Raw()
}
