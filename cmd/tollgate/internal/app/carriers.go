package app

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"

	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// errRulesNotServed is an error of the API, not NotFound of one rule.
var errRulesNotServed = errors.New("the API server does not serve DeviceTaintRules")

// carriers reads the current objects that taint devices.
type carriers struct {
	slices resourcev1client.ResourceSliceInterface
	rules  dynamic.Interface
	// served returns the resource of rules; false while they are not served.
	served func() (schema.GroupVersionResource, bool)
	// window is true in mode Window.
	window bool
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

// Paired reports whether a DeviceTaintRule is the NoSchedule twin of a taint that needs one.
func (c *carriers) Paired(ctx context.Context, current *policyset.Set, rule *tracker.Rule) (bool, error) {
	if rule.Taint.Effect != resourcev1.DeviceTaintEffectNoSchedule {
		return false, nil
	}
	resource, ok := c.served()
	if !ok {
		return false, errRulesNotServed
	}
	object, err := c.rules.Resource(resource).Get(ctx, rule.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var twin resourcev1.DeviceTaintRule
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &twin); err != nil {
		return false, fmt.Errorf("read DeviceTaintRule %s: %w", rule.Name, err)
	}
	owner, ok := devicetaints.OwnerOf(&twin)
	if !ok {
		return false, nil
	}
	needs := devicetaints.NeedsOf(current, c.window)
	var needed bool
	if owner.Kind == devicetaints.KindRule {
		var carrier tracker.Rule
		carrier, err = c.ReadRule(ctx, owner.Name)
		needed = err == nil && devicetaints.NeededByRule(needs, &twin, &carrier)
	} else {
		var carrier tracker.Slice
		carrier, err = c.ReadSlice(ctx, owner.Name)
		needed = err == nil && devicetaints.NeededBySlice(needs, &twin, &carrier)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read %s %s: %w", owner.Kind, owner.Name, err)
	}
	return needed, nil
}

// DeleteRule deletes a DeviceTaintRule if its UID and resource version are unchanged.
func (c *carriers) DeleteRule(ctx context.Context, rule *tracker.Rule) error {
	resource, ok := c.served()
	if !ok {
		return errRulesNotServed
	}
	return c.rules.Resource(resource).Delete(ctx, rule.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &rule.UID, ResourceVersion: &rule.ResourceVersion},
	})
}
