package main

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// errRulesNotServed is not an answer about any one rule, least of all that it does
// not exist.
var errRulesNotServed = errors.New("the API server does not serve DeviceTaintRules")

// carriers reads the objects that taint devices as they are now.
type carriers struct {
	slices resourcev1client.ResourceSliceInterface
	rules  dynamic.Interface
	// served returns how rules are called; false while they are not served.
	served func() (schema.GroupVersionResource, bool)
}

// ReadSlice reads a ResourceSlice.
func (c *carriers) ReadSlice(ctx context.Context, name string) (tracker.Slice, error) {
	slice, err := c.slices.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return tracker.Slice{}, err
	}
	return tracker.SliceOf(slice), nil
}

// ReadRule reads a DeviceTaintRule.
func (c *carriers) ReadRule(ctx context.Context, name string) (tracker.Rule, error) {
	resource, ok := c.served()
	if !ok {
		return tracker.Rule{}, errRulesNotServed
	}
	rule, err := c.rules.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return tracker.Rule{}, err
	}
	return informer.RuleOf(rule)
}
