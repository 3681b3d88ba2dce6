// Package off takes away what was written out for ResourceSlicePatches, where a feature gate says
// that they are not carried out: a gate that is off is as if there were no patches.
package off

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
	// rules since, in a rollout.
	pause = 5 * time.Minute
	// retryPause is between two looks after one that failed.
	retryPause = 10 * time.Second
	// atOnce is how many rules one request lists.
	atOnce = 500
)

// versions are those in which DeviceTaintRules may be served, the newest first.
var versions = []string{"v1", "v1beta2", "v1alpha3"}

// Remover removes the DeviceTaintRules that were written out for ResourceSlicePatches. Rules of
// others stay, whatever labels they have.
type Remover struct {
	// Client reads and deletes rules.
	Client dynamic.Interface
	// Local is this machine's clock.
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
			logr.FromContextOrDiscard(ctx).V(1).Info("cannot remove the rules of ResourceSlicePatches yet", "reason", err.Error())
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
	for _, version := range versions {
		err := r.remove(ctx, informer.RuleResource.WithVersion(version))
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return err
		}
	}
	return nil // They are not served in any version: there are none.
}

// remove removes the rules of a version of the API. Not found is that version.
func (r *Remover) remove(ctx context.Context, resource schema.GroupVersionResource) error {
	rules := r.Client.Resource(resource)
	options := metav1.ListOptions{LabelSelector: v1alpha1.LabelPatch, Limit: atOnce}
	for {
		list, err := rules.List(ctx, options)
		if err != nil {
			return fmt.Errorf("list DeviceTaintRules: %w", err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if patch := patchOf(object); patch.UID == "" {
				continue
			}
			uid, version := object.GetUID(), object.GetResourceVersion()
			err := rules.Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return fmt.Errorf("delete DeviceTaintRule %s: %w", object.GetName(), err)
			default:
				logr.FromContextOrDiscard(ctx).Info("removed the rule of a ResourceSlicePatch, because its feature gate is off", "rule", object.GetName())
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// patchOf returns the patch that a rule was written out for, zero for none.
func patchOf(object *unstructured.Unstructured) tracker.PatchRef {
	var rule resourcev1.DeviceTaintRule
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &rule); err != nil {
		return tracker.PatchRef{}
	}
	return tracker.PatchOf(&rule)
}
