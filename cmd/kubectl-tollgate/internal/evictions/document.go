package evictions

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
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
	if !e.Hold.None() {
		it.Hold = &held{
			Reason: e.Hold.Reason.Condition(), By: e.Hold.By, Message: e.Hold.Why, Since: cli.TimeOrNone(e.Hold.Since), Until: cli.TimeOrNone(e.Hold.Until),
		}
	}
	for _, reason := range e.Because {
		t := taint{
			Key: reason.Taint.Key, Value: reason.Taint.Value, Effect: string(reason.Taint.Effect), TimeAdded: metav1.NewTime(reason.Taint.TimeAdded),
			Due: metav1.NewTime(reason.At), Tolerated: reason.Tolerated, WrittenBy: e.Writers[reason.Taint.Author()],
			Source: reason.Taint.Source.Kind.Object() + "/" + reason.Taint.Source.Name,
		}
		if author := reason.Taint.Author(); author != reason.Taint.Source {
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
	return cli.WriteDocument(w, output, "    ", document)
}

// WriteChanges writes one line of JSON for each change.
func WriteChanges(w io.Writer, changed []Eviction, now time.Time) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for _, e := range changed {
		if err := encoder.Encode(struct {
			item

			Time string `json:"time"`
		}{itemOf(&e), now.UTC().Format(time.RFC3339)}); err != nil {
			return fmt.Errorf("write changes: %w", err)
		}
	}
	return nil
}
