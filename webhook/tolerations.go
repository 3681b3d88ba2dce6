package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// policySource hands out the policies in force. A snapshot never changes, so a
// review sees all of a policy change or nothing of it. Nil says that they have
// not been read yet, which is not the same as that there are none.
type policySource interface {
	Current() *policyset.Set
}

// errNoPolicies is why nothing can be decided right after the start.
var errNoPolicies = errors.New("the policies have not been read yet")

// inForce returns the policies in force.
func inForce(source policySource) (*policyset.Set, error) {
	policies := source.Current()
	if policies == nil {
		return nil, errNoPolicies
	}
	return policies, nil
}

// decodeBoth decodes the object of a request and, on an update, the old one, which is the zero
// value otherwise.
func decodeBoth[T any](req *admission.Request, decode func(raw []byte) (T, error)) (object, old T, err error) {
	if object, err = decode(req.Object.Raw); err == nil && req.Operation == admissionv1.Update {
		old, err = decode(req.OldObject.Raw)
	}
	return object, old, err
}

// namespaceReader reads namespaces.
type namespaceReader interface {
	// Namespace returns a namespace as it was known a moment ago.
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
	// Confirmed returns a namespace as it is now, not as a cache knows it.
	Confirmed(ctx context.Context, name string) (*corev1.Namespace, error)
}

// findAt returns the value at a path in an object; nil where it is not there.
func findAt(raw json.RawMessage, path ...string) (json.RawMessage, error) {
	for _, name := range path {
		var child json.RawMessage
		if err := findMembers(raw, member{name, &child}); err != nil {
			return nil, err
		}
		raw = child
	}
	return raw, nil
}

// tolerationReviewer judges by TolerationPolicies, wherever tolerations are written. Objects are
// read for it only where a policy guards a toleration of the request, which is rare.
type tolerationReviewer struct {
	namespaces namespaceReader
	authorizer authorizer.Authorizer
	owners     *owners
	nodes      *liveNodes
}

// tolerationReview is the review of one object that tolerations stand in. It is not safe for
// concurrent use.
type tolerationReview struct {
	*tolerationReviewer

	set *toleration.Set
	req *admission.Request
	// subject is the pod, the claim, or the template of one within the object.
	subject json.RawMessage
	// in is the known part of the input; the rest is added when it is first needed.
	in toleration.Input
	// forResources are tolerations that the API server adds for the resources that the pod
	// requests, see podAdditions, and windows those that Tollgate adds. Neither gets a pod past
	// the scheduler.
	forResources, windows []corev1.Toleration
	complete              bool
}

func (t *tolerationReviewer) review(set *toleration.Set, req *admission.Request, subject json.RawMessage, in toleration.Input) *tolerationReview {
	return &tolerationReview{tolerationReviewer: t, set: set, req: req, subject: subject, in: in}
}

// judge returns the violations of policies by tolerations.
func (r *tolerationReview) judge(ctx context.Context, asked ...toleration.Asked) ([]policy.Finding, error) {
	if r.set.Len() == 0 {
		return nil, nil
	}
	in := r.in
	in.Asked = asked
	in.Added = slices.Concat(in.Added, r.forResources, r.windows)
	if !r.set.Concerns(in) {
		return nil, nil
	}
	return r.decide(ctx, asked, func(ctx context.Context, in toleration.Input) (policy.Decision, error) {
		in.Added = slices.Concat(in.Added, r.forResources, r.windows)
		return r.set.Judge(ctx, in)
	})
}

// judgeUngated judges existing tolerations, when the last gate of a pod goes. The user who set
// them was judged then; their place is looked at anew.
func (r *tolerationReview) judgeUngated(ctx context.Context, asked toleration.Asked) ([]policy.Finding, error) {
	if r.set.Len() == 0 {
		return nil, nil
	}
	owner, err := decodeOwner(r.req.Object.Raw)
	if err != nil {
		return nil, err
	}
	again := *r
	again.in.RequesterUnknown = true
	// The reference alone proves nothing, but a user's request in the DaemonSet controller's
	// place was judged when it was made.
	if owner != nil && owner.Kind == "DaemonSet" {
		again.in.FromDaemonSetController = true
	}
	return again.judge(ctx, asked)
}

// judgeNode returns the violations of policies by putting a pod with these tolerations on a node
// past the scheduler: each guarded taint that keeps pods out has to be tolerated, and the
// toleration granted. Path is the field that names the node.
func (r *tolerationReview) judgeNode(ctx context.Context, node string, path *field.Path, has []corev1.Toleration) ([]policy.Finding, error) {
	if r.set.Len() == 0 {
		return nil, nil
	}
	taints, found, err := r.nodes.taints(ctx, node)
	if err != nil {
		return nil, err
	}
	if !found {
		return r.judgeUnknownNode(ctx, node, path)
	}
	if !r.set.GuardsNode(taints) {
		return nil, nil
	}
	r.in.Path = path
	asked := []toleration.Asked{{Path: path, New: has}}
	return r.decide(ctx, asked, func(ctx context.Context, in toleration.Input) (policy.Decision, error) {
		return r.set.JudgeNode(ctx, in, taints)
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
		f.Reason, f.Value = policy.PassNotGranted, clip(node)
		f.Problem = "there is no such node, and a pod that waits for it would pass the guarded taints that it comes with"
		f.Remedy = "leave the pod to the scheduler, or wait until the node is there"
	}
	return found, err
}

// decide decides about the object itself. Only where that refuses it, or fails, the tolerations
// count that the object inherits from its owner: those that the owner had a moment ago, and
// before these refuse, those that it has now.
func (r *tolerationReview) decide(ctx context.Context, asked []toleration.Asked, by func(context.Context, toleration.Input) (policy.Decision, error)) ([]policy.Finding, error) {
	if err := r.completed(ctx); err != nil {
		return nil, err
	}
	in := r.in
	in.Asked = asked
	began := r.owners.clock.Now()
	decision, err := by(ctx, in)
	for since := (time.Time{}); err != nil || len(decision.Findings) > 0; since = began {
		from, failed := r.inherited(ctx, since)
		if failed != nil {
			return nil, failed
		}
		if len(from.tolerations) > 0 {
			in.Inherited = from.tolerations
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
	if !r.owners.trusts(r.req.UserInfo.Username) {
		return inheritance{}, nil
	}
	owner, err := decodeOwner(r.req.Object.Raw)
	if err != nil || owner == nil {
		return inheritance{}, err
	}
	var revision string
	if owner.Kind == "StatefulSet" {
		if revision, err = decodeRevision(r.req.Object.Raw); err != nil {
			return inheritance{}, err
		}
	}
	return r.owners.of(ctx, r.req.Namespace, owner, revision, since)
}

// completed adds the namespace, the user and the labels of the request to the input.
func (r *tolerationReview) completed(ctx context.Context) error {
	if r.complete {
		return nil
	}
	about, err := decodeSubject(r.subject, r.set.AuditNeedsLabels())
	if err != nil {
		return err
	}
	namespace, err := r.namespaces.Confirmed(ctx, r.req.Namespace)
	if err != nil {
		return err
	}
	r.in.Namespace, r.in.NamespaceLabels = r.req.Namespace, namespace.Labels
	if r.in.NamespaceLabels == nil {
		r.in.NamespaceLabels = map[string]string{} // known to have none
	}
	r.in.User = r.req.UserInfo
	r.in.Labels = about.labels
	if r.in.Claim == nil {
		r.in.ServiceAccount, r.in.Pod = about.serviceAccount, r.subject
	}
	r.in.Review = &cel.Review{Request: &r.req.AdmissionRequest, Namespace: namespace, Authorizer: r.authorizer}
	r.complete = true
	return nil
}

// subject is the part of an object that policies look at beside tolerations.
type subject struct {
	labels         map[string]string
	serviceAccount string
}

// decodeSubject reads the labels of an object, if they are wanted, and its service
// account, if it is a pod or a template of pods.
func decodeSubject(raw []byte, wantLabels bool) (subject, error) {
	var about subject
	var metadata, spec, labels, account json.RawMessage
	err := errors.Join(
		findMembers(raw, member{"metadata", &metadata}, member{"spec", &spec}),
		findMembers(metadata, member{"labels", &labels}),
		findMembers(spec, member{"serviceAccountName", &account}),
	)
	if err == nil {
		about.serviceAccount, err = decodeString(account)
	}
	if err == nil && wantLabels {
		err = decodeStringsAt(labels, "metadata.labels", &about.labels)
	}
	if err != nil {
		return subject{}, &badReviewError{fmt.Errorf("decode object: %w", err)}
	}
	if about.serviceAccount == "" {
		about.serviceAccount = "default"
	}
	return about, nil
}
