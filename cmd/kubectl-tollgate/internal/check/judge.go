package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// Judged reports whether the webhook judges the creation of an object: by its kind, and by the
// namespaceSelector of the webhooks.
func (c *Checker) Judged(object *unstructured.Unstructured) bool {
	k := kindOf(object)
	switch {
	case k == nil:
		return false
	case k.namespaced:
		return !policy.Unjudged(cmp.Or(object.GetNamespace(), c.Namespace), c.Config.Namespace)
	case k.resource.Resource == "namespaces":
		return !policy.Unjudged(object.GetName(), c.Config.Namespace)
	default:
		return true
	}
}

// Judge judges the creation of an object that Judged reports, by a user.
func (c *Checker) Judge(ctx context.Context, object cli.Object, by Subject) Result {
	o := c.placed(object)
	result := Result{
		Position: object.Position, APIVersion: o.GetAPIVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: nameOf(o),
	}
	c.pace.count.Add(1)
	err := c.judge(ctx, o, by, &result)
	switch {
	case errors.Is(err, handlers.ErrUnfollowed):
		result.Verdict = Undecided
		result.Message = "a TaintPolicy limits how many pods the taint may affect, and it is not known which pods run: " +
			"ask the cluster itself, by kubectl apply --dry-run=server"
	case err != nil:
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
	typed, err := read(o)
	if err == nil {
		err = c.server.Admit(ctx, typed)
	}
	if err == nil && kindOf(o).mutated && mutates(typed, by) {
		typed, err = c.give(ctx, typed, o, by, result)
	}
	if err != nil {
		return err
	}
	if !validated(typed) {
		result.Verdict = Allowed
		return nil
	}
	if err := c.readNodes(ctx, typed); err != nil {
		return err
	}
	_, review, err := ask(ctx, c.validate, typed, o, by)
	if err != nil {
		return err
	}
	result.Findings, result.Warnings = review.Findings, review.Warnings
	for i := range result.Findings {
		defaultActions(&result.Findings[i].Actions)
	}
	response := review.Response()
	if !response.Allowed {
		result.Message = response.Result.Message
	}
	result.conclude(response.Allowed)
	return nil
}

// read returns an object as its type, in the version that it is judged in.
func read(o *unstructured.Unstructured) (runtime.Object, error) {
	k, gvk := kindOf(o), o.GroupVersionKind()
	if !slices.Contains(k.versions, gvk.Version) {
		return nil, fmt.Errorf("apiVersion is %s, of which nothing is known here: want version %s", o.GetAPIVersion(), strings.Join(k.versions, " or "))
	}
	gvk.Version = k.resource.Version
	o.SetGroupVersionKind(gvk)
	typed, err := scheme().New(gvk)
	if err == nil {
		err = cli.DecodeStrict(o, typed)
	}
	if err != nil {
		return nil, err
	}
	defaultOwn(typed)
	return typed, nil
}

// ask returns the answer of an endpoint about the creation of an object, and the object in JSON.
func ask(
	ctx context.Context, endpoint *webhook.Endpoint, typed runtime.Object, o *unstructured.Unstructured, by Subject,
) (content []byte, answer handlers.Result, err error) {
	if content, err = json.Marshal(typed); err != nil {
		return nil, answer, err
	}
	gvk, resource, namespace := metav1.GroupVersionKind(o.GroupVersionKind()), metav1.GroupVersionResource(kindOf(o).resource), o.GetNamespace()
	if resource.Resource == "namespaces" {
		namespace = o.GetName()
	}
	request, err := review.Of(&admissionv1.AdmissionRequest{
		UID: uidOf(o), Kind: gvk, Resource: resource, RequestKind: &gvk, RequestResource: &resource,
		Name: o.GetName(), Namespace: namespace, Operation: admissionv1.Create, DryRun: new(false), UserInfo: by.UserInfo(),
		Object:  runtime.RawExtension{Raw: content},
		Options: runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
	})
	if err == nil {
		answer, err = endpoint.Review(ctx, request)
	}
	return content, answer, err
}

// uidOf returns the UID of an object, else one that follows from the kind, the namespace and the name.
func uidOf(o *unstructured.Unstructured) types.UID {
	return cmp.Or(o.GetUID(), types.UID(o.GroupVersionKind().String()+"/"+o.GetNamespace()+"/"+nameOf(o)))
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
// to pods alone. It returns false for other objects. The workload is the owner of the pod even where
// a controller puts another object between the two, which has the same template.
func (c *Checker) JudgePod(ctx context.Context, workload cli.Object) (Result, bool) {
	controller, ok := controllers[workload.GetKind()]
	if !ok || kindOf(workload.Unstructured) == nil {
		return Result{}, false
	}
	owner := c.placed(workload)
	owner.SetUID(uidOf(owner))
	typed, err := read(owner)
	template := TemplateOf(typed)
	if err == nil && template == nil {
		err = fmt.Errorf("%s %s has no template", owner.GetKind(), owner.GetName())
	}
	if err != nil {
		return Result{Position: workload.Position, Kind: "Pod", Name: nameOf(owner), Verdict: Undecided, Message: err.Error()}, true
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: nameOf(owner) + "-", Namespace: owner.GetNamespace(),
			Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())},
		},
		Spec: template.Spec,
	}
	if owner.GetKind() == "DaemonSet" {
		tolerateAsDaemon(&pod.Spec)
	}
	content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(pod) // A Pod has no field that it refuses.
	by := Subject{User: serviceaccount.MakeUsername(metav1.NamespaceSystem, controller)}
	return c.Judge(ctx, cli.Object{Position: workload.Position, Unstructured: &unstructured.Unstructured{Object: content}}, by), true
}

// give applies the mutating webhook to an object, in the rounds of the API server: the plugins run
// again on the changes of the webhook, so that RuntimeClass drops a toleration that an added one
// covers (TP-04), and the webhook once more on the changes of the plugins, since its
// reinvocationPolicy is IfNeeded.
func (c *Checker) give(ctx context.Context, typed runtime.Object, o *unstructured.Unstructured, by Subject, result *Result) (runtime.Object, error) {
	for again := true; ; again = false {
		content, review, err := ask(ctx, c.mutate, typed, o, by)
		if err != nil || len(review.Patch) == 0 {
			return typed, err
		}
		result.Given = append(result.Given, review.Patch...)
		var patch jsonpatch.Patch
		text, err := json.Marshal(review.Patch)
		if err == nil {
			patch, err = jsonpatch.DecodePatch(text)
		}
		if err == nil {
			content, err = patch.Apply(content)
		}
		if err == nil {
			typed, err = scheme().New(o.GroupVersionKind())
		}
		if err == nil {
			err = json.Unmarshal(content, typed)
		}
		if err != nil {
			return nil, fmt.Errorf("give it what policies have for it: %w", err)
		}
		if !again {
			return typed, nil
		}
		before := typed.DeepCopyObject()
		if err := c.server.Admit(ctx, typed); err != nil || equality.Semantic.DeepEqual(before, typed) {
			return typed, err
		}
	}
}

// kind is a kind whose creation the webhook judges.
type kind struct {
	// versions are the versions that can be decoded. Objects are judged in the first, which is that
	// of the resource.
	versions   []string
	resource   schema.GroupVersionResource
	namespaced bool
	// mutated is true for kinds of the mutating webhook.
	mutated bool
}

// kinds are the kinds of the webhooks in deploy/webhooks, by their names. Device kinds have the same
// fields in v1beta2 and v1, and others in v1beta1.
var kinds = func() map[string]*kind {
	all := map[string]*kind{}
	outside := []string{"Node", "Namespace", "ResourceSlice", "DeviceTaintRule"} // of namespaces
	mutated := []string{"Pod", "Node", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule"}
	add := func(group schema.GroupVersion, older []string, names ...string) {
		for _, name := range names {
			resource, _ := meta.UnsafeGuessKindToResource(group.WithKind(name))
			resource.Resource = strings.Replace(resource.Resource, "patchs", "patches", 1)
			namespaced := group != v1alpha1.GroupVersion && !slices.Contains(outside, name)
			all[name] = &kind{append([]string{group.Version}, older...), resource, namespaced, slices.Contains(mutated, name)}
		}
	}
	add(corev1.SchemeGroupVersion, nil, "Pod", "Node", "Namespace", "ReplicationController", "PodTemplate")
	add(appsv1.SchemeGroupVersion, nil, "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision")
	add(batchv1.SchemeGroupVersion, nil, "Job", "CronJob")
	add(resourcev1.SchemeGroupVersion, []string{"v1beta2"}, "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
	add(resourcev1.SchemeGroupVersion, []string{"v1beta2", "v1alpha3"}, "DeviceTaintRule")
	add(v1alpha1.GroupVersion, nil,
		"TolerationPolicy", "PlacementPolicy", "TaintPolicy", "GatePolicy", "EvictionPolicy", "EvictionApproval", "ResourceSlicePatch")
	return all
}()

// kindOf returns the kind of an object whose creation the webhook judges, nil for others.
func kindOf(object *unstructured.Unstructured) *kind {
	k := kinds[object.GetKind()]
	if k == nil || k.resource.Group != object.GroupVersionKind().Group {
		return nil
	}
	return k
}

// validated reports whether the API server calls the validating webhook for the creation of an
// object, by the matchConditions in deploy/webhooks/validating.yaml. It leaves out workloads
// without tolerations; these are judged here with the same verdict.
func validated(object runtime.Object) bool {
	switch o := object.(type) {
	case *resourcev1.ResourceClaim, *resourcev1.ResourceClaimTemplate:
		return slices.ContainsFunc(requestsOf(object), func(r deviceRequest) bool { return r.tolerations != nil })
	case *resourcev1.ResourceSlice:
		return slices.ContainsFunc(o.Spec.Devices, func(d resourcev1.Device) bool { return d.Taints != nil })
	default:
		return true
	}
}

// mutates reports whether the API server calls the mutating webhook for an object, by the
// matchConditions in deploy/webhooks/mutating.yaml: not for mirror pods of a kubelet.
func mutates(object runtime.Object, by Subject) bool {
	pod, ok := object.(*corev1.Pod)
	return !ok || !strings.HasPrefix(by.User, "system:node:") || !metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey)
}

// Subject is the user who creates the objects.
type Subject struct {
	// User is the name in requests; empty for an unnamed user.
	User   string   `json:"as,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// UserInfo returns the user of a request. Like every authenticated user, the subject is in
// system:authenticated, and a service account in the groups of service accounts.
func (s Subject) UserInfo() authenticationv1.UserInfo {
	// Expressions take an empty name for no name.
	name := cmp.Or(s.User, "tollgate:nobody-in-particular")
	var groups []string
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	if name != user.Anonymous {
		groups = append(groups, user.AllAuthenticated)
	}
	groups = slices.DeleteFunc(groups, func(group string) bool { return slices.Contains(s.Groups, group) })
	return authenticationv1.UserInfo{Username: name, Groups: slices.Concat(s.Groups, groups)}
}

// String returns the name and the groups.
func (s Subject) String() string {
	switch {
	case s.User == "":
		return "nobody in particular"
	case len(s.Groups) == 0:
		return "user " + s.User
	default:
		return fmt.Sprintf("user %s (groups %s)", s.User, strings.Join(s.Groups, ", "))
	}
}
