package app

import (
	"context"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	apidiscovery "github.com/tollgate-dev/tollgate/cmd/tollgate/internal/discovery"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/rulestatus"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// The resources of devices that are watched or discovered, besides informer.RuleResource.
var (
	claimResource    = schema.GroupResource{Group: informer.RuleResource.Group, Resource: "resourceclaims"}
	podGroupResource = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
	// ruleStatus is served with rules, except in v1alpha3 of Kubernetes 1.34 and before (VS-03).
	ruleStatus = schema.GroupResource{Group: informer.RuleResource.Group, Resource: informer.RuleResource.Resource + "/status"}
)

// deviceWatch is the part of the evictor for device taints. Some fields are set after the options
// that refer to them.
type deviceWatch struct {
	rules  dynamic.Interface
	keeper *apidiscovery.Keeper
	status *rulestatus.Controller
	// statusOptions are the options of status, and patches has those of patches.
	statusOptions rulestatus.Options
	patches       *patchStatus
	// ruleListeners has the handlers of rule changes.
	ruleListeners listeners
	// synced is true while the tracker has all devices, claims and rules.
	synced atomic.Bool
	// withoutRules turns DeviceTaintRules off.
	withoutRules bool
}

// configure sets the options of the evictor for devices.
func (d *deviceWatch) configure(p *program, options *evictor.Options) {
	d.rules = p.dynamic
	options.Carriers = &carriers{slices: p.clientset.ResourceV1().ResourceSlices(), rules: d.rules, served: d.served}
	options.RulesChanged = func(names []string) { d.status.RulesChanged(names) }
	d.patches = &patchStatus{}
	options.PatchesChanged = d.patches.changed
}

// served returns the resource of DeviceTaintRules; false while they are not served.
func (d *deviceWatch) served() (schema.GroupVersionResource, bool) {
	version := d.keeper.Version(informer.RuleResource)
	return informer.RuleResource.WithVersion(version), version != ""
}

// writable returns the resource of DeviceTaintRules that have a status; false for none.
func (d *deviceWatch) writable() (schema.GroupVersionResource, bool) {
	version := d.keeper.Version(ruleStatus)
	return informer.RuleResource.WithVersion(version), version != ""
}

// claimsSynced reports whether all claims are cached, and whether it is clear if PodGroups are
// served, so that a pod without a device in the tracker uses none.
func (d *deviceWatch) claimsSynced() bool {
	return d.synced.Load() && d.keeper.Watched(claimResource) && d.keeper.Answered(podGroupResource)
}

// setSynced records whether all served and permitted resources are listed, and calls notify.
// Synced is cleared before notify and set after it.
func (d *deviceWatch) setSynced(synced bool, notify func(synced bool)) {
	if !synced {
		d.synced.Store(false)
	}
	notify(synced)
	if synced {
		d.synced.Store(true)
	}
}

// add adds the watches of devices on every replica, and returns the status controller of rules,
// which the leader runs.
func (d *deviceWatch) add(p *program, options evictor.Options, runner *evictor.Evictor, guard *informer.Guard) (*rulestatus.Controller, error) {
	d.patches.list = rulestatus.NewPatches(options.Tracker, runner.Forget)
	d.statusOptions = rulestatus.Options{
		Tracker: options.Tracker,
		Synced:  func() bool { return options.Synced() && d.claimsSynced() },
		Leads:   p.leads,
		Applier: rulestatus.NewApplier(d.rules, d.writable),
		Clock:   p.clock,
		Local:   p.local,
		Decide: func(situation tracker.Situation) bool {
			return options.Rules.Decide(p.clock.Now(), situation).Verdict == evictor.EvictAt
		},
		Evicted:        runner.EvictedBy,
		Forget:         runner.Forget,
		Unanswered:     runner.Unanswered,
		Held:           runner.HeldFor,
		HeldOnly:       options.Mode == evictor.ModeWindow,
		PodsChanged:    runner.PodsChanged,
		Metrics:        rulestatus.NewMetrics(ctrlmetrics.Registry),
		AttemptTimeout: options.AttemptTimeout,
	}
	var err error
	d.status, err = rulestatus.New(d.statusOptions)
	if err != nil {
		return nil, fmt.Errorf("write the status of DeviceTaintRules: %w", err)
	}
	feed := informer.NewDeviceFeed(options.Tracker, deviceListener{runner, d.status, &d.ruleListeners}, p.clock)
	d.keeper = apidiscovery.New(apidiscovery.Options{
		Discovery: discovery.ToServerResourcesInterfaceWithContext(p.clientset.Discovery()),
		Clock:     p.local,
		Resources: d.resources(p, feed, informer.Guarded(guard)),
		Known:     func(synced bool) { d.setSynced(synced, feed.SetKnown) },
		Metrics:   apidiscovery.NewMetrics(ctrlmetrics.Registry),
	})
	if err := p.manager.Add(d.keeper); err != nil {
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	ctrlmetrics.Registry.MustRegister(NewCollector(options.Tracker))
	return d.status, nil
}

// resources returns the resources of devices to watch where they are served (VS-01, VS-02,
// VS-08).
func (d *deviceWatch) resources(p *program, feed *informer.DeviceFeed, guarded informer.Option) []apidiscovery.Resource {
	slices, claims := p.clientset.ResourceV1().ResourceSlices(), p.clientset.ResourceV1().ResourceClaims(metav1.NamespaceAll)
	found := []apidiscovery.Resource{
		{
			Name:     podGroupResource,
			Versions: []string{"v1", "v1beta1", "v1alpha3", "v1alpha2"},
			Without:  "what is reserved for PodGroups counts for no pod",
			Served:   feed.SetPodGroups,
		},
		{
			Name:     claimResource,
			Versions: []string{"v1"},
			Without:  "no pod is known to use a device, and none is evicted because of one",
			Watch: func(_ string, report func(error)) apidiscovery.Watch {
				return informer.NewClaimWatch(p.clientset, feed.Claims(), report, guarded)
			},
			Probe: func(ctx context.Context, _ string) error { return informer.Permitted(ctx, claims) },
		},
		{
			Name:     schema.GroupResource{Group: informer.RuleResource.Group, Resource: "resourceslices"},
			Versions: []string{"v1"},
			Without:  "the taints that drivers publish evict no pod",
			// Old generations of a pool count until a newer one is seen (DE-16).
			Misleading: true,
			Watch: func(_ string, report func(error)) apidiscovery.Watch {
				return informer.NewSliceWatch(p.clientset, feed.Slices(), report, guarded)
			},
			Probe: func(ctx context.Context, _ string) error { return informer.Permitted(ctx, slices) },
		},
	}
	if d.withoutRules {
		return found
	}
	return append(found, d.ruleResources(feed, guarded)...)
}

// ruleResources returns the resources of DeviceTaintRules.
func (d *deviceWatch) ruleResources(feed *informer.DeviceFeed, guarded informer.Option) []apidiscovery.Resource {
	return []apidiscovery.Resource{
		{
			Name:     informer.RuleResource,
			Versions: []string{"v1", "v1beta2", "v1alpha3"},
			Without:  "there are no DeviceTaintRules, and none evicts a pod",
			Watch: func(version string, report func(error)) apidiscovery.Watch {
				return informer.NewRuleWatch(d.rules, version, feed.Rules(), report, guarded)
			},
			Probe: func(ctx context.Context, version string) error {
				return informer.Permitted(ctx, d.rules.Resource(informer.RuleResource.WithVersion(version)))
			},
		},
		{
			Name:     ruleStatus,
			Versions: []string{"v1", "v1beta2", "v1alpha3"},
			Without:  "the status of DeviceTaintRules does not say how far their eviction is",
		},
	}
}

// deviceListener forwards changes to the evictor, the status controller and the rule handlers.
type deviceListener struct {
	evictor *evictor.Evictor
	status  *rulestatus.Controller
	rules   *listeners
}

// listeners are handlers of rules that were created, changed or deleted. All handlers join before
// the first call.
type listeners struct{ handlers []func(rule string) }

// join adds a handler, which must not block.
func (l *listeners) join(notify func(rule string)) { l.handlers = append(l.handlers, notify) }

// PodsChanged forwards pods to the evictor.
func (l deviceListener) PodsChanged(keys []tracker.Key) { l.evictor.PodsChanged(keys) }

// RuleChanged forwards a rule to the evictor, the status controller and all handlers.
func (l deviceListener) RuleChanged(name string) {
	l.evictor.RuleChanged(name)
	l.status.RuleChanged(name)
	for _, notify := range l.rules.handlers {
		notify(name)
	}
}
