package main

import (
	"fmt"

	"k8s.io/client-go/dynamic"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/features"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/patchfeed"
	"github.com/tollgate-dev/tollgate/controllers/patches"
	"github.com/tollgate-dev/tollgate/controllers/ruleclient"
	"github.com/tollgate-dev/tollgate/tracker/merged"
)

// addPatches adds what knows the devices of ResourceSlicePatches on every replica, and on
// the leader what writes the rules for their taints and their status.
func (p *program) addPatches(known *followed) error {
	if !p.features.Enabled(features.ResourceSlicePatches) {
		return nil
	}
	feed := patchfeed.New(merged.New(), p.manager.GetCache(), p.local)
	if err := p.manager.Add(feed); err != nil {
		return fmt.Errorf("watch ResourceSlicePatches: %w", err)
	}
	client, err := dynamic.NewForConfig(p.connection)
	if err != nil {
		return fmt.Errorf("make a client for ResourceSlicePatches: %w", err)
	}
	options := patches.Options{
		View: feed.View(), ViewSynced: feed.Synced,
		Cache: p.manager.GetCache(), Reader: p.manager.GetClient(), Live: p.manager.GetAPIReader(), Status: patches.NewApplier(client),
		Shared: p.config.Eviction.Mode != configv1alpha1.EvictionReplace,
		Clock:  p.clock, Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
		Recorder: p.recorders.policies, Metrics: patches.NewMetrics(ctrlmetrics.Registry),
	}
	d := known.devices
	if d != nil {
		options.Known, options.KnownSynced = known.tracker, d.known.Load
		options.Rules = ruleclient.New(client, d.served, v1alpha1.LabelPatch, v1alpha1.AnnotationPatchEffect)
	}
	controller := patches.New(options)
	if d != nil {
		d.changed.join(controller.RuleChanged)
	}
	p.leading = append(p.leading, controller.Start)
	return nil
}
