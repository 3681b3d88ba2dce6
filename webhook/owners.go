package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// workload is a kind of object that others are made from.
type workload struct {
	empty    func() client.Object
	template func(client.Object) *corev1.PodTemplateSpec
}

// workloads are the kinds that pods inherit from. What they make carries their
// template; of other kinds nobody can say.
func workloads() map[schema.GroupKind]workload {
	return map[schema.GroupKind]workload{
		{Group: appsv1.GroupName, Kind: "Deployment"}: {
			func() client.Object { return new(appsv1.Deployment) },
			func(o client.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.Deployment).Spec.Template },
		},
		{Group: appsv1.GroupName, Kind: "ReplicaSet"}: {
			func() client.Object { return new(appsv1.ReplicaSet) },
			func(o client.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.ReplicaSet).Spec.Template },
		},
		{Group: appsv1.GroupName, Kind: "StatefulSet"}: {
			func() client.Object { return new(appsv1.StatefulSet) },
			func(o client.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.StatefulSet).Spec.Template },
		},
		{Group: appsv1.GroupName, Kind: "DaemonSet"}: {
			func() client.Object { return new(appsv1.DaemonSet) },
			func(o client.Object) *corev1.PodTemplateSpec { return &o.(*appsv1.DaemonSet).Spec.Template },
		},
		{Group: batchv1.GroupName, Kind: "Job"}: {
			func() client.Object { return new(batchv1.Job) },
			func(o client.Object) *corev1.PodTemplateSpec { return &o.(*batchv1.Job).Spec.Template },
		},
		{Group: batchv1.GroupName, Kind: "CronJob"}: {
			func() client.Object { return new(batchv1.CronJob) },
			func(o client.Object) *corev1.PodTemplateSpec {
				return &o.(*batchv1.CronJob).Spec.JobTemplate.Spec.Template
			},
		},
		{Kind: "ReplicationController"}: {
			func() client.Object { return new(corev1.ReplicationController) },
			func(o client.Object) *corev1.PodTemplateSpec { return o.(*corev1.ReplicationController).Spec.Template },
		},
	}
}

const (
	// keepTemplates is how long a template that was read is good for.
	keepTemplates = 2 * time.Second
	// mostTemplates bounds how many are kept.
	mostTemplates = 1024
)

// owners knows what the owners of objects have in their templates: read from the API
// server and kept for a moment, because controllers make many objects from one
// template. It is safe for concurrent use.
type owners struct {
	live        *live
	clock       clock.PassiveClock
	controllers map[string]struct{}
	workloads   map[schema.GroupKind]workload
	flights     flights[[]corev1.Toleration]

	mu   sync.Mutex // guards kept
	kept map[source]inheritance
}

// source is what something may inherit from: an owner, and for the pods of a
// StatefulSet the revision that they say they were made from.
type source struct {
	owner    types.UID
	revision string
}

func newOwners(reader client.Reader, clock clock.PassiveClock, controllers []string) *owners {
	o := &owners{
		live: newLive(reader, clock), clock: clock, workloads: workloads(), flights: flights[[]corev1.Toleration]{clock: clock},
		controllers: make(map[string]struct{}, len(controllers)), kept: map[source]inheritance{},
	}
	for _, name := range controllers {
		o.controllers[name] = struct{}{}
	}
	return o
}

// inheritance is what an object inherits from its owner.
type inheritance struct {
	tolerations []corev1.Toleration
	// asOf is when the read of the owner began. It may have changed since. Zero where
	// there is no owner to read.
	asOf time.Time
}

// trusts reports whether the requester makes objects from templates. Only of these is
// it known that they reference the owner they copy.
func (o *owners) trusts(requester string) bool {
	_, known := o.controllers[requester]
	return known
}

// of returns the tolerations that an owner has in its template, read no earlier than
// since. The owner is the live one with the UID that is referenced; what does not exist
// has nothing to give. Revision is what the pod of a StatefulSet says it was made from.
func (o *owners) of(ctx context.Context, namespace string, owner *metav1.OwnerReference, revision string, since time.Time) (inheritance, error) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return inheritance{}, &badReviewError{fmt.Errorf("metadata.ownerReferences: %w", err)}
	}
	kind, ok := o.workloads[version.WithKind(owner.Kind).GroupKind()]
	if !ok {
		return inheritance{}, nil
	}
	from := source{owner.UID, revision}
	if kept, ok := o.recall(from, since); ok {
		return kept, nil
	}
	got, err := o.flights.read(ctx, string(from.owner)+"/"+from.revision, since, func(ctx context.Context) ([]corev1.Toleration, error) {
		return o.read(ctx, kind, namespace, owner, revision)
	})
	if err != nil {
		return inheritance{}, err
	}
	read := inheritance{got.value, got.asOf}
	o.remember(from, read)
	return read, nil
}

func (o *owners) read(ctx context.Context, kind workload, namespace string, owner *metav1.OwnerReference, revision string) ([]corev1.Toleration, error) {
	object := kind.empty()
	found, err := o.live.read(ctx, namespace, owner.Name, object)
	if err != nil || !found || object.GetUID() != owner.UID {
		return nil, err
	}
	var tolerations []corev1.Toleration
	if template := kind.template(object); template != nil {
		tolerations = template.Spec.Tolerations
	}
	set, ok := object.(*appsv1.StatefulSet)
	if !ok || revision == "" || revision != set.Status.CurrentRevision {
		return tolerations, nil
	}
	before, err := o.live.ofRevision(ctx, set)
	return slices.Concat(tolerations, before), err
}

func (o *owners) recall(from source, since time.Time) (inheritance, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept, ok := o.kept[from]
	return kept, ok && !kept.asOf.Before(since) && o.clock.Since(kept.asOf) < keepTemplates
}

func (o *owners) remember(from source, read inheritance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.kept) >= mostTemplates {
		// All are read again within seconds anyway: nothing is gained by sorting out
		// which of them to keep.
		clear(o.kept)
	}
	o.kept[from] = read
}

// decodeOwner returns the managing owner that an object names, or nil.
func decodeOwner(raw []byte) (*metav1.OwnerReference, error) {
	var metadata, references json.RawMessage
	err := errors.Join(
		findMembers(raw, member{"metadata", &metadata}),
		findMembers(metadata, member{"ownerReferences", &references}),
	)
	var owner *metav1.OwnerReference
	if err == nil {
		err = eachItem(references, func(reference []byte) error {
			var controller json.RawMessage
			if err := findMembers(reference, member{"controller", &controller}); err != nil {
				return err
			}
			switch string(controller) {
			case "true":
				var err error
				owner, err = decodeReference(reference)
				return err
			case "false", "null", "":
				return nil
			default:
				return errNotBoolean
			}
		})
	}
	if err != nil {
		return nil, &badReviewError{fmt.Errorf("decode metadata.ownerReferences: %w", err)}
	}
	return owner, nil
}

var errNotBoolean = errors.New("controller is neither true nor false")

func decodeReference(raw []byte) (*metav1.OwnerReference, error) {
	var apiVersion, kind, name, uid json.RawMessage
	err := findMembers(raw, member{"apiVersion", &apiVersion}, member{"kind", &kind}, member{"name", &name}, member{"uid", &uid})
	if err != nil {
		return nil, err
	}
	var owner metav1.OwnerReference
	err = errors.Join(
		decodeStringAt(apiVersion, "apiVersion", &owner.APIVersion), decodeStringAt(kind, "kind", &owner.Kind),
		decodeStringAt(name, "name", &owner.Name), decodeStringAt(uid, "uid", (*string)(&owner.UID)),
	)
	return &owner, err
}
