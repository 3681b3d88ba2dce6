package app

import (
	"context"
	"fmt"
	"sync/atomic"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/evictor/rulestatus"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// The resources of devices that are watched or discovered, besides informer.RuleResource.
var (
	claimResource    = resourcev1.Resource("resourceclaims")
	podGroupResource = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
	// ruleStatus is served with rules, except in v1alpha3 of Kubernetes 1.34 and before (VS-03).
	ruleStatus = resourcev1.Resource(informer.RuleResource.Resource + "/status")
)

// deviceWatch watches devices, claims and DeviceTaintRules, in the versions that are served.
type deviceWatch struct {
	rules  dynamic.Interface
	keeper *Keeper
	// synced is true while the tracker has all devices, claims and rules.
	synced atomic.Bool
	// withoutRules turns DeviceTaintRules off.
	withoutRules bool
}

func (p *program) newDeviceWatch(feed *informer.DeviceFeed, guard *informer.Guard) *deviceWatch {
	d := &deviceWatch{rules: p.dynamic, withoutRules: !p.features.Enabled(settings.DeviceTaintRules)}
	d.keeper = p.newKeeper(func(synced bool) { d.setSynced(synced, feed.SetKnown) }, d.resources(p.clientset, feed, informer.Guarded(guard))...)
	return d
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
// Synced is cleared before notify and set after it: a keeper calls this only for a change.
func (d *deviceWatch) setSynced(synced bool, notify func(synced bool)) {
	d.synced.Store(false)
	notify(synced)
	d.synced.Store(synced)
}

// addDevices adds the watches of devices on every replica, and the status controller of rules.
func (p *program) addDevices(state *evictionState) {
	p.add(state.devices.keeper)
	ctrlmetrics.Registry.MustRegister(Collector(state.tracker.TaintedDevices))
	status := p.addRuleStatus(state, rulestatus.NewMetrics(ctrlmetrics.Registry), rulestatus.Objects{
		Kind: rulestatus.KindRule, Tracker: state.tracker,
		Applier: rulestatus.NewApplier(p.dynamic, state.devices.writable), HeldOnly: state.view.Rules.Window,
		Written: func(*tracker.Rule) bool { return true }, // A rule is what it stands for.
	})
	state.changes.rules.join(func(rule string) { status.Add(rule) })
	state.changes.evictingRules.join(func(rules []string) { status.Add(rules...) })
}

// addRuleStatus adds the controller that writes the status of rules or of patches, which the
// leader runs.
func (p *program) addRuleStatus(state *evictionState, metrics *rulestatus.Metrics, objects rulestatus.Objects) *rulestatus.Controller {
	status := rulestatus.New(p.controllerBase(), rulestatus.Options{
		Objects: objects,
		Evictor: rulestatus.Evictor{
			Decide: func(situation tracker.Situation) bool {
				return state.view.Rules.Decide(p.clock.Now(), situation).Verdict == decide.EvictAt
			},
			Evicted: state.evictor.EvictedBy, Forget: state.evictor.Forget, Unanswered: state.evictor.Unanswered,
			Held: state.evictor.HeldFor, PodsChanged: state.evictor.PodsChanged,
		},
		Synced:  func() bool { return state.synced() && state.devices.claimsSynced() },
		Metrics: metrics,
	})
	if p.config.Eviction.Mode != configv1alpha1.EvictionObserve {
		p.whileLeading(status.Start)
	}
	return status
}

// resources returns the resources of devices to watch where they are served (VS-01, VS-02,
// VS-08).
func (d *deviceWatch) resources(clientset kubernetes.Interface, feed *informer.DeviceFeed, guarded informer.Option) []apiResource {
	found := []apiResource{
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
			Watch: func(_ string, report func(error)) resourceWatch {
				return informer.NewClaimWatch(clientset, feed.Claims(), report, guarded)
			},
		},
		{
			Name:     resourcev1.Resource("resourceslices"),
			Versions: []string{"v1"},
			Without:  "the taints that drivers publish evict no pod",
			// Old generations of a pool count until a newer one is seen (DE-16).
			Misleading: true,
			Watch: func(_ string, report func(error)) resourceWatch {
				return informer.NewSliceWatch(clientset, feed.Slices(), report, guarded)
			},
		},
	}
	if d.withoutRules {
		return found
	}
	return append(found,
		apiResource{
			Name:     informer.RuleResource,
			Versions: devicetaints.RuleVersions,
			Without:  "there are no DeviceTaintRules, and none evicts a pod",
			Watch: func(version string, report func(error)) resourceWatch {
				return informer.NewRuleWatch(d.rules, version, feed.Rules(), report, guarded)
			},
		},
		apiResource{
			Name:     ruleStatus,
			Versions: devicetaints.RuleVersions,
			Without:  "the status of DeviceTaintRules does not say how far their eviction is",
		},
	)
}

// carriers reads the current objects that taint devices.
type carriers struct {
	slices resourcev1client.ResourceSliceInterface
	rules  dynamic.Interface
	// served returns the resource of rules; false while they are not served.
	served func() (schema.GroupVersionResource, bool)
	// window is true in mode Window.
	window bool
}

// client returns the client of DeviceTaintRules in the version that is served. That none is served
// is an error of the API, not NotFound of one rule.
func (c *carriers) client() (dynamic.ResourceInterface, error) {
	resource, ok := c.served()
	if !ok {
		return nil, devicetaints.ErrNotServed
	}
	return c.rules.Resource(resource), nil
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
	client, err := c.client()
	if err != nil {
		return tracker.Rule{}, err
	}
	rule, err := client.Get(ctx, name, metav1.GetOptions{})
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
	client, err := c.client()
	if err != nil {
		return false, err
	}
	object, err := client.Get(ctx, rule.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	twin, _, err := informer.ReadRule(object)
	if err != nil {
		return false, err
	}
	owner, ok := devicetaints.OwnerOf(twin)
	if !ok {
		return false, nil
	}
	needs := devicetaints.NeedsOf(current, c.window)
	var needed bool
	if owner.Kind == devicetaints.KindRule {
		var carrier tracker.Rule
		carrier, err = c.ReadRule(ctx, owner.Name)
		needed = err == nil && devicetaints.NeededByRule(needs, twin, &carrier)
	} else {
		var carrier tracker.Slice
		carrier, err = c.ReadSlice(ctx, owner.Name)
		needed = err == nil && devicetaints.NeededBySlice(needs, twin, &carrier)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read %s %s: %w", owner.Kind, owner.Name, err)
	}
	return needed, nil
}

// DeleteRule deletes a DeviceTaintRule if its UID and resource version are unchanged.
func (c *carriers) DeleteRule(ctx context.Context, rule *tracker.Rule) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return client.Delete(ctx, rule.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &rule.UID, ResourceVersion: &rule.ResourceVersion},
	})
}
