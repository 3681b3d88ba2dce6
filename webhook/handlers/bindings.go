package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// bindingHandler reviews the bindings of pods to nodes by other users than schedulers, through
// pods/binding or through the old bindings (C04). A scheduler looks at taints; other users need
// not, and Kubernetes does not either.
type bindingHandler struct {
	*reviewer

	pods *live
}

// binding is a Binding with the fields that admission looks at.
type binding struct {
	name, targetKind, target string
	mark                     mark
}

func decodeBinding(v review.Value) (binding, error) {
	var f review.Fields
	b := binding{
		name: f.Text(v, "metadata", "name"), targetKind: f.Text(v, "target", "kind"), target: f.Text(v, "target", "name"),
		mark: readMark(&f, v, false),
	}
	return b, f.Err()
}

// validate implements Handler.
func (h *bindingHandler) validate(ctx context.Context, req *review.Request) (Result, error) {
	if h.isScheduler(req) {
		return allowed(), nil
	}
	return h.judging(h.judge)(ctx, req)
}

// judge judges the binding of a pod past the scheduler.
func (h *bindingHandler) judge(ctx context.Context, req *review.Request, policies *policyset.Set) ([]policy.Finding, []string, error) {
	binding, err := decodeBinding(req.New)
	if err != nil {
		return nil, nil, err
	}
	found, err := h.byPolicies(ctx, policies.Tolerations, req, &binding)
	if err != nil {
		return nil, nil, err
	}
	// The API server gives the pod the annotations of its binding.
	if binding.mark.there {
		found = append(found, forgedMark("metadata", binding.mark.value))
	}
	return found, nil, nil
}

// byPolicies judges the pod as it is now. A target that is no node is the API server's
// to refuse. So is a pod that does not exist, but it may come before the API server
// looks: it is judged like one that tolerates nothing.
func (h *bindingHandler) byPolicies(ctx context.Context, set *toleration.Set, req *review.Request, binding *binding) ([]policy.Finding, error) {
	node := binding.target
	if set.Len() == 0 || node == "" || cmp.Or(binding.targetKind, "Node") != "Node" {
		return nil, nil
	}
	pod, err := h.pods.pod(ctx, req.Namespace, cmp.Or(req.Name, binding.name))
	if err != nil {
		return nil, err
	}
	path := field.NewPath("target", "name")
	judged := &tolerationReview{reviewer: h.reviewer, set: set, req: req, in: toleration.Input{DefaultSeconds: &h.DefaultSeconds}}
	if pod == nil {
		found, err := judged.judgeNode(ctx, node, path, nil)
		for i := range found {
			if f := &found[i]; f.Reason == policy.TaintNotTolerated {
				f.Problem = "there is no such pod, and one that comes meanwhile would pass a guarded taint of the node"
				f.Remedy = "wait until the pod is there, or leave it to the scheduler"
			}
		}
		return found, err
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	encoded, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("encode pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if judged.subject, err = review.Parse(encoded); err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	judged.in.HostNetwork = pod.Spec.HostNetwork
	has := withoutWindows(pod.Spec.Tolerations, v1alpha1.ParseWindow(pod.Annotations[v1alpha1.AnnotationWindow]))
	return judged.judgeNode(ctx, node, path, has)
}
