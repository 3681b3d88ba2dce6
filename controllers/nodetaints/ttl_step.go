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

	// maxRecheck bounds the delay until the next step, because the clocks of the API
	// server and of this machine may drift apart.
	maxRecheck = time.Hour

	kindPatch = "ResourceSlicePatch"
)

// step removes the expired taints of one node, rule or patch.
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
	expired, next := expiredOnNode(set, &node, c.options.Clock.Now())
	if len(expired) == 0 {
		return min(next, maxRecheck), nil
	}
	body, err := removeFromNode(&node, expired)
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
	for i := range expired {
		c.report(ctx, sourceNode, reference, &expired[i])
	}
	return min(next, maxRecheck), nil
}

func (c *TTLController) rule(ctx context.Context, current *policyset.Set, name string) (time.Duration, error) {
	rule, ok := c.options.Rules.Rule(name)
	if !ok || rule.Patch != (tracker.PatchRef{}) {
		return 0, nil // The rule of a patch is deleted with the taint of the patch.
	}
	expired, next := expiredOnRule(current.Taints, &rule, c.options.Clock.Now())
	if expired == nil {
		return min(next, maxRecheck), nil
	}
	paired, err := c.options.Deleter.Paired(ctx, current, &rule)
	if err != nil {
		return 0, fmt.Errorf("read rule %s: %w", name, err)
	}
	if paired {
		return maxRecheck, nil // Package devicetaints would recreate it, and deletes it when it is not needed.
	}
	err = c.options.Deleter.DeleteRule(ctx, &rule)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("delete rule %s: %w", name, err)
	}
	c.report(ctx, sourceRule, &corev1.ObjectReference{
		APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "DeviceTaintRule", Name: name, UID: rule.UID,
	}, expired)
	return 0, nil
}

func (c *TTLController) patch(ctx context.Context, set *taint.Set, name string) (time.Duration, error) {
	var patch v1alpha1.ResourceSlicePatch
	if err := c.options.Cache.Get(ctx, types.NamespacedName{Name: name}, &patch); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	expired, next := expiredOnPatch(set, &patch, c.options.Clock.Now())
	if len(expired) == 0 || patch.DeletionTimestamp != nil {
		return min(next, maxRecheck), nil
	}
	err := c.removeTaints(ctx, &patch, expired)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("remove taints of ResourceSlicePatch %s: %w", name, err)
	}
	reference := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindPatch, Name: name, UID: patch.UID}
	for i := range expired {
		c.report(ctx, sourcePatch, reference, &expired[i])
	}
	return min(next, maxRecheck), nil
}

// removeTaints removes taints from a patch, or deletes a patch that would be empty.
func (c *TTLController) removeTaints(ctx context.Context, patch *v1alpha1.ResourceSlicePatch, expired []expiredTaint) error {
	spec := &patch.Spec.Devices
	if len(expired) == len(spec.Taints) && len(spec.Attributes)+len(spec.Capacity) == 0 {
		return c.options.Patches.Delete(ctx, patch.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &patch.UID, ResourceVersion: &patch.ResourceVersion},
		})
	}
	body, err := removeFromPatch(patch, expired)
	if err != nil {
		return err
	}
	_, err = c.options.Patches.Patch(ctx, patch.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	return err
}

// report counts the removal and records it in an event and in the log.
func (c *TTLController) report(ctx context.Context, source string, reference *corev1.ObjectReference, e *expiredTaint) {
	c.options.Metrics.expired.WithLabelValues(source).Inc()
	c.options.Recorder.Eventf(reference, corev1.EventTypeNormal, "TaintExpired", "Removed, because the %s", e)
	logr.FromContextOrDiscard(ctx).Info("removed what its ttl was over of",
		"source", source, "name", reference.Name, "taint", e.taint.String(), "policy", e.policy, "ttl", e.ttl.String())
}
