package check

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// Outside says which namespaces are not looked at.
type Outside func(namespace string) bool

// Scan looks at what stands in a namespace of a cluster, or in all of them, a chunk at a time,
// and hands out what is judged. It returns notes on what could not be read and would only
// have excused something.
func Scan(ctx context.Context, clients *cli.Clients, j *Judge, namespace string, outside Outside, take func(Result)) ([]string, error) {
	s := &scan{Clients: clients, judge: j, namespace: namespace, outside: outside, take: take}
	if err := s.namespaces(ctx); err != nil {
		return nil, err
	}
	notes, err := s.runtimeClasses(ctx)
	if err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{s.workloads, s.pods, s.claims} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return notes, nil
}

type scan struct {
	*cli.Clients

	judge     *Judge
	namespace string
	outside   Outside
	take      func(Result)
}

// namespaces reads them: all, since a list of one takes the same right as a list of all.
func (s *scan) namespaces(ctx context.Context) error {
	if s.namespace != "" {
		namespace, err := s.Kubernetes.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
		if err != nil {
			resource := schema.GroupResource{Resource: "namespaces"}
			return cli.Failed(err, "read namespace "+s.namespace, "get", resource)
		}
		s.judge.Namespaces[s.namespace] = namespace
		return nil
	}
	return each(ctx, s, "", "namespaces", cli.Pages(s.Kubernetes.CoreV1().Namespaces().List), func(n *corev1.Namespace) error {
		s.judge.Namespaces[n.Name] = n
		return nil
	})
}

// runtimeClasses reads what they add to pods. Who may not read them is told what that means.
func (s *scan) runtimeClasses(ctx context.Context) ([]string, error) {
	client := s.Kubernetes.NodeV1().RuntimeClasses()
	err := each(ctx, s, nodev1.GroupName, "runtimeclasses", cli.Pages(client.List), func(c *nodev1.RuntimeClass) error {
		if c.Scheduling != nil {
			s.judge.Added = append(s.judge.Added, c.Scheduling.Tolerations...)
		}
		return nil
	})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return []string{"RuntimeClasses could not be read: tolerations that they gave to pods are taken for chosen ones"}, nil
	}
	return nil, err
}

// each is cli.Each for a resource of a group.
func each[T runtime.Object](ctx context.Context, s *scan, group, resource string, list pager.ListPageFunc, take func(T) error) error {
	return cli.Each(ctx, s.Clients, schema.GroupResource{Group: group, Resource: resource}, list, metav1.ListOptions{}, take)
}

// judged hands out a result of something that stands where Tollgate is asked about it.
func (s *scan) judged(result Result, err error) error {
	if err == nil {
		s.take(result)
	}
	return err
}

func (s *scan) pods(ctx context.Context) error {
	return each(ctx, s, "", "pods", cli.Pages(s.Kubernetes.CoreV1().Pods(s.namespace).List), func(pod *corev1.Pod) error {
		if s.outside(pod.Namespace) {
			return nil
		}
		return s.judged(s.judge.Pod(ctx, pod))
	})
}

// workloads looks at the templates of pods that users write. Those of what controllers make
// from others say the same.
func (s *scan) workloads(ctx context.Context) error {
	const spec = "spec.template.spec"
	apps, batch, core := s.Kubernetes.AppsV1(), s.Kubernetes.BatchV1(), s.Kubernetes.CoreV1()
	v1, appsGroup, batchGroup := corev1.SchemeGroupVersion.String(), appsv1.SchemeGroupVersion.String(), batchv1.SchemeGroupVersion.String()
	return errors.Join(
		templates(ctx, s, ExistingKind{appsGroup, "Deployment", spec}, appsv1.GroupName, "deployments", cli.Pages(apps.Deployments(s.namespace).List),
			func(o *appsv1.Deployment) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		templates(ctx, s, ExistingKind{appsGroup, "ReplicaSet", spec}, appsv1.GroupName, "replicasets", cli.Pages(apps.ReplicaSets(s.namespace).List),
			func(o *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		templates(ctx, s, ExistingKind{appsGroup, "StatefulSet", spec}, appsv1.GroupName, "statefulsets", cli.Pages(apps.StatefulSets(s.namespace).List),
			func(o *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		templates(ctx, s, ExistingKind{appsGroup, "DaemonSet", spec}, appsv1.GroupName, "daemonsets", cli.Pages(apps.DaemonSets(s.namespace).List),
			func(o *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		templates(ctx, s, ExistingKind{batchGroup, "Job", spec}, batchv1.GroupName, "jobs", cli.Pages(batch.Jobs(s.namespace).List),
			func(o *batchv1.Job) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		templates(ctx, s, ExistingKind{batchGroup, "CronJob", "spec.jobTemplate." + spec}, batchv1.GroupName, "cronjobs", cli.Pages(batch.CronJobs(s.namespace).List),
			func(o *batchv1.CronJob) *corev1.PodTemplateSpec { return &o.Spec.JobTemplate.Spec.Template }),
		templates(ctx, s, ExistingKind{v1, "ReplicationController", spec}, "", "replicationcontrollers", cli.Pages(core.ReplicationControllers(s.namespace).List),
			func(o *corev1.ReplicationController) *corev1.PodTemplateSpec { return o.Spec.Template }),
		templates(ctx, s, ExistingKind{v1, "PodTemplate", "template.spec"}, "", "podtemplates", cli.Pages(core.PodTemplates(s.namespace).List),
			func(o *corev1.PodTemplate) *corev1.PodTemplateSpec { return &o.Template }),
	)
}

// workload is an object with a template.
type workload interface {
	runtime.Object
	metav1.Object
}

func templates[T workload](ctx context.Context, s *scan, kind ExistingKind, group, resource string, list pager.ListPageFunc, of func(T) *corev1.PodTemplateSpec) error {
	return each(ctx, s, group, resource, list, func(object T) error {
		if s.outside(object.GetNamespace()) || metav1.GetControllerOf(object) != nil {
			return nil
		}
		return s.judged(s.judge.Template(ctx, kind, object, of(object)))
	})
}

// claims looks at claims that users write, and at templates of claims, where there are such.
func (s *scan) claims(ctx context.Context) error {
	claims := schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
	if _, err := s.Version(ctx, claims, resourcev1.SchemeGroupVersion.Version); errors.Is(err, cli.ErrNotServed) {
		return nil
	} else if err != nil {
		return err
	}
	api := s.Kubernetes.ResourceV1()
	err := each(ctx, s, claims.Group, "resourceclaimtemplates", cli.Pages(api.ResourceClaimTemplates(s.namespace).List), func(o *resourcev1.ResourceClaimTemplate) error {
		if s.outside(o.Namespace) {
			return nil
		}
		return s.judged(s.judge.Claim(ctx, "ResourceClaimTemplate", o, o.Spec.ObjectMeta, &o.Spec.Spec))
	})
	if err != nil {
		return err
	}
	return each(ctx, s, claims.Group, claims.Resource, cli.Pages(api.ResourceClaims(s.namespace).List), func(o *resourcev1.ResourceClaim) error {
		if s.outside(o.Namespace) || metav1.GetControllerOf(o) != nil {
			return nil
		}
		return s.judged(s.judge.Claim(ctx, "ResourceClaim", o, o.ObjectMeta, &o.Spec))
	})
}
