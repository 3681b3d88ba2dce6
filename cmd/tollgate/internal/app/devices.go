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

// What is watched and served of devices, besides informer.RuleResource.
var (
	claimResource    = schema.GroupResource{Group: informer.RuleResource.Group, Resource: "resourceclaims"}
	podGroupResource = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
	// ruleStatus is served where rules are, but for v1alpha3 of Kubernetes 1.34 and
	// before (VS-03).
	ruleStatus = schema.GroupResource{Group: informer.RuleResource.Group, Resource: informer.RuleResource.Resource + "/status"}
)

// deviceSide is what eviction by taints of devices adds to the evictor. Some of it
// comes into being after what it is given to.
type deviceSide struct {
	rules  dynamic.Interface
	keeper *apidiscovery.Keeper
	status *rulestatus.Controller
	// counting are the options of status, and patches what is counted by patches.
	counting rulestatus.Options
	patches  *patchSide
	// changed are told of rules.
	changed listeners
	// known is true while the tracker knows all devices, claims and rules.
	known atomic.Bool
	// withoutRules says that DeviceTaintRules are as if there were none.
	withoutRules bool
}

// equip adds to the options of the evictor what devices need.
func (d *deviceSide) equip(p *program, options *evictor.Options) {
	d.rules = p.dynamic
	options.Carriers = &carriers{slices: p.clientset.ResourceV1().ResourceSlices(), rules: d.rules, served: d.served}
	options.RulesChanged = func(names []string) { d.status.RulesChanged(names) }
	d.patches = &patchSide{}
	options.PatchesChanged = d.patches.changed
}

// served returns how DeviceTaintRules are called; false while they are not served.
func (d *deviceSide) served() (schema.GroupVersionResource, bool) {
	version := d.keeper.Version(informer.RuleResource)
	return informer.RuleResource.WithVersion(version), version != ""
}

// writable returns how DeviceTaintRules are called where they have a status.
func (d *deviceSide) writable() (schema.GroupVersionResource, bool) {
	version := d.keeper.Version(ruleStatus)
	return informer.RuleResource.WithVersion(version), version != ""
}

// counts reports whether all claims are known, and whether those of PodGroups count,
// so that a pod that is not found to use a device does not use it.
func (d *deviceSide) counts() bool {
	return d.known.Load() && d.keeper.Watched(claimResource) && d.keeper.Answered(podGroupResource)
}

// setKnown takes in whether all that is served and permitted is known, and tells. It
// is false before the answers of the tracker go, and true after they have come.
func (d *deviceSide) setKnown(known bool, tell func(known bool)) {
	if !known {
		d.known.Store(false)
	}
	tell(known)
	if known {
		d.known.Store(true)
	}
}

// add adds what watches devices on every replica, and returns what writes the
// status of rules on the leader.
func (d *deviceSide) add(p *program, options evictor.Options, runner *evictor.Evictor, guard *informer.Guard) (*rulestatus.Controller, error) {
	d.patches.list = rulestatus.NewPatches(options.Tracker, runner.Forget)
	d.counting = rulestatus.Options{
		Tracker: options.Tracker,
		Synced:  func() bool { return options.Synced() && d.counts() },
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
	d.status, err = rulestatus.New(d.counting)
	if err != nil {
		return nil, fmt.Errorf("write the status of DeviceTaintRules: %w", err)
	}
	feed := informer.NewDeviceFeed(options.Tracker, deviceListener{runner, d.status, &d.changed}, p.clock)
	d.keeper = apidiscovery.New(apidiscovery.Options{
		Discovery: discovery.ToServerResourcesInterfaceWithContext(p.clientset.Discovery()),
		Clock:     p.local,
		Resources: d.resources(p, feed, informer.Guarded(guard)),
		Known:     func(known bool) { d.setKnown(known, feed.SetKnown) },
		Metrics:   apidiscovery.NewMetrics(ctrlmetrics.Registry),
	})
	if err := p.manager.Add(d.keeper); err != nil {
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	ctrlmetrics.Registry.MustRegister(NewCollector(options.Tracker))
	return d.status, nil
}

// resources returns what is watched of devices where it is served (VS-01, VS-02,
// VS-08).
func (d *deviceSide) resources(p *program, feed *informer.DeviceFeed, guarded informer.Option) []apidiscovery.Resource {
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

// ruleResources returns what is watched of DeviceTaintRules.
func (d *deviceSide) ruleResources(feed *informer.DeviceFeed, guarded informer.Option) []apidiscovery.Resource {
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

// deviceListener passes on what changed to those whom it concerns.
type deviceListener struct {
	evictor *evictor.Evictor
	status  *rulestatus.Controller
	rules   *listeners
}

// listeners want to know of rules that were created, changed or deleted. All of them
// join before the first is told.
type listeners struct{ told []func(rule string) }

// join adds one who wants to know. It must not block.
func (l *listeners) join(tell func(rule string)) { l.told = append(l.told, tell) }

// PodsChanged tells the evictor.
func (l deviceListener) PodsChanged(keys []tracker.Key) { l.evictor.PodsChanged(keys) }

// RuleChanged tells all.
func (l deviceListener) RuleChanged(name string) {
	l.evictor.RuleChanged(name)
	l.status.RuleChanged(name)
	for _, tell := range l.rules.told {
		tell(name)
	}
}
