package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// ErrNotServed is returned while the API server serves no DeviceTaintRules.
var ErrNotServed = errors.New("the API server does not serve DeviceTaintRules")

// BuildRule returns the desired rule in an API version such as resource.k8s.io/v1.
type BuildRule func(version string) *resourcev1.DeviceTaintRule

// RuleClient writes DeviceTaintRules. It is goroutine-safe.
type RuleClient struct {
	client dynamic.Interface
	served func() (schema.GroupVersionResource, bool)
	marks  []string
}

// NewRuleClient returns a client. At each call it asks served for the resource of rules;
// false means that the API server serves none. marks are the labels and annotations that
// the client may remove from rules; all others stay.
func NewRuleClient(client dynamic.Interface, served func() (schema.GroupVersionResource, bool), marks ...string) *RuleClient {
	return &RuleClient{client: client, served: served, marks: marks}
}

// Get reads a rule from the API server.
func (c *RuleClient) Get(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error) {
	resource, ok := c.served()
	if !ok {
		return nil, ErrNotServed
	}
	object, err := c.client.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var rule resourcev1.DeviceTaintRule
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &rule); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return &rule, nil
}

// Create creates a rule.
func (c *RuleClient) Create(ctx context.Context, build BuildRule) error {
	resource, ok := c.served()
	if !ok {
		return ErrNotServed
	}
	object, err := encode(build(resource.GroupVersion().String()))
	if err != nil {
		return err
	}
	_, err = c.client.Resource(resource).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// Update sets the spec, the owner references and the marks of a rule to those of the built
// rule. It returns a conflict error if the rule changed after it was read.
func (c *RuleClient) Update(ctx context.Context, stored *resourcev1.DeviceTaintRule, build BuildRule) error {
	resource, ok := c.served()
	if !ok {
		return ErrNotServed
	}
	object, err := encode(build(resource.GroupVersion().String()))
	if err != nil {
		return err
	}
	// The patch writes resourceVersion instead of testing it: the API server answers a
	// failed test with 422 Invalid, and a wrong resourceVersion with a conflict. A rule
	// that was recreated under the same name has another resourceVersion too.
	operations := []map[string]any{{"op": "replace", "path": "/metadata/resourceVersion", "value": stored.ResourceVersion}}
	for path, both := range map[string][2]map[string]string{
		"/metadata/labels":      {stored.Labels, object.GetLabels()},
		"/metadata/annotations": {stored.Annotations, object.GetAnnotations()},
	} {
		if merged := c.mark(both[0], both[1]); !maps.Equal(merged, both[0]) {
			operations = append(operations, map[string]any{"op": "add", "path": path, "value": merged})
		}
	}
	operations = append(operations,
		map[string]any{"op": "add", "path": "/metadata/ownerReferences", "value": object.GetOwnerReferences()},
		map[string]any{"op": "replace", "path": "/spec", "value": object.Object["spec"]},
	)
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = c.client.Resource(resource).Patch(ctx, stored.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// mark returns the stored labels or annotations with the wanted ones added and unwanted
// marks removed.
func (c *RuleClient) mark(stored, wanted map[string]string) map[string]string {
	merged := maps.Clone(stored)
	if merged == nil {
		merged = map[string]string{}
	}
	for _, mark := range c.marks {
		delete(merged, mark)
	}
	maps.Copy(merged, wanted)
	return merged
}

// Delete deletes a rule. It returns a conflict error if the rule changed after it was
// read.
func (c *RuleClient) Delete(ctx context.Context, stored *resourcev1.DeviceTaintRule) error {
	resource, ok := c.served()
	if !ok {
		return ErrNotServed
	}
	return c.client.Resource(resource).Delete(ctx, stored.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion},
	})
}

func encode(rule *resourcev1.DeviceTaintRule) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rule)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}
