package evictions

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker"
)

// maxObjects is the maximum number of objects whose writers are read: each is a request.
const maxObjects = 50

// AddWriters sets the field managers that last wrote the taints of a list. Objects that the user
// may not get are skipped; if there are more than maxObjects, it sets none and returns a note.
func AddWriters(ctx context.Context, clients *cli.Clients, found *state.Cluster, list []Eviction) (note string, err error) {
	writers := map[tracker.Source]string{}
	for _, e := range list {
		for _, reason := range e.Because {
			writers[reason.Taint.Author()] = ""
		}
	}
	if len(writers) > maxObjects {
		return fmt.Sprintf("who wrote the taints is not said: they are of %d objects, and it is asked of %d at most. Narrow the list", len(writers), maxObjects), nil
	}
	for source := range writers {
		writer, err := writerOf(ctx, clients, source, found.RuleVersion)
		if err != nil {
			return "", err
		}
		writers[source] = writer
	}
	for i := range list {
		list[i].Writers = writers
	}
	return "", nil
}

// writerOf returns the last writer of the taints of an object; empty if unknown.
func writerOf(ctx context.Context, clients *cli.Clients, source tracker.Source, ruleVersion string) (string, error) {
	var resource schema.GroupVersionResource
	var path []string
	switch source.Kind {
	case tracker.SourceNode:
		resource, path = corev1.SchemeGroupVersion.WithResource("nodes"), []string{"f:spec", "f:taints"}
	case tracker.SourceRule:
		resource = schema.GroupVersionResource{Group: resourcev1.GroupName, Version: ruleVersion, Resource: "devicetaintrules"}
		path = []string{"f:spec", "f:taint"}
	case tracker.SourcePatch:
		resource, path = v1alpha1.GroupVersion.WithResource("resourceslicepatches"), []string{"f:spec", "f:devices", "f:taints"}
	case tracker.SourceSlice:
		resource, path = resourcev1.SchemeGroupVersion.WithResource("resourceslices"), []string{"f:spec", "f:devices"}
	}
	object, err := clients.Dynamic.Resource(resource).Get(ctx, source.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read %s %s: %w", resource.Resource, source.Name, err)
	}
	if last := LastWriter(object, path...); last != nil {
		return last.Manager, nil
	}
	return "", nil
}

// LastWriter returns the entry of the field manager that last wrote a field or a part of it, nil
// for none. The path has the names of managed fields, such as f:spec.
func LastWriter(object metav1.Object, path ...string) *metav1.ManagedFieldsEntry {
	var last *metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		var fields map[string]any
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, found, err := unstructured.NestedFieldNoCopy(fields, path...); found && err == nil && (last == nil || last.Time.Before(entry.Time)) {
			last = &entry
		}
	}
	return last
}
