package pairing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

var errNotServed = errors.New("the API server does not serve DeviceTaintRules")

// rules writes DeviceTaintRules. build returns the rule in a version of the API.
type rules interface {
	Get(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error)
	Create(ctx context.Context, build func(version string) *resourcev1.DeviceTaintRule) error
	Update(ctx context.Context, stored *resourcev1.DeviceTaintRule, build func(version string) *resourcev1.DeviceTaintRule) error
	Delete(ctx context.Context, stored *resourcev1.DeviceTaintRule) error
}

// Client writes DeviceTaintRules in whatever version they are served.
type Client struct {
	client dynamic.Interface
	served func() (schema.GroupVersionResource, bool)
}

// NewClient returns a client. It asks served at each call how rules are called; false
// while they are not served.
func NewClient(client dynamic.Interface, served func() (schema.GroupVersionResource, bool)) *Client {
	return &Client{client: client, served: served}
}

// Get implements rules.
func (c *Client) Get(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error) {
	resource, ok := c.served()
	if !ok {
		return nil, errNotServed
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

// Create implements rules.
func (c *Client) Create(ctx context.Context, build func(version string) *resourcev1.DeviceTaintRule) error {
	resource, ok := c.served()
	if !ok {
		return errNotServed
	}
	object, err := encode(build(resource.GroupVersion().String()))
	if err != nil {
		return err
	}
	_, err = c.client.Resource(resource).Create(ctx, object, metav1.CreateOptions{})
	return err
}

// Update implements rules: the spec, the owner and our label become those of the rule
// that is built. What was written since fails it.
func (c *Client) Update(ctx context.Context, stored *resourcev1.DeviceTaintRule, build func(version string) *resourcev1.DeviceTaintRule) error {
	resource, ok := c.served()
	if !ok {
		return errNotServed
	}
	object, err := encode(build(resource.GroupVersion().String()))
	if err != nil {
		return err
	}
	label := map[string]any{"op": "add", "path": "/metadata/labels/" + strings.ReplaceAll(Label, "/", "~1"), "value": object.GetLabels()[Label]}
	if len(stored.Labels) == 0 {
		label = map[string]any{"op": "add", "path": "/metadata/labels", "value": object.GetLabels()}
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": stored.UID},
		{"op": "test", "path": "/metadata/resourceVersion", "value": stored.ResourceVersion},
		label,
		{"op": "add", "path": "/metadata/ownerReferences", "value": object.GetOwnerReferences()},
		{"op": "replace", "path": "/spec", "value": object.Object["spec"]},
	})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = c.client.Resource(resource).Patch(ctx, stored.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// Delete implements rules. What was written since fails it.
func (c *Client) Delete(ctx context.Context, stored *resourcev1.DeviceTaintRule) error {
	resource, ok := c.served()
	if !ok {
		return errNotServed
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
