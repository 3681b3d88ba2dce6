package nodetaints

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (

	// longest bounds how long it is believed that the time of the API server goes on
	// as it does here.
	longest = time.Hour

	kindPatch = "ResourceSlicePatch"
)

// step looks at one node, rule or patch.
func (c *TTLController) step(ctx context.Context, k key) (time.Duration, error) {
	current := c.options.Policies.Current()
	if current == nil {
		return policiesPause, nil
	}
	switch k.source {
	case sourceRule:
		return c.rule(ctx, current, k.name)
	case sourcePatch:
		return c.patch(ctx, current.Taints, k.name)
	default:
		return c.node(ctx, current.Taints, k.name)
	}
}

func (c *TTLController) node(ctx context.Context, set *taint.Set, name string) (time.Duration, error) {
	var node corev1.Node
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: name}, &node); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	over, next := onNode(set, &node, c.options.Clock.Now())
	if len(over) == 0 {
		return min(next, longest), nil
	}
	body, err := removal(&node, over)
	if err != nil {
		return 0, err
	}
	_, err = c.options.Nodes.Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("remove taints of node %s: %w", name, err)
	}
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}
	for i := range over {
		c.told(ctx, sourceNode, reference, &over[i])
	}
	return min(next, longest), nil
}

func (c *TTLController) rule(ctx context.Context, current *policyset.Set, name string) (time.Duration, error) {
	rule, ok := c.options.Rules.Rule(name)
	if !ok || rule.Patch != (tracker.PatchRef{}) {
		return 0, nil // What is written out for a patch goes with the taint of the patch.
	}
	over, next := onRule(current.Taints, &rule, c.options.Clock.Now())
	if over == nil {
		return min(next, longest), nil
	}
	paired, err := c.options.Deleter.Paired(ctx, current, &rule)
	if err != nil {
		return 0, fmt.Errorf("read rule %s: %w", name, err)
	}
	if paired {
		return longest, nil // It would be made again at once, and goes when it is not needed.
	}
	err = c.options.Deleter.DeleteRule(ctx, &rule)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("delete rule %s: %w", name, err)
	}
	c.told(ctx, sourceRule, &corev1.ObjectReference{
		APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "DeviceTaintRule", Name: name, UID: rule.UID,
	}, over)
	return 0, nil
}

func (c *TTLController) patch(ctx context.Context, set *taint.Set, name string) (time.Duration, error) {
	var patch v1alpha1.ResourceSlicePatch
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: name}, &patch); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	over, next := onPatch(set, &patch, c.options.Clock.Now())
	if len(over) == 0 || patch.DeletionTimestamp != nil {
		return min(next, longest), nil
	}
	err := c.takeAway(ctx, &patch, over)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("remove taints of ResourceSlicePatch %s: %w", name, err)
	}
	reference := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindPatch, Name: name, UID: patch.UID}
	for i := range over {
		c.told(ctx, sourcePatch, reference, &over[i])
	}
	return min(next, longest), nil
}

// takeAway takes taints away from a patch, or the patch, if nothing is left of it.
func (c *TTLController) takeAway(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, over []expired) error {
	spec := &patch.Spec.Devices
	if len(over) == len(spec.Taints) && len(spec.Attributes)+len(spec.Capacity) == 0 {
		return c.options.Patches.Delete(ctx, patch.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &patch.UID, ResourceVersion: &patch.ResourceVersion},
		})
	}
	body, err := removalOfPatch(patch, over)
	if err != nil {
		return err
	}
	_, err = c.options.Patches.Patch(ctx, patch.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	return err
}

// told says what was removed.
func (c *TTLController) told(ctx context.Context, source string, reference *corev1.ObjectReference, e *expired) {
	c.options.Metrics.expired.WithLabelValues(source).Inc()
	c.options.Recorder.Eventf(reference, corev1.EventTypeNormal, "TaintExpired", "Removed, because the %s", e)
	logr.FromContextOrDiscard(ctx).Info("removed what its ttl was over of",
		"source", source, "name", reference.Name, "taint", e.taint.String(), "policy", e.by, "ttl", e.ttl.String())
}
