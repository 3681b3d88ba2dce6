package app

import (
	"time"

	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/controllers"
	"github.com/tollgate-dev/tollgate/controllers/audit"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/controllers/nodetaints"
	"github.com/tollgate-dev/tollgate/controllers/status"
	"github.com/tollgate-dev/tollgate/controllers/webhookwatch"
	"github.com/tollgate-dev/tollgate/webhook/policies"
)

// addControllers adds the controllers that the leader runs for the policies.
func (p *program) addControllers(store *policies.Store, state *evictionState, previews *previewSet) {
	status := status.NewReady(status.ReadyOptions{
		Cache: p.manager.GetCache(), Client: p.manager.GetClient(), Clock: p.clock, Local: p.local,
		Leads: p.leads, Timeout: p.attemptTimeout(), Enabled: p.judges, Policies: store,
	})
	p.leader.add(status.Start, p.newRegistration().Start)
	if p.features.Enabled(settings.TolerationPolicies) && state.tracker != nil {
		p.leader.add(p.newAudit(store, state).Start)
	}
	if p.pairs(state) {
		p.addPairing(store, state)
	}
	if p.features.Enabled(settings.EvictionPolicies) {
		p.addTwins(store)
	}
	if p.features.Enabled(settings.TaintPolicies) {
		p.addTaintControllers(store, state, previews)
	}
}

// newRegistration returns the watcher that reports changed or deleted webhook configurations.
func (p *program) newRegistration() *webhookwatch.Watcher {
	return webhookwatch.New(webhookwatch.Options{
		Client: p.clientset, Name: objectName, URL: p.config.Webhook.URL, Leads: p.leads, Lease: p.leaseReference(),
		Recorder: p.recorders.policies, Metrics: webhookwatch.NewMetrics(ctrlmetrics.Registry),
	})
}

func (p *program) newAudit(store *policies.Store, state *evictionState) *audit.Controller {
	return audit.New(audit.Options{
		Pods: state.tracker, Synced: state.pods, Namespace: p.config.Namespace, Cache: p.manager.GetCache(), Status: p.manager.GetClient().Status(),
		Policies: store, DefaultSeconds: p.defaultSeconds(), Local: p.local, Leads: p.leads,
		Timeout: p.attemptTimeout(), Metrics: audit.NewMetrics(ctrlmetrics.Registry),
	})
}

// pairs reports whether twin rules are written for device taints.
func (p *program) pairs(state *evictionState) bool {
	return (p.features.Enabled(settings.PlacementPolicies) || p.window()) && state.watchesRules()
}

// addPairing adds the controller of twin rules, which keep pods with a bounded toleration from
// returning to their devices.
func (p *program) addPairing(store *policies.Store, state *evictionState) {
	d := state.devices
	pairs := devicetaints.New(devicetaints.Options{
		Devices: state.tracker, Synced: d.synced.Load, Client: controllers.NewRuleClient(d.rules, d.served, devicetaints.Label),
		Policies: store, Window: p.window(), Local: p.local, Leads: p.leads,
		Timeout: p.attemptTimeout(), Recorder: p.recorders.policies, Metrics: devicetaints.NewMetrics(ctrlmetrics.Registry),
	})
	state.changes.rules.join(pairs.RuleChanged)
	p.leader.add(pairs.Start)
}

// window reports whether the mode is Window, in which Tollgate evicts before Kubernetes does.
func (p *program) window() bool {
	return p.features.Enabled(settings.EvictionPolicies) && p.config.Eviction.Mode == configv1alpha1.EvictionWindow
}

// addTwins adds the controller of twin node taints, which keep pods from returning to their nodes
// in mode Window. In other modes it removes leftover twins.
func (p *program) addTwins(store *policies.Store) {
	nodes := nodetaints.NewPairing(nodetaints.PairingOptions{
		Cache: p.manager.GetCache(), Nodes: p.clientset.CoreV1().Nodes(), Policies: store, Window: p.window(),
		Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
		Recorder: p.recorders.policies, Metrics: nodetaints.NewPairingMetrics(ctrlmetrics.Registry),
	})
	p.leader.add(nodes.Start)
}

// addTaintControllers adds the controllers of TaintPolicies.
func (p *program) addTaintControllers(store *policies.Store, state *evictionState, previews *previewSet) {
	nodes := nodetaints.NewRegister(nodetaints.RegisterOptions{
		Cache: p.manager.GetCache(), Nodes: p.clientset.CoreV1().Nodes(), Pods: p.clientset.CoreV1().Pods(""),
		Policies: store, Limits: previews.limits, Self: p.self, Since: p.leaderlessSince, Clock: p.clock, Local: p.local, Leads: p.leads,
		Timeout: p.attemptTimeout(), Recorder: p.recorders.policies, Metrics: nodetaints.NewRegisterMetrics(ctrlmetrics.Registry),
	})
	expiry := nodetaints.TTLOptions{
		Cache: p.manager.GetCache(), Nodes: p.clientset.CoreV1().Nodes(),
		Policies: store, Clock: p.clock, Local: p.local, Leads: p.leads,
		Timeout: p.attemptTimeout(), Recorder: p.recorders.policies, Metrics: nodetaints.NewTTLMetrics(ctrlmetrics.Registry),
	}
	if p.features.Enabled(settings.ResourceSlicePatches) {
		expiry.Patches = p.dynamic.Resource(v1alpha1.GroupVersion.WithResource("resourceslicepatches"))
	}
	record := status.ApprovalOptions{
		Cache: p.manager.GetCache(), Status: p.manager.GetClient().Status(),
		Clock: p.clock, Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(), Metrics: status.NewMetrics(ctrlmetrics.Registry),
	}
	if state.tracker != nil {
		record.Left, record.Standing = state.ledger.Left, previews.view.Standing
	}
	if state.devices != nil {
		expiry.Rules, expiry.Deleter = state.tracker, &carriers{
			slices: p.clientset.ResourceV1().ResourceSlices(), rules: state.devices.rules, served: state.devices.served, window: p.window(),
		}
	}
	expired, approved := nodetaints.NewTTL(expiry), status.NewApprovals(record)
	if state.devices != nil {
		state.changes.rules.join(expired.RuleChanged)
		state.changes.rules.join(approved.RuleChanged)
		state.changes.patches.join(approved.PatchesChanged)
	}
	p.leader.add(nodes.Start, expired.Start, approved.Start)
}

// leaderlessSince returns the earliest time at which there may have been no leader.
func (p *program) leaderlessSince() time.Time {
	if p.lock == nil {
		return leaderlessAt(time.Time{}, p.clock.Now())
	}
	return leaderlessAt(p.lock.Before(), p.clock.Now())
}

// leaderlessAt returns the earliest time at which there may have been no leader, given the last
// renewal by an earlier one; zero before means never. API server times have a precision of one
// second. Without an earlier leader, as after a new installation, the policies may be older than
// the lease, so it goes back 10 minutes.
func leaderlessAt(before, now time.Time) time.Time {
	const precision, unknown = time.Second, 10 * time.Minute
	if before.IsZero() {
		return now.Add(-unknown)
	}
	return before.Add(-precision).Truncate(precision)
}
