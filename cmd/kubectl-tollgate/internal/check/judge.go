package check

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	jsonpatchv2 "gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// Judged reports whether the webhook judges the creation of an object: by its kind, and by the
// namespaceSelector of the webhooks.
func (c *Checker) Judged(object *unstructured.Unstructured) bool {
	k, ok := kindOf(object)
	switch {
	case k.namespaced:
		return !policy.Unjudged(cmp.Or(object.GetNamespace(), c.namespace), c.config.Namespace)
	case k.resource == "namespaces":
		return !policy.Unjudged(object.GetName(), c.config.Namespace)
	default:
		return ok
	}
}

// Judge judges the creation of an object that Judged reports, by a user.
func (c *Checker) Judge(ctx context.Context, object cli.Object, by Subject) Result {
	o := object.DeepCopy()
	c.place(o)
	result := Result{
		Position: object.Position, APIVersion: o.GetAPIVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: nameOf(o),
	}
	c.pace.step()
	if err := c.judge(ctx, o, by, &result); err != nil {
		result.Verdict, result.Message = Undecided, err.Error()
	}
	return result
}

// nameOf returns the name of an object, with a star for a generated name.
func nameOf(o *unstructured.Unstructured) string {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		return o.GetGenerateName() + "*"
	}
	return o.GetName()
}

func (c *Checker) judge(ctx context.Context, o *unstructured.Unstructured, by Subject, result *Result) error {
	k, _ := kindOf(o)
	typed, err := c.read(&k, o)
	if err != nil {
		return err
	}
	if err := c.server.Admit(ctx, typed); err != nil {
		return err
	}
	if k.mutated && mutates(typed, by) {
		if typed, err = c.give(ctx, &k, typed, o, by, result); err != nil {
			return err
		}
	}
	if !validated(typed) {
		result.Verdict = Allowed
		return nil
	}
	if err := c.readNodes(ctx, typed); err != nil {
		return err
	}
	req, err := request(&k, typed, o, by)
	if err != nil {
		return err
	}
	review, err := c.validate.Review(ctx, req)
	if err != nil {
		return explained(err)
	}
	result.Findings, result.Warnings = review.Findings, review.Warnings
	for i := range result.Findings {
		defaultActions(&result.Findings[i].Actions)
	}
	if response := review.Response(); !response.Allowed {
		result.Message = response.Result.Message
	}
	result.conclude(review.Verdict == policy.Allowed)
	return nil
}

// read returns an object as its type, in the version that it is judged in.
func (c *Checker) read(k *kind, o *unstructured.Unstructured) (runtime.Object, error) {
	gvk := o.GroupVersionKind()
	if !slices.Contains(k.versions, gvk.Version) {
		return nil, fmt.Errorf("apiVersion is %s, of which nothing is known here: want version %s", o.GetAPIVersion(), strings.Join(k.versions, " or "))
	}
	gvk.Version = k.versions[0]
	o.SetGroupVersionKind(gvk)
	typed, err := c.world.scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", gvk.Kind, err)
	}
	if err := cli.DecodeStrict(o, typed); err != nil {
		return nil, err
	}
	defaultOwn(typed)
	return typed, nil
}

// request returns the admission request for the creation of an object.
func request(k *kind, typed runtime.Object, o *unstructured.Unstructured, by Subject) (*review.Request, error) {
	content, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	group, namespace := o.GroupVersionKind().Group, o.GetNamespace()
	gvk := metav1.GroupVersionKind{Group: group, Version: k.versions[0], Kind: o.GetKind()}
	resource := metav1.GroupVersionResource{Group: group, Version: k.versions[0], Resource: k.resource}
	if k.resource == "namespaces" {
		namespace = o.GetName()
	}
	return review.Of(&admissionv1.AdmissionRequest{
		UID: uidOf(o), Kind: gvk, Resource: resource, RequestKind: &gvk, RequestResource: &resource,
		Name: o.GetName(), Namespace: namespace, Operation: admissionv1.Create, DryRun: new(false), UserInfo: by.UserInfo(),
		Object:  runtime.RawExtension{Raw: content},
		Options: runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
	})
}

// uidOf returns a UID that follows from the kind, the namespace and the name.
func uidOf(o *unstructured.Unstructured) types.UID {
	const short = 16 // bytes; no security depends on it
	sum := sha256.Sum256([]byte(o.GroupVersionKind().String() + "/" + o.GetNamespace() + "/" + nameOf(o)))
	return types.UID(hex.EncodeToString(sum[:short]))
}

// identityOf returns the UID of an object, else that of uidOf.
func identityOf(o *unstructured.Unstructured) types.UID {
	return cmp.Or(o.GetUID(), uidOf(o))
}

// explained returns the error of a review with advice.
func explained(err error) error {
	if errors.Is(err, handlers.ErrUnfollowed) {
		return errors.New("a TaintPolicy limits how many pods the taint may affect, and it is not known which pods run: " +
			"ask the cluster itself, by kubectl apply --dry-run=server")
	}
	return err
}

// controllers are the controllers that create the pods of workloads, by the kind of the workload.
var controllers = map[string]string{
	"Deployment":            "replicaset-controller",
	"ReplicaSet":            "replicaset-controller",
	"StatefulSet":           "statefulset-controller",
	"DaemonSet":             "daemon-set-controller",
	"Job":                   "job-controller",
	"CronJob":               "job-controller",
	"ReplicationController": "replication-controller",
}

// JudgePod judges the pod that a controller creates from a workload, since PlacementPolicies apply
// to pods alone. It returns false for other objects.
func (c *Checker) JudgePod(ctx context.Context, workload cli.Object) (Result, bool) {
	controller, ok := controllers[workload.GetKind()]
	if _, judged := kindOf(workload.Unstructured); !ok || !judged {
		return Result{}, false
	}
	object := workload.DeepCopy()
	c.place(object)
	pod, err := c.podOf(object)
	if err != nil {
		return Result{Position: workload.Position, Kind: "Pod", Name: nameOf(object), Verdict: Undecided, Message: err.Error()}, true
	}
	by := Subject{User: serviceaccount.MakeUsername(metav1.NamespaceSystem, controller)}
	return c.Judge(ctx, cli.Object{Position: workload.Position, Unstructured: pod}, by), true
}

// podOf returns the pod of a workload. The workload is its owner even where a controller puts
// another object between the two, which has the same template.
func (c *Checker) podOf(workload *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	k, _ := kindOf(workload)
	typed, err := c.read(&k, workload.DeepCopy())
	if err != nil {
		return nil, err
	}
	template := TemplateOf(typed)
	if template == nil {
		return nil, fmt.Errorf("%s %s has no template", workload.GetKind(), workload.GetName())
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: nameOf(workload) + "-", Namespace: workload.GetNamespace(),
			Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: workload.GetAPIVersion(), Kind: workload.GetKind(), Name: workload.GetName(),
				UID: identityOf(workload), Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: template.Spec,
	}
	if workload.GetKind() == "DaemonSet" {
		tolerateAsDaemon(&pod.Spec)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return nil, fmt.Errorf("make a pod of %s %s: %w", workload.GetKind(), workload.GetName(), err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// give applies the mutating webhook to an object, in the rounds of the API server: the plugins run
// again on the changes of the webhook, so that RuntimeClass drops a toleration that an added one
// covers (TP-04), and the webhook once more on the changes of the plugins, since its
// reinvocationPolicy is IfNeeded.
func (c *Checker) give(ctx context.Context, k *kind, typed runtime.Object, o *unstructured.Unstructured, by Subject, result *Result) (runtime.Object, error) {
	for again := true; ; again = false {
		req, err := request(k, typed, o, by)
		if err != nil {
			return nil, err
		}
		review, err := c.mutate.Review(ctx, req)
		if err != nil {
			return nil, explained(err)
		}
		if len(review.Patch) == 0 {
			return typed, nil
		}
		result.Given = append(result.Given, review.Patch...)
		if typed, err = c.patched(o, req.Object.Raw, review.Patch); err != nil || !again {
			return typed, err
		}
		before := typed.DeepCopyObject()
		if err := c.server.Admit(ctx, typed); err != nil || equality.Semantic.DeepEqual(before, typed) {
			return typed, err
		}
	}
}

// patched returns an object after JSON patches.
func (c *Checker) patched(o *unstructured.Unstructured, content []byte, operations []jsonpatchv2.Operation) (runtime.Object, error) {
	var patch jsonpatch.Patch
	var typed runtime.Object
	text, err := json.Marshal(operations)
	if err == nil {
		patch, err = jsonpatch.DecodePatch(text)
	}
	if err == nil {
		content, err = patch.Apply(content)
	}
	if err == nil {
		typed, err = c.world.scheme.New(o.GroupVersionKind())
	}
	if err == nil {
		err = json.Unmarshal(content, typed)
	}
	if err != nil {
		return nil, fmt.Errorf("give it what policies have for it: %w", err)
	}
	return typed, nil
}
