package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// maxVerdicts bounds the cached verdicts: objects made from one template follow one another, and
// few clusters have more templates.
const maxVerdicts = 10_000

// existing judges the existing objects of a cluster by TolerationPolicies. It is not safe for
// concurrent use.
type existing struct {
	*cli.Clients

	set       *toleration.Set
	policies  map[string]*v1alpha1.TolerationPolicySpec
	defaults  toleration.DefaultSeconds
	namespace string // empty for all
	tollgate  string // the namespace of Tollgate
	take      func(Result)

	namespaces map[string]*corev1.Namespace
	// added are the tolerations of RuntimeClasses.
	added []corev1.Toleration
	// verdicts are the violations by equal input.
	verdicts map[string][]toleration.Ruling
}

// scan reads the objects in chunks, and judges them. The notes describe unreadable objects that
// would only excuse tolerations.
func (e *existing) scan(ctx context.Context) (notes []string, err error) {
	if err := e.readNamespaces(ctx); err != nil {
		return nil, err
	}
	classes := nodev1.SchemeGroupVersion.WithResource("runtimeclasses").GroupResource()
	err = cli.Each(ctx, e.Clients, classes, "", e.Kubernetes.NodeV1().RuntimeClasses().List, func(c *nodev1.RuntimeClass) error {
		if c.Scheduling != nil {
			e.added = append(e.added, c.Scheduling.Tolerations...)
		}
		return nil
	})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		notes, err = append(notes, "RuntimeClasses could not be read: tolerations that they gave to pods are taken for chosen ones"), nil
	}
	if err != nil {
		return nil, err
	}
	apps, batch, core := e.Kubernetes.AppsV1(), e.Kubernetes.BatchV1(), e.Kubernetes.CoreV1()
	if err := errors.Join(
		judgeAll(ctx, e, appsv1.SchemeGroupVersion, "Deployment", apps.Deployments(e.namespace).List),
		judgeAll(ctx, e, appsv1.SchemeGroupVersion, "ReplicaSet", apps.ReplicaSets(e.namespace).List),
		judgeAll(ctx, e, appsv1.SchemeGroupVersion, "StatefulSet", apps.StatefulSets(e.namespace).List),
		judgeAll(ctx, e, appsv1.SchemeGroupVersion, "DaemonSet", apps.DaemonSets(e.namespace).List),
		judgeAll(ctx, e, batchv1.SchemeGroupVersion, "Job", batch.Jobs(e.namespace).List),
		judgeAll(ctx, e, batchv1.SchemeGroupVersion, "CronJob", batch.CronJobs(e.namespace).List),
		judgeAll(ctx, e, corev1.SchemeGroupVersion, "ReplicationController", core.ReplicationControllers(e.namespace).List),
		judgeAll(ctx, e, corev1.SchemeGroupVersion, "PodTemplate", core.PodTemplates(e.namespace).List),
	); err != nil {
		return nil, err
	}
	if err := judgeAll(ctx, e, corev1.SchemeGroupVersion, "Pod", core.Pods(e.namespace).List); err != nil {
		return nil, err
	}
	claims := resourcev1.SchemeGroupVersion.WithResource("resourceclaims").GroupResource()
	if _, err := e.Version(ctx, claims, resourcev1.SchemeGroupVersion.Version); err != nil {
		if errors.Is(err, cli.ErrNotServed) {
			return notes, nil
		}
		return nil, err
	}
	api := e.Kubernetes.ResourceV1()
	err = judgeAll(ctx, e, resourcev1.SchemeGroupVersion, "ResourceClaimTemplate", api.ResourceClaimTemplates(e.namespace).List)
	if err == nil {
		err = judgeAll(ctx, e, resourcev1.SchemeGroupVersion, "ResourceClaim", api.ResourceClaims(e.namespace).List)
	}
	return notes, err
}

// readNamespaces reads the namespace, or all.
func (e *existing) readNamespaces(ctx context.Context) error {
	client, resource := e.Kubernetes.CoreV1().Namespaces(), schema.GroupResource{Resource: "namespaces"}
	if e.namespace != "" {
		namespace, err := client.Get(ctx, e.namespace, metav1.GetOptions{})
		e.namespaces[e.namespace] = namespace
		return cli.Failed(err, "read namespace "+e.namespace, "get", resource)
	}
	return cli.Each(ctx, e.Clients, resource, "", client.List, func(n *corev1.Namespace) error {
		e.namespaces[n.Name] = n
		return nil
	})
}

// judgeAll judges the objects of a kind. Objects that a controller made from a template have the
// tolerations of the template; of these, only pods are judged.
func judgeAll[L runtime.Object](
	ctx context.Context, e *existing, group schema.GroupVersion, kind string, list func(context.Context, metav1.ListOptions) (L, error),
) error {
	resource := schema.GroupResource{Group: group.Group, Resource: kinds[group.WithKind(kind).GroupKind()].resource}
	return cli.Each(ctx, e.Clients, resource, "", list, func(object client.Object) error {
		if policy.Unjudged(object.GetNamespace(), e.tollgate) ||
			kind != "Pod" && kind != "ResourceClaimTemplate" && metav1.GetControllerOf(object) != nil {
			return nil
		}
		result := Result{APIVersion: group.String(), Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), Verdict: Allowed}
		if err := e.judge(ctx, object, &result); err != nil {
			return err
		}
		e.take(result)
		return nil
	})
}

// input is what the policies are asked about an object.
type input struct {
	toleration.Input

	namespace *corev1.Namespace
	// window is the annotation with the tolerations of mode Window.
	window string
	// path is the path of the spec with the tolerations or requests.
	path *field.Path
}

func (in *input) pod(labels map[string]string, spec *corev1.PodSpec) {
	in.Labels, in.ServiceAccount = labels, cmp.Or(spec.ServiceAccountName, "default")
	in.HostNetwork = spec.HostNetwork
	in.ask(toleration.Asked{Path: in.path.Child("tolerations"), New: spec.Tolerations})
}

func (in *input) ask(asked toleration.Asked) {
	if len(asked.New) > 0 {
		in.Asked = append(in.Asked, asked)
	}
}

// inputOf returns the input for an object of a kind. It is empty for pods that are finished,
// terminating or mirror pods.
func inputOf(object client.Object, kind string) input {
	in := input{path: field.NewPath("spec")}
	switch o := object.(type) {
	case *corev1.Pod:
		_, mirror := o.Annotations[corev1.MirrorPodAnnotationKey]
		if mirror || o.DeletionTimestamp != nil || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
			return in
		}
		in.pod(o.Labels, &o.Spec)
		owner := metav1.GetControllerOf(o)
		in.FromDaemonSetController, in.window = owner != nil && owner.Kind == "DaemonSet", o.Annotations[v1alpha1.AnnotationWindow]
	case *resourcev1.ResourceClaim:
		in.Labels, in.window = o.Labels, o.Annotations[v1alpha1.AnnotationWindow]
	case *resourcev1.ResourceClaimTemplate:
		in.Labels, in.window = o.Spec.Labels, o.Spec.Annotations[v1alpha1.AnnotationWindow]
	default:
		template := TemplateOf(object)
		if template == nil {
			return in
		}
		in.FromDaemonSetController = kind == "DaemonSet"
		switch kind {
		case "PodTemplate":
			in.path = field.NewPath("template", "spec")
		case "CronJob":
			in.path = in.path.Child("jobTemplate", "spec", "template", "spec")
		default:
			in.path = in.path.Child("template", "spec")
		}
		in.pod(template.Labels, &template.Spec)
	}
	for _, r := range requestsOf(object) {
		in.OfDevices = true
		in.ask(toleration.Asked{Path: r.path.Child("tolerations"), Class: r.class, New: selector.FromDevices(r.tolerations)})
	}
	return in
}

// judge adds the findings on an object to its result.
func (e *existing) judge(ctx context.Context, object client.Object, result *Result) error {
	in := inputOf(object, result.Kind)
	in.namespace = e.namespaces[object.GetNamespace()]
	if len(in.Asked) == 0 || in.namespace == nil { // The namespace is being deleted.
		return nil
	}
	violations, err := e.violations(ctx, &in)
	if err != nil {
		return fmt.Errorf("judge %s: %w", result, err)
	}
	for _, v := range violations {
		spec := e.policies[v.Policy]
		finding := policy.Finding{
			Policy: policy.Ref("TolerationPolicy", v.Policy), Reason: policy.TolerationNotGranted, Actions: spec.ValidationActions,
			Field: v.Field, Value: v.Toleration, Problem: "no grant of the policy allows it", Remedy: spec.Message,
		}
		defaultActions(&finding.Actions)
		result.Findings = append(result.Findings, finding)
	}
	result.conclude(!slices.ContainsFunc(result.Findings, policy.Finding.Denies))
	return nil
}

// violations returns the violations of an input, and completes it.
func (e *existing) violations(ctx context.Context, in *input) ([]toleration.Ruling, error) {
	if !e.set.AuditNeedsLabels() {
		in.Labels = nil
	}
	paths := make([]string, len(in.Asked)) // They are in the fields of violations.
	for i := range in.Asked {
		paths[i] = in.Asked[i].Path.String()
	}
	encoded, err := json.Marshal([]any{in.namespace.Name, in.Labels, in.ServiceAccount, in.FromDaemonSetController, in.HostNetwork, in.Asked, paths, in.window})
	if err != nil {
		return nil, fmt.Errorf("encode tolerations: %w", err)
	}
	key := string(encoded)
	if cached, ok := e.verdicts[key]; ok {
		return cached, nil
	}
	in.DefaultSeconds = &e.defaults
	if !in.OfDevices {
		in.Added = slices.Clone(e.added)
	}
	// Tollgate adds the tolerations of mode Window, so they are not judged.
	for _, w := range v1alpha1.ParseWindow(in.window) {
		in.Added = append(in.Added, w.OfPod())
	}
	found, err := e.set.Audit(ctx, in.namespace, in.Input)
	if err != nil {
		return nil, err
	}
	if len(e.verdicts) >= maxVerdicts {
		clear(e.verdicts)
	}
	e.verdicts[key] = found
	return found, nil
}
