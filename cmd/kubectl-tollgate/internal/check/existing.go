package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// maxVerdicts bounds the cached findings: objects made from one template follow one another, and
// few clusters have more templates.
const maxVerdicts = 10_000

// scan judges the existing objects of the cluster by the given policies, else by its own: the
// tolerations of pods, templates and claims, and unless a namespace is named, NodePools.
func (c *command) scan(ctx context.Context, given Policies, report *Report) error {
	clients, err := c.clients(c.notes)
	if err != nil {
		return err
	}
	defer clients.Progress.End()
	namespace, named, err := c.namespace()
	if err != nil {
		return err
	}
	if !named {
		namespace = metav1.NamespaceAll
	}
	if len(c.policies) == 0 {
		err := given.readAll(ctx, clients, "-p", "tolerationpolicies")
		if err == nil { // A guard of a PlacementPolicy is a TolerationPolicy, too.
			_, err = given.read(ctx, clients, "placementpolicies")
		}
		if err != nil {
			return err
		}
	}
	policies := given.apart().tolerations
	report.Policies = len(policies)
	if len(policies) == 0 {
		report.note("there is no TolerationPolicy to judge by: everything is allowed")
	} else {
		e := &existing{
			Clients: clients, command: c, report: report, set: toleration.Compile(policies), namespace: namespace,
			policies: map[string]*v1alpha1.TolerationPolicySpec{}, namespaces: map[string]*corev1.Namespace{}, findings: map[string][]policy.Finding{},
		}
		for _, p := range policies {
			e.policies[p.Name] = &p.Spec
		}
		if err := e.scan(ctx); err != nil {
			return fmt.Errorf("judge what stands in the cluster: %w", err)
		}
	}
	if named {
		return nil
	}
	return c.scanNodePools(ctx, clients, given, report)
}

// scanNodePools judges the NodePools of a cluster, if it serves any, by the given TaintPolicies,
// else by its own.
func (c *command) scanNodePools(ctx context.Context, clients *cli.Clients, given Policies, report *Report) error {
	served, err := state.Serves(ctx, clients, nodePools.GroupResource(), nodePools.Version)
	if err != nil || !served {
		return err
	}
	if len(c.policies) == 0 {
		_, err = given.read(ctx, clients, "taintpolicies")
	}
	var checker *Checker
	if err == nil {
		checker, err = NewChecker(Options{Policies: given, Config: c.config, Clock: c.clock})
	}
	if err == nil && checker.policies.Taints.Registers() {
		report.Policies += checker.policies.Taints.Len()
		err = clients.EachCustom(ctx, nodePools, func(object *unstructured.Unstructured) error {
			pool, _ := checker.JudgeNodePool(cli.Object{Unstructured: object})
			c.take(report, pool)
			return nil
		})
	}
	if apierrors.IsForbidden(err) {
		report.note("TaintPolicies or NodePools may not be listed: whether NodePools name the taints of their nodes is not known")
		return nil
	}
	return err
}

// take adds the result for an existing object to a report. Those that are allowed are only
// counted, unless all are wanted: there may be thousands.
func (c *command) take(report *Report, result Result) {
	if result.Verdict == Allowed && c.output.Format != "wide" {
		report.Unlisted++
		return
	}
	report.Results = append(report.Results, result)
}

// existing judges the existing objects of a cluster by TolerationPolicies. It is not safe for
// concurrent use.
type existing struct {
	*cli.Clients

	command   *command
	report    *Report
	set       *toleration.Set
	policies  map[string]*v1alpha1.TolerationPolicySpec
	namespace string // empty for all

	namespaces map[string]*corev1.Namespace
	// added are the tolerations of RuntimeClasses.
	added []corev1.Toleration
	// findings are those on objects with equal input.
	findings map[string][]policy.Finding
}

// scan reads the namespace, or all, and the objects in chunks, and judges them. Notes describe unreadable objects that would
// only excuse tolerations.
func (e *existing) scan(ctx context.Context) error {
	var err error
	namespaces := e.Kubernetes.CoreV1().Namespaces()
	if e.namespace == "" {
		err = cli.Each(ctx, e.Clients, state.NamespaceResource, "", namespaces.List, func(n *corev1.Namespace) error {
			e.namespaces[n.Name] = n
			return nil
		})
	} else {
		e.namespaces[e.namespace], err = namespaces.Get(ctx, e.namespace, metav1.GetOptions{})
		err = cli.Failed(err, "read namespace "+e.namespace, "get", state.NamespaceResource)
	}
	if err != nil {
		return err
	}
	classes := schema.GroupResource{Group: nodev1.GroupName, Resource: "runtimeclasses"}
	err = cli.Each(ctx, e.Clients, classes, "", e.Kubernetes.NodeV1().RuntimeClasses().List, func(c *nodev1.RuntimeClass) error {
		if c.Scheduling != nil {
			e.added = append(e.added, c.Scheduling.Tolerations...)
		}
		return nil
	})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		e.report.note("RuntimeClasses could not be read: tolerations that they gave to pods are taken for chosen ones")
	} else if err != nil {
		return err
	}
	in, apps, batch, core := e.namespace, e.Kubernetes.AppsV1(), e.Kubernetes.BatchV1(), e.Kubernetes.CoreV1()
	err = errors.Join(
		judgeAll(ctx, e, "Deployment", apps.Deployments(in).List),
		judgeAll(ctx, e, "ReplicaSet", apps.ReplicaSets(in).List),
		judgeAll(ctx, e, "StatefulSet", apps.StatefulSets(in).List),
		judgeAll(ctx, e, "DaemonSet", apps.DaemonSets(in).List),
		judgeAll(ctx, e, "Job", batch.Jobs(in).List),
		judgeAll(ctx, e, "CronJob", batch.CronJobs(in).List),
		judgeAll(ctx, e, "ReplicationController", core.ReplicationControllers(in).List),
		judgeAll(ctx, e, "PodTemplate", core.PodTemplates(in).List),
	)
	if err == nil {
		err = judgeAll(ctx, e, "Pod", core.Pods(in).List)
	}
	if err != nil {
		return err
	}
	served, err := state.Serves(ctx, e.Clients, state.ClaimResource, "v1")
	if err != nil || !served {
		return err
	}
	api := e.Kubernetes.ResourceV1()
	err = judgeAll(ctx, e, "ResourceClaimTemplate", api.ResourceClaimTemplates(in).List)
	if err == nil {
		err = judgeAll(ctx, e, "ResourceClaim", api.ResourceClaims(in).List)
	}
	return err
}

// judgeAll judges the objects of a kind. Objects that a controller made from a template have the
// tolerations of the template; of these, only pods are judged.
func judgeAll[L runtime.Object](ctx context.Context, e *existing, kind string, list func(context.Context, metav1.ListOptions) (L, error)) error {
	resource := kinds[kind].resource
	return cli.Each(ctx, e.Clients, resource.GroupResource(), "", list, func(object client.Object) error {
		if policy.Unjudged(object.GetNamespace(), e.command.config.Namespace) ||
			kind != "Pod" && kind != "ResourceClaimTemplate" && metav1.GetControllerOf(object) != nil {
			return nil
		}
		result := Result{
			APIVersion: resource.GroupVersion().String(), Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName(), Verdict: Allowed,
		}
		if err := e.judge(ctx, object, &result); err != nil {
			return fmt.Errorf("judge %s: %w", &result, err)
		}
		e.command.take(e.report, result)
		return nil
	})
}

// inputOf returns the input for an object of a kind, and the annotation with the tolerations of mode
// Window. It asks nothing about pods that are finished, terminating or mirror pods.
func inputOf(object client.Object, kind string) (in toleration.Input, window string) {
	path := field.NewPath("spec")
	var spec *corev1.PodSpec
	switch o := object.(type) {
	case *corev1.Pod:
		if metav1.HasAnnotation(o.ObjectMeta, corev1.MirrorPodAnnotationKey) || o.DeletionTimestamp != nil ||
			slices.Contains([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, o.Status.Phase) {
			return in, ""
		}
		owner := metav1.GetControllerOf(o)
		in.FromDaemonSetController = owner != nil && owner.Kind == "DaemonSet"
		in.Labels, window, spec = o.Labels, o.Annotations[v1alpha1.AnnotationWindow], &o.Spec
	case *resourcev1.ResourceClaim:
		in.Labels, window = o.Labels, o.Annotations[v1alpha1.AnnotationWindow]
	case *resourcev1.ResourceClaimTemplate:
		in.Labels, window = o.Spec.Labels, o.Spec.Annotations[v1alpha1.AnnotationWindow]
	default:
		template := TemplateOf(object)
		if template == nil {
			return in, ""
		}
		in.FromDaemonSetController, in.Labels, spec = kind == "DaemonSet", template.Labels, &template.Spec
		switch kind {
		case "PodTemplate":
			path = field.NewPath("template", "spec")
		case "CronJob":
			path = path.Child("jobTemplate", "spec", "template", "spec")
		default:
			path = path.Child("template", "spec")
		}
	}
	if spec != nil && len(spec.Tolerations) > 0 {
		in.ServiceAccount, in.HostNetwork = cmp.Or(spec.ServiceAccountName, "default"), spec.HostNetwork
		in.Asked = []toleration.Asked{{Path: path.Child("tolerations"), New: spec.Tolerations}}
	}
	for _, r := range requestsOf(object) {
		if len(r.tolerations) > 0 {
			in.OfDevices = true
			in.Asked = append(in.Asked, toleration.Asked{Path: r.path.Child("tolerations"), Class: r.class, New: selector.FromDevices(r.tolerations)})
		}
	}
	return in, window
}

// judge sets the findings on an object in its result.
func (e *existing) judge(ctx context.Context, object client.Object, result *Result) error {
	in, window := inputOf(object, result.Kind)
	namespace := e.namespaces[object.GetNamespace()]
	if len(in.Asked) == 0 || namespace == nil { // The namespace is being deleted.
		return nil
	}
	if !e.set.AuditNeedsLabels() {
		in.Labels = nil
	}
	paths := make([]string, len(in.Asked)) // They are in the fields of findings.
	for i := range in.Asked {
		paths[i] = in.Asked[i].Path.String()
	}
	key, err := json.Marshal([]any{namespace.Name, in.Labels, in.ServiceAccount, in.FromDaemonSetController, in.HostNetwork, in.Asked, paths, window})
	if err != nil {
		return err
	}
	findings, known := e.findings[string(key)]
	if !known {
		if findings, err = e.audit(ctx, namespace, &in, window); err != nil {
			return err
		}
		if len(e.findings) >= maxVerdicts {
			clear(e.findings)
		}
		e.findings[string(key)] = findings
	}
	result.Findings = findings
	result.conclude(!slices.ContainsFunc(findings, policy.Finding.Denies))
	return nil
}

// audit returns the findings on an input, and completes it.
func (e *existing) audit(ctx context.Context, namespace *corev1.Namespace, in *toleration.Input, window string) ([]policy.Finding, error) {
	in.DefaultSeconds = new(settings.DefaultSeconds(e.command.config))
	if !in.OfDevices {
		in.Added = slices.Clone(e.added)
	}
	// Tollgate adds the tolerations of mode Window, so they are not judged.
	for _, w := range v1alpha1.ParseWindow(window) {
		in.Added = append(in.Added, w.OfPod())
	}
	violations, err := e.set.Audit(ctx, namespace, *in)
	if err != nil {
		return nil, err
	}
	var findings []policy.Finding
	for _, v := range violations {
		spec := e.policies[v.Policy]
		finding := policy.Finding{
			Policy: policy.Ref("TolerationPolicy", v.Policy), Reason: policy.TolerationNotGranted, Actions: spec.ValidationActions,
			Field: v.Field, Value: v.Toleration, Problem: "no grant of the policy allows it", Remedy: spec.Message,
		}
		defaultActions(&finding.Actions)
		findings = append(findings, finding)
	}
	return findings, nil
}
