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
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

const (
	// pause is between two looks. A replica with another configuration may have written
	// something since, in a rollout.
	pause = 5 * time.Minute
	// retryPause is between two looks after one that failed.
	retryPause = 10 * time.Second
	// atOnce is how many objects one request lists.
	atOnce = 500
)

// versions are those in which DeviceTaintRules may be served, the newest first.
var versions = []string{"v1", "v1beta2", "v1alpha3"}

// patches are ResourceSlicePatches.
var patches = v1alpha1.GroupVersion.WithResource("resourceslicepatches")

// Written are DeviceTaintRules that Tollgate wrote, all with a label.
type Written struct {
	Label string
	// Ours reports whether it was Tollgate that wrote a rule with the label, and not somebody
	// who gave it the label.
	Ours func(rule *resourcev1.DeviceTaintRule) bool
}

// OfPatches are the rules that were written out for the taints of ResourceSlicePatches.
func OfPatches() Written {
	return Written{Label: v1alpha1.LabelPatch, Ours: func(rule *resourcev1.DeviceTaintRule) bool { return tracker.PatchOf(rule).UID != "" }}
}

// Remover removes the DeviceTaintRules that were written for what is off, and says in the status of
// ResourceSlicePatches that they are. Rules of others stay, whatever labels they have.
type Remover struct {
	// Client reads patches, and reads and deletes rules.
	Client dynamic.Interface
	// Rules are what is removed.
	Rules []Written
	// Gate is the feature gate that is off for patches; empty if it is on. Then Status, which
	// writes the status of patches, is not used.
	Gate   string
	Status applier
	// Clock tells the time of the API server, Local that of this machine.
	Clock clock.PassiveClock
	Local clock.WithTicker
	// Leads reports whether this replica may write.
	Leads func() bool
	// Timeout bounds one look.
	Timeout time.Duration
}

// Start removes rules until ctx is done.
func (r *Remover) Start(ctx context.Context) error {
	for {
		again := pause
		if err := r.look(ctx); err != nil {
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

func (r *Remover) look(ctx context.Context) error {
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

// remove removes rules, in whatever version they are served.
func (r *Remover) remove(ctx context.Context, written Written) error {
	for _, version := range versions {
		resource := informer.RuleResource.WithVersion(version)
		err := r.each(ctx, resource, metav1.ListOptions{LabelSelector: written.Label}, func(object *unstructured.Unstructured) error {
			return r.delete(ctx, resource, object, written)
		})
		if !isNotServed(err) {
			return err
		}
	}
	return nil // They are not served in any version: there are none.
}

// delete deletes a rule, if it is as it was listed.
func (r *Remover) delete(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured, written Written) error {
	var rule resourcev1.DeviceTaintRule
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &rule); err != nil || !written.Ours(&rule) {
		return nil //nolint:nilerr // What cannot be read was not written here.
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := r.Client.Resource(resource).Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("delete DeviceTaintRule %s: %w", object.GetName(), err)
	}
	logr.FromContextOrDiscard(ctx).Info("removed a rule that was written for a feature that is off", "rule", object.GetName(), "label", written.Label)
	return nil
}

// disable says in the status of all patches that they have no effect.
func (r *Remover) disable(ctx context.Context) error {
	err := r.each(ctx, patches, metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		var patch v1alpha1.ResourceSlicePatch
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &patch); err != nil {
			return fmt.Errorf("decode ResourceSlicePatch %s: %w", object.GetName(), err)
		}
		wanted := metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: ReasonDisabled, ObservedGeneration: patch.Generation,
			Message:            "The feature gate " + r.Gate + " is off: the patch has no effect.",
			LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		}
		if stood := meta.FindStatusCondition(patch.Status.Conditions, wanted.Type); stood != nil && stood.Status == wanted.Status {
			if stood.Reason == wanted.Reason && stood.Message == wanted.Message && stood.ObservedGeneration == wanted.ObservedGeneration {
				return nil
			}
			wanted.LastTransitionTime = stood.LastTransitionTime
		}
		// Without times: a taint counts anew from when it is there again.
		status := &v1alpha1.ResourceSlicePatchStatus{ObservedGeneration: patch.Generation, Conditions: []metav1.Condition{wanted}}
		if err := r.Status.Apply(ctx, patch.Name, patch.UID, "", status); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write status of ResourceSlicePatch %s: %w", patch.Name, err)
		}
		return nil
	})
	if isNotServed(err) {
		return nil
	}
	return err
}

// isNotServed reports whether the API server does not have what was asked for.
func isNotServed(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// each does something with each object of a resource.
func (r *Remover) each(ctx context.Context, resource schema.GroupVersionResource, options metav1.ListOptions, do func(object *unstructured.Unstructured) error) error {
	options.Limit = atOnce
	for {
		list, err := r.Client.Resource(resource).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
