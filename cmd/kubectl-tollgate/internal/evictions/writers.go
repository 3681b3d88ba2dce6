package evictions

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	for i := range list {
		for j := range list[i].Because {
			writers[list[i].Because[j].Taint.Author()] = ""
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
		resource, path = corev1.SchemeGroupVersion.WithResource("nodes"), []string{"spec", "taints"}
	case tracker.SourceRule:
		resource = schema.GroupVersionResource{Group: resourcev1.GroupName, Version: ruleVersion, Resource: "devicetaintrules"}
		path = []string{"spec", "taint"}
	case tracker.SourcePatch:
		resource, path = v1alpha1.GroupVersion.WithResource("resourceslicepatches"), []string{"spec", "devices", "taints"}
	case tracker.SourceSlice:
		resource, path = resourcev1.SchemeGroupVersion.WithResource("resourceslices"), []string{"spec", "devices"}
	}
	object, err := clients.Dynamic.Resource(resource).Get(ctx, source.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read %s %s: %w", resource.Resource, source.Name, err)
	}
	return manager(object.GetManagedFields(), path), nil
}

// manager returns the last manager of a field.
func manager(entries []metav1.ManagedFieldsEntry, path []string) string {
	var last *metav1.ManagedFieldsEntry
	for i := range entries {
		entry := &entries[i]
		if owns(entry.FieldsV1, path) && (last == nil || last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	if last == nil {
		return ""
	}
	return last.Manager
}

// owns reports whether a set of fields has the field at path, or a part of it.
func owns(fields *metav1.FieldsV1, path []string) bool {
	if fields == nil {
		return false
	}
	var at map[string]json.RawMessage
	raw := json.RawMessage(fields.GetRawBytes())
	for _, name := range path {
		at = nil
		if json.Unmarshal(raw, &at) != nil {
			return false
		}
		next, found := at["f:"+name]
		if !found {
			return false
		}
		raw = next
	}
	return true
}
