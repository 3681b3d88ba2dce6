package devicetaints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"gomodules.xyz/jsonpatch/v2"
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

// The operations of writes of rules, as metrics and errors name them.
const (
	OperationCreate = "create"
	OperationUpdate = "update"
	OperationDelete = "delete"
)

// RuleVersions are the API versions of DeviceTaintRules, the newest first.
var RuleVersions = []string{"v1", "v1beta2", "v1alpha3"}

// BuildRule returns the desired rule in an API version such as resource.k8s.io/v1.
type BuildRule func(version string) *resourcev1.DeviceTaintRule

// Rules reads and writes DeviceTaintRules; RuleClient implements it.
type Rules interface {
	Get(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error)
	Create(ctx context.Context, build BuildRule) error
	Update(ctx context.Context, stored *resourcev1.DeviceTaintRule, build BuildRule) error
	Delete(ctx context.Context, stored *resourcev1.DeviceTaintRule) error
}

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

// resource returns the client of the served version, and the rule in that version, without
// status; nil if build is nil.
func (c *RuleClient) resource(build BuildRule) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	resource, ok := c.served()
	if !ok {
		return nil, nil, ErrNotServed
	}
	if build == nil {
		return c.client.Resource(resource), nil, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(build(resource.GroupVersion().String()))
	if err != nil {
		return nil, nil, fmt.Errorf("encode: %w", err)
	}
	delete(content, "status")
	return c.client.Resource(resource), &unstructured.Unstructured{Object: content}, nil
}

// Get reads a rule from the API server.
func (c *RuleClient) Get(ctx context.Context, name string) (*resourcev1.DeviceTaintRule, error) {
	api, _, err := c.resource(nil)
	if err != nil {
		return nil, err
	}
	object, err := api.Get(ctx, name, metav1.GetOptions{})
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
	api, object, err := c.resource(build)
	if err != nil {
		return err
	}
	_, err = api.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// Update sets the spec, the owner references and the marks of a rule to those of the built
// rule. It returns a conflict error if the rule changed after it was read.
func (c *RuleClient) Update(ctx context.Context, stored *resourcev1.DeviceTaintRule, build BuildRule) error {
	api, object, err := c.resource(build)
	if err != nil {
		return err
	}
	// The patch writes resourceVersion instead of testing it: the API server answers a
	// failed test with 422 Invalid, and a wrong resourceVersion with a conflict. A rule
	// that was recreated under the same name has another resourceVersion too.
	operations := []jsonpatch.Operation{jsonpatch.NewOperation("replace", "/metadata/resourceVersion", stored.ResourceVersion)}
	for path, both := range map[string][2]map[string]string{
		"/metadata/labels":      {stored.Labels, object.GetLabels()},
		"/metadata/annotations": {stored.Annotations, object.GetAnnotations()},
	} {
		merged := map[string]string{}
		maps.Copy(merged, both[0])
		for _, mark := range c.marks {
			delete(merged, mark)
		}
		maps.Copy(merged, both[1])
		if !maps.Equal(merged, both[0]) {
			operations = append(operations, jsonpatch.NewOperation("add", path, merged))
		}
	}
	body, err := json.Marshal(append(operations,
		jsonpatch.NewOperation("add", "/metadata/ownerReferences", object.GetOwnerReferences()),
		jsonpatch.NewOperation("replace", "/spec", object.Object["spec"])))
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = api.Patch(ctx, stored.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	return err
}

// Delete deletes a rule. It returns a conflict error if the rule changed after it was
// read.
func (c *RuleClient) Delete(ctx context.Context, stored *resourcev1.DeviceTaintRule) error {
	api, _, err := c.resource(nil)
	if err != nil {
		return err
	}
	return api.Delete(ctx, stored.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion},
	})
}
