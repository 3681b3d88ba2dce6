package slicepatches

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

const (
	// pause is the delay between two passes. During a rollout, a replica with another
	// configuration may have written rules since.
	pause = 5 * time.Minute
	// retryPause is the delay after a failed pass.
	retryPause = 10 * time.Second
)

// patches is the resource of ResourceSlicePatches.
var patches = v1alpha1.GroupVersion.WithResource("resourceslicepatches")

// Written selects DeviceTaintRules that Tollgate wrote, all with a label.
type Written struct {
	Label string
	// Ours reports whether Tollgate wrote a rule with the label; other writers can set the
	// label too.
	Ours func(rule *resourcev1.DeviceTaintRule) bool
}

// OfPatches selects the rules for the taints of ResourceSlicePatches.
func OfPatches() Written {
	return Written{Label: v1alpha1.LabelPatch, Ours: func(rule *resourcev1.DeviceTaintRule) bool { return tracker.PatchOf(rule).UID != "" }}
}

// Remover deletes the DeviceTaintRules of disabled features, and sets the status of
// ResourceSlicePatches. Rules of other writers stay, whatever their labels.
type Remover struct {
	// Base writes the status of patches. Its timeout bounds one pass.
	controller.Base

	// Client reads patches, and reads and deletes rules.
	Client dynamic.Interface
	// Rules selects the rules to delete.
	Rules []Written
	// Gate is the disabled feature gate of patches; empty if it is on. Then no status is
	// written.
	Gate string
}

// Start deletes rules until ctx is done.
func (r *Remover) Start(ctx context.Context) error {
	for {
		again := pause
		if err := r.pass(ctx); err != nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("cannot take away yet what was written for a feature that is off", "reason", err.Error())
			again = retryPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Local.After(again):
		}
	}
}

func (r *Remover) pass(ctx context.Context) error {
	if !r.Leads() {
		return errors.New("the lease was not renewed in time")
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var errs []error
	for _, written := range r.Rules {
		errs = append(errs, r.remove(ctx, written))
	}
	if r.Gate != "" {
		errs = append(errs, r.disable(ctx))
	}
	return errors.Join(errs...)
}

// remove deletes rules in the newest version that the API server serves.
func (r *Remover) remove(ctx context.Context, written Written) error {
	for _, version := range devicetaints.RuleVersions {
		resource := informer.RuleResource.WithVersion(version)
		rules := devicetaints.NewRuleClient(r.Client, func() (schema.GroupVersionResource, bool) { return resource, true })
		err := r.forEach(ctx, resource, metav1.ListOptions{LabelSelector: written.Label}, func(object *unstructured.Unstructured) error {
			var rule resourcev1.DeviceTaintRule
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &rule); err != nil || !written.Ours(&rule) {
				return nil //nolint:nilerr // Tollgate wrote no rule that it cannot decode.
			}
			if err := rules.Delete(ctx, &rule); err != nil {
				return client.IgnoreNotFound(fmt.Errorf("delete DeviceTaintRule %s: %w", rule.Name, err))
			}
			logr.FromContextOrDiscard(ctx).Info("removed a rule that was written for a feature that is off", "rule", rule.Name, "label", written.Label)
			return nil
		})
		if !isNotServed(err) {
			return err
		}
	}
	return nil // No version is served, so no rule exists.
}

// disable sets the condition Ready of all patches to False.
func (r *Remover) disable(ctx context.Context) error {
	err := r.forEach(ctx, patches, metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		var patch v1alpha1.ResourceSlicePatch
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &patch); err != nil {
			return fmt.Errorf("decode ResourceSlicePatch %s: %w", object.GetName(), err)
		}
		conditions := withOwnReady(&patch.Status).Conditions
		if !meta.SetStatusCondition(&conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: ReasonDisabled, ObservedGeneration: patch.Generation,
			Message: "The feature gate " + r.Gate + " is off: the patch has no effect.", LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		}) {
			return nil
		}
		// The status has no times: a taint counts from when the gate is on again.
		status := &v1alpha1.ResourceSlicePatchStatus{ObservedGeneration: patch.Generation, Conditions: conditions}
		return client.IgnoreNotFound(applyStatus(ctx, &r.Base, &patch, "", status))
	})
	if isNotServed(err) {
		return nil
	}
	return err
}

// isNotServed reports whether the API server does not serve the resource.
func isNotServed(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// forEach calls do for each object of a resource, page by page.
func (r *Remover) forEach(ctx context.Context, resource schema.GroupVersionResource, options metav1.ListOptions, do func(object *unstructured.Unstructured) error) error {
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := r.Client.Resource(resource).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		return page, nil
	})
	return list.EachListItem(ctx, options, func(object runtime.Object) error { return do(object.(*unstructured.Unstructured)) }) //nolint:forcetypeassert // A dynamic client returns nothing else.
}
