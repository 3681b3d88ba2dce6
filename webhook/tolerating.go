package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

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

// namespaceReader reads namespaces.
type namespaceReader interface {
	// Namespace returns a namespace as it was known a moment ago.
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
	// Confirmed returns a namespace as it is now, not as a cache knows it.
	Confirmed(ctx context.Context, name string) (*corev1.Namespace, error)
}

// tolerating judges by TolerationPolicies, wherever tolerations are written. Whatever
// has to be read for it is read only where a policy guards what is asked for, which is
// rare.
type tolerating struct {
	namespaces namespaceReader
	authorizer authorizer.Authorizer
	owners     *owners
	nodes      *liveNodes
}

// hearing is the review of one object that tolerations stand in. It is not safe for
// concurrent use.
type hearing struct {
	by  *tolerating
	set *toleration.Set
	req *admission.Request
	// subject is the pod, the claim, or the template of one within the object.
	subject json.RawMessage
	// in is what is known; the rest is added when it is first needed.
	in toleration.Input
	// forResources is added to the pod because of what it requests, see added, and
	// windows are given to it by Tollgate. Neither gets a pod past the scheduler.
	forResources, windows []corev1.Toleration
	complete              bool
}

func (t *tolerating) hear(set *toleration.Set, req *admission.Request, subject json.RawMessage, in toleration.Input) *hearing {
	return &hearing{by: t, set: set, req: req, subject: subject, in: in}
}

// judge returns what the policies have against the tolerations that are asked for.
func (h *hearing) judge(ctx context.Context, asked ...toleration.Asked) ([]policy.Finding, error) {
	if h.set.Len() == 0 {
		return nil, nil
	}
	in := h.in
	in.Asked = asked
	in.Added = slices.Concat(in.Added, h.forResources, h.windows)
	if !h.set.Concerns(in) {
		return nil, nil
	}
	return h.decide(ctx, asked, func(ctx context.Context, in toleration.Input) (policy.Decision, error) {
		in.Added = slices.Concat(in.Added, h.forResources, h.windows)
		return h.set.Judge(ctx, in)
	})
}

// judgeAgain judges tolerations that are there already, when a pod is let go. Who set
// them was judged then; where they are now is looked at anew.
func (h *hearing) judgeAgain(ctx context.Context, asked toleration.Asked) ([]policy.Finding, error) {
	if h.set.Len() == 0 {
		return nil, nil
	}
	owner, err := decodeOwner(h.req.Object.Raw)
	if err != nil {
		return nil, err
	}
	again := *h
	again.in.RequesterUnknown = true
	// The reference alone proves nothing, but what a user asks for in the DaemonSet
	// controller's place was judged when it was asked for.
	if owner != nil && owner.Kind == "DaemonSet" {
		again.in.FromDaemonSetController = true
	}
	return again.judge(ctx, asked)
}

// judgeNode returns what the policies have against putting a pod with these
// tolerations on a node past the scheduler: each guarded taint that keeps pods out has
// to be tolerated, and the toleration granted. Path is where the node is named.
func (h *hearing) judgeNode(ctx context.Context, node string, path *field.Path, has []corev1.Toleration) ([]policy.Finding, error) {
	if h.set.Len() == 0 {
		return nil, nil
	}
	taints, found, err := h.by.nodes.taints(ctx, node)
	if err != nil {
		return nil, err
	}
	if !found {
		return h.judgeUnknownNode(ctx, node, path)
	}
	if !h.set.GuardsNode(taints) {
		return nil, nil
	}
	h.in.Path = path
	asked := []toleration.Asked{{Path: path, New: has}}
	return h.decide(ctx, asked, func(ctx context.Context, in toleration.Input) (policy.Decision, error) {
		return h.set.JudgeNode(ctx, in, taints)
	})
}

// judgeUnknownNode judges a pod that is put on a node that does not exist. It is
// judged like one that tolerates everything: the node may come while the pod waits,
// with taints that nobody would look at any more.
func (h *hearing) judgeUnknownNode(ctx context.Context, node string, path *field.Path) ([]policy.Finding, error) {
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	found, err := h.judge(ctx, toleration.Asked{Path: path, New: everything})
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

// decide decides about the object itself. Only where that refuses it, or cannot be
// done, is it asked what the object inherits from its owner: what the owner had a
// moment ago, and before that refuses, what it has now.
func (h *hearing) decide(ctx context.Context, asked []toleration.Asked, by func(context.Context, toleration.Input) (policy.Decision, error)) ([]policy.Finding, error) {
	if err := h.completed(ctx); err != nil {
		return nil, err
	}
	in := h.in
	in.Asked = asked
	began := h.by.owners.clock.Now()
	decision, err := by(ctx, in)
	for since := (time.Time{}); err != nil || len(decision.Findings) > 0; since = began {
		from, failed := h.inherited(ctx, since)
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

// inherited returns what the object inherits from its owner, read no earlier than
// since, if the requester is one of those who make objects from templates.
func (h *hearing) inherited(ctx context.Context, since time.Time) (inheritance, error) {
	if !h.by.owners.trusts(h.req.UserInfo.Username) {
		return inheritance{}, nil
	}
	owner, err := decodeOwner(h.req.Object.Raw)
	if err != nil || owner == nil {
		return inheritance{}, err
	}
	var revision string
	if owner.Kind == "StatefulSet" {
		if revision, err = decodeRevision(h.req.Object.Raw); err != nil {
			return inheritance{}, err
		}
	}
	return h.by.owners.of(ctx, h.req.Namespace, owner, revision, since)
}

// completed adds what has to be known about the request.
func (h *hearing) completed(ctx context.Context) error {
	if h.complete {
		return nil
	}
	about, err := decodeSubject(h.subject, h.set.AuditNeedsLabels())
	if err != nil {
		return err
	}
	namespace, err := h.by.namespaces.Confirmed(ctx, h.req.Namespace)
	if err != nil {
		return err
	}
	h.in.Namespace, h.in.NamespaceLabels = h.req.Namespace, namespace.Labels
	if h.in.NamespaceLabels == nil {
		h.in.NamespaceLabels = map[string]string{} // known to have none
	}
	h.in.User = h.req.UserInfo
	h.in.Labels = about.labels
	if h.in.Claim == nil {
		h.in.ServiceAccount, h.in.Pod = about.serviceAccount, h.subject
	}
	h.in.Review = &cel.Review{Request: &h.req.AdmissionRequest, Namespace: namespace, Authorizer: h.by.authorizer}
	h.complete = true
	return nil
}

// subject is what policies look at beside tolerations.
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

// auditVersion is the audit annotation that says which policies a review was judged
// by. Replicas with the same version judge alike.
const auditVersion = "policies"

// judgedBy notes by which policies a response was decided.
func judgedBy(response admission.Response, policies *policyset.Set) admission.Response {
	if policies == nil || policies.Version == "" {
		return response
	}
	if response.AuditAnnotations == nil {
		response.AuditAnnotations = make(map[string]string, 1)
	}
	response.AuditAnnotations[auditVersion] = policies.Version
	return response
}
