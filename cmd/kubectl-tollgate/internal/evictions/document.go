package evictions

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// list is the root of a document. It is no API object.
type list struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Time       metav1.Time `json:"time"`
	Items      []item      `json:"items"`
}

type item struct {
	Namespace string      `json:"namespace"`
	Pod       string      `json:"pod"`
	UID       string      `json:"uid"`
	Node      string      `json:"node"`
	State     State       `json:"state"`
	Due       metav1.Time `json:"due"`
	// EvictedBy is Tollgate or Kubernetes.
	EvictedBy      string `json:"evictedBy"`
	EvictionPolicy string `json:"evictionPolicy,omitempty"`
	// DisruptionTarget is the reason of the pod's condition.
	DisruptionTarget string  `json:"disruptionTarget,omitempty"`
	Hold             *held   `json:"hold,omitempty"`
	Taints           []taint `json:"taints"`
	// AccordingTo is the source of the state.
	AccordingTo string `json:"accordingTo"`
}

type held struct {
	Reason  string       `json:"reason"`
	By      string       `json:"by,omitempty"`
	Message string       `json:"message"`
	Since   *metav1.Time `json:"since,omitempty"`
	Until   *metav1.Time `json:"until,omitempty"`
}

type taint struct {
	Key       string      `json:"key"`
	Value     string      `json:"value,omitempty"`
	Effect    string      `json:"effect"`
	TimeAdded metav1.Time `json:"timeAdded"`
	Due       metav1.Time `json:"due"`
	Tolerated bool        `json:"tolerated"`
	// Source is the object with the taint, and WrittenFor the patch that it was generated for.
	Source     string `json:"source"`
	WrittenFor string `json:"writtenFor,omitempty"`
	// WrittenBy is the field manager that wrote it last.
	WrittenBy string `json:"writtenBy,omitempty"`
	Device    string `json:"device,omitempty"`
	Claim     string `json:"claim,omitempty"`
}

func itemOf(e *Eviction) item {
	it := item{
		Namespace: e.Namespace, Pod: e.Name, UID: string(e.UID), Node: e.Node, State: e.State, Due: metav1.NewTime(e.At),
		EvictedBy: e.By, EvictionPolicy: e.Policy, DisruptionTarget: e.Disruption, AccordingTo: according(e),
	}
	if hold := &e.Hold; !hold.None() {
		it.Hold = &held{
			Reason: hold.Reason.Condition(), By: hold.By, Message: hold.Why, Since: cli.TimeOrNone(hold.Since), Until: cli.TimeOrNone(hold.Until),
		}
	}
	for _, reason := range e.Because {
		of, source, author := &reason.Taint, reason.Taint.Source, reason.Taint.Author()
		t := taint{
			Key: of.Key, Value: of.Value, Effect: string(of.Effect), TimeAdded: metav1.NewTime(of.TimeAdded), Due: metav1.NewTime(reason.At),
			Tolerated: reason.Tolerated, Source: source.Kind.Object() + "/" + source.Name, WrittenBy: e.Writers[author],
		}
		if author != source {
			t.WrittenFor = author.Kind.Object() + "/" + author.Name
		}
		if reason.Device.Name != "" {
			t.Device, t.Claim = reason.Device.String(), reason.Claim.Name
		}
		it.Taints = append(it.Taints, t)
	}
	return it
}

// WriteDocument writes all fields of each pod, with absolute times, as yaml or json.
func WriteDocument(w io.Writer, output string, evictions []Eviction, now time.Time) error {
	document := list{APIVersion: "cli.tollgate.dev/v1alpha1", Kind: "EvictionList", Time: metav1.NewTime(now), Items: []item{}}
	for _, e := range evictions {
		document.Items = append(document.Items, itemOf(&e))
	}
	return cli.Print(w, output, document)
}

// changeDocuments returns a function that writes one line of JSON for each change.
func changeDocuments(out io.Writer) changeWriter {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return func(changed []Eviction, now time.Time) error {
		for _, e := range changed {
			if err := encoder.Encode(struct {
				item

				Time string `json:"time"`
			}{itemOf(&e), stamp(now)}); err != nil {
				return fmt.Errorf("write changes: %w", err)
			}
		}
		return nil
	}
}

// maxObjects is the maximum number of objects whose writers are read: each is a request.
const maxObjects = 50

// AddWriters sets the field managers that last wrote the taints of a list. Objects that the user
// may not get are skipped; if there are more than maxObjects, it sets none and notes that.
func AddWriters(ctx context.Context, clients *cli.Clients, found *state.Cluster, list []Eviction) error {
	writers := map[tracker.Source]string{}
	for _, e := range list {
		for _, reason := range e.Because {
			writers[reason.Taint.Author()] = ""
		}
	}
	if len(writers) > maxObjects {
		found.Note(fmt.Sprintf("who wrote the taints is not said: they are of %d objects, and it is asked of %d at most. Narrow the list", len(writers), maxObjects))
		return nil
	}
	for source := range writers {
		resource, version, path := state.NodeResource, "v1", []string{"f:spec", "f:taints"}
		switch source.Kind {
		case tracker.SourceNode:
		case tracker.SourceRule:
			resource, version, path = informer.RuleResource, found.RuleVersion, []string{"f:spec", "f:taint"}
		case tracker.SourcePatch:
			resource, version, path = state.PatchResource, v1alpha1.GroupVersion.Version, []string{"f:spec", "f:devices", "f:taints"}
		case tracker.SourceSlice:
			resource, path = state.SliceResource, []string{"f:spec", "f:devices"}
		}
		object, err := clients.Dynamic.Resource(resource.WithVersion(version)).Get(ctx, source.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			continue
		case err != nil:
			return fmt.Errorf("read %s %s: %w", resource.Resource, source.Name, err)
		}
		if last := LastWriter(object, path...); last != nil {
			writers[source] = last.Manager
		}
	}
	for i := range list {
		list[i].Writers = writers
	}
	return nil
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
		if _, found, _ := unstructured.NestedFieldNoCopy(fields, path...); found && (last == nil || last.Time.Before(entry.Time)) {
			last = &entry
		}
	}
	return last
}
