package handlers

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/webhook/review"
)

// DefaultWorkloadControllers returns the identities under which Kubernetes makes
// pods, ReplicaSets and Jobs from templates: the service accounts of its controllers,
// or the controller manager where controllers have none of their own.
func DefaultWorkloadControllers() []string {
	const account = "system:serviceaccount:kube-system:"
	return []string{
		account + "deployment-controller", account + "replicaset-controller", account + "statefulset-controller",
		account + "daemon-set-controller", account + "job-controller", account + "cronjob-controller",
		account + "replication-controller", "system:kube-controller-manager",
	}
}

// podTemplateOf returns the template of pods in an object of a kind that pods inherit from, and
// false for other kinds: what these make need not carry their template.
func podTemplateOf(object runtime.Object) (*corev1.PodTemplateSpec, bool) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template, true
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, true
	case *appsv1.StatefulSet:
		return &o.Spec.Template, true
	case *appsv1.DaemonSet:
		return &o.Spec.Template, true
	case *batchv1.Job:
		return &o.Spec.Template, true
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, true
	case *corev1.ReplicationController:
		return o.Spec.Template, true
	default:
		return nil, false
	}
}

const (
	// keepTemplates is how long a template that was read is good for.
	keepTemplates = 2 * time.Second
	// mostTemplates bounds how many are kept.
	mostTemplates = 1024
)

// owners reads the tolerations in the templates of owners from the API server, and keeps them
// for a moment, because controllers make many objects from one template. It is safe for
// concurrent use.
type owners struct {
	live        *live
	clock       clock.PassiveClock
	controllers []string
	flights     flights[[]corev1.Toleration]
	// kept has the inheritance by the source.
	kept *utilcache.LRUExpireCache
}

// source is the object that another inherits from: an owner, and for the pods of a StatefulSet
// the revision that they say they were made from.
type source struct {
	owner    types.UID
	revision string
}

func newOwners(reader client.Reader, clock clock.PassiveClock, controllers []string) *owners {
	return &owners{
		live: newLive(reader, clock), clock: clock, controllers: controllers, flights: flights[[]corev1.Toleration]{clock: clock},
		kept: utilcache.NewLRUExpireCacheWithClock(mostTemplates, clock),
	}
}

// inheritance are the tolerations that an object inherits from its owner, which may have changed
// since it was read. The time of that is zero where there is no owner to read.
type inheritance = landed[[]corev1.Toleration]

// trusts reports whether the requester makes objects from templates. Only of these is
// it known that they reference the owner they copy.
func (o *owners) trusts(requester string) bool { return slices.Contains(o.controllers, requester) }

// of returns the tolerations that an owner has in its template, read no earlier than since. The
// owner is the live one with the UID of the reference; one that does not exist has none. Revision
// is the one that the pod of a StatefulSet says it was made from.
func (o *owners) of(ctx context.Context, namespace string, owner *metav1.OwnerReference, revision string, since time.Time) (inheritance, error) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return inheritance{}, &review.BadError{Err: fmt.Errorf("metadata.ownerReferences: %w", err)}
	}
	empty, err := scheme.Scheme.New(schema.GroupVersionKind{Group: version.Group, Version: "v1", Kind: owner.Kind})
	if err != nil {
		return inheritance{}, nil //nolint:nilerr // It is no kind of Kubernetes.
	}
	if _, inherited := podTemplateOf(empty); !inherited {
		return inheritance{}, nil
	}
	from := source{owner.UID, revision}
	if found, ok := o.kept.Get(from); ok {
		if kept := found.(inheritance); !kept.asOf.Before(since) { //nolint:forcetypeassert // Nothing else is in there.
			return kept, nil
		}
	}
	got, err := o.flights.read(ctx, string(from.owner)+"/"+from.revision, since, func(ctx context.Context) ([]corev1.Toleration, error) {
		return o.read(ctx, empty.DeepCopyObject().(client.Object), namespace, owner, revision)
	})
	if err == nil {
		o.kept.Add(from, got, keepTemplates-o.clock.Since(got.asOf))
	}
	return got, err
}

// read returns the tolerations in the template of an owner, which is read into object.
//
// A StatefulSet that is rolled out with a partition, or has not finished, makes some of
// its pods anew from the template that it had before. Kubernetes keeps that template in
// a ControllerRevision, and writes its name on the pods and into the set's status. Pods
// of a DaemonSet are always made from its present template.
//
// The users who write revisions are judged for the template in them when they are created
// (judgeTemplate), and their data never changes; so it is enough that the revision is the set's own.
func (o *owners) read(ctx context.Context, object client.Object, namespace string, owner *metav1.OwnerReference, revision string) ([]corev1.Toleration, error) {
	found, err := o.live.read(ctx, namespace, owner.Name, object)
	if err != nil || !found || object.GetUID() != owner.UID {
		return nil, err
	}
	var tolerations []corev1.Toleration
	if template, _ := podTemplateOf(object); template != nil {
		tolerations = template.Spec.Tolerations
	}
	set, ok := object.(*appsv1.StatefulSet)
	if !ok || revision == "" || revision != set.Status.CurrentRevision {
		return tolerations, nil
	}
	var before appsv1.ControllerRevision
	found, err = o.live.read(ctx, set.Namespace, revision, &before)
	if err != nil || !found || !metav1.IsControlledBy(&before, set) {
		return tolerations, err
	}
	data, _ := review.Parse(before.Data.Raw) // What is no JSON holds no template.
	return slices.Concat(tolerations, templateWithin(data, underSpec).Spec.Tolerations), nil
}

// readOwner returns the managing owner that an object names, or nil.
func readOwner(f *review.Fields, v review.Value) (owner *metav1.OwnerReference) {
	for _, reference := range f.Items(v, "metadata", "ownerReferences") {
		if f.Bool(reference, "controller") {
			owner = &metav1.OwnerReference{
				APIVersion: f.Text(reference, "apiVersion"),
				Kind:       f.Text(reference, "kind"),
				Name:       f.Text(reference, "name"),
				UID:        types.UID(f.Text(reference, "uid")),
			}
		}
	}
	return owner
}
