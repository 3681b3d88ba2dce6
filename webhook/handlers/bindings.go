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
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// validateBinding judges the binding of a pod to a node by another user than a scheduler, through
// pods/binding or through the old bindings (C04). A scheduler looks at taints; other users need
// not, and Kubernetes does not either.
func (r request) validateBinding(ctx context.Context) (Result, error) {
	if r.isScheduler() {
		return allowed(), nil
	}
	if err := r.inForce(); err != nil {
		return Result{}, err
	}
	found, err := r.bindingFindings(ctx)
	if err != nil {
		return Result{}, err
	}
	// The API server gives the pod the annotations of its binding.
	if m := r.markOf(r.New); m.there {
		found = append(found, m.forged())
	}
	return decided(found, nil, r.policies), nil
}

// bindingFindings judges the pod as it is now. A target that is no node is the API server's
// to refuse. So is a pod that does not exist, but it may come before the API server
// looks: it is judged like one that tolerates nothing.
func (r request) bindingFindings(ctx context.Context) ([]policy.Finding, error) {
	name, kind, node := r.Text(r.New, "metadata", "name"), r.Text(r.New, "target", "kind"), r.Text(r.New, "target", "name")
	if r.policies.Tolerations.Len() == 0 || node == "" || cmp.Or(kind, "Node") != "Node" {
		return nil, nil
	}
	pod, err := r.bound.pod(ctx, r.Namespace, cmp.Or(r.Name, name))
	if err != nil {
		return nil, err
	}
	path := field.NewPath("target", "name")
	judged := &tolerationReview{request: r, in: toleration.Input{DefaultSeconds: &r.DefaultSeconds}}
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
