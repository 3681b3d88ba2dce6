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

// addControllers adds what the leader writes to keep the cluster as policies say.
func (p *program) addControllers(store *policies.Store, known *followed, foreseen *foresight) {
	status := status.NewReady(status.ReadyOptions{
		Cache: p.manager.GetCache(), Client: p.manager.GetClient(), Clock: p.clock, Local: p.local,
		Leads: p.leads, Timeout: p.attemptTimeout(), Enabled: p.judges, Policies: store,
	})
	p.leading = append(p.leading, status.Start, p.newRegistration().Start)
	if p.features.Enabled(settings.TolerationPolicies) && known.tracker != nil {
		p.leading = append(p.leading, p.newAudit(store, known).Start)
	}
	if p.pairs(known) {
		p.addPairing(store, known)
	}
	if p.features.Enabled(settings.EvictionPolicies) {
		p.addTwins(store)
	}
	if p.features.Enabled(settings.TaintPolicies) {
		p.addTaintControllers(store, known, foreseen)
	}
}

// newRegistration returns what says when somebody deletes or edits the webhooks.
func (p *program) newRegistration() *webhookwatch.Watcher {
	return webhookwatch.New(webhookwatch.Options{
		Client: p.clientset, Name: objectName, URL: p.config.Webhook.URL, Leads: p.leads, Lease: p.leaseReference(),
		Recorder: p.recorders.policies, Metrics: webhookwatch.NewMetrics(ctrlmetrics.Registry),
	})
}

func (p *program) newAudit(store *policies.Store, known *followed) *audit.Controller {
	return audit.New(audit.Options{
		Pods: known.tracker, Synced: known.pods, Namespace: p.config.Namespace, Cache: p.manager.GetCache(), Status: p.manager.GetClient().Status(),
		Policies: store, DefaultSeconds: p.defaultSeconds(), Local: p.local, Leads: p.leads,
		Timeout: p.attemptTimeout(), Metrics: audit.NewMetrics(ctrlmetrics.Registry),
	})
}

// pairs reports whether twins are written for taints of devices.
func (p *program) pairs(known *followed) bool {
	return (p.features.Enabled(settings.PlacementPolicies) || p.window()) && known.followsRules()
}

// addPairing adds what keeps pods with a bounded toleration from coming back to their
// devices.
func (p *program) addPairing(store *policies.Store, known *followed) {
	d := known.devices
	pairs := devicetaints.New(devicetaints.Options{
		Devices: known.tracker, Synced: d.known.Load, Client: controllers.NewRuleClient(d.rules, d.served, devicetaints.Label),
		Policies: store, Window: p.window(), Local: p.local, Leads: p.leads,
		Timeout: p.attemptTimeout(), Recorder: p.recorders.policies, Metrics: devicetaints.NewMetrics(ctrlmetrics.Registry),
	})
	d.changed.join(pairs.RuleChanged)
	p.leading = append(p.leading, pairs.Start)
}

// window reports whether pods get time in which Tollgate evicts, before Kubernetes does.
func (p *program) window() bool {
	return p.features.Enabled(settings.EvictionPolicies) && p.config.Eviction.Mode == configv1alpha1.EvictionWindow
}

// addTwins adds what keeps pods from coming back to their nodes in mode Window. In other
// modes it takes away what is left of that.
func (p *program) addTwins(store *policies.Store) {
	nodes := nodetaints.NewPairing(nodetaints.PairingOptions{
		Cache: p.manager.GetCache(), Nodes: p.clientset.CoreV1().Nodes(), Policies: store, Window: p.window(),
		Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
		Recorder: p.recorders.policies, Metrics: nodetaints.NewPairingMetrics(ctrlmetrics.Registry),
	})
	p.leading = append(p.leading, nodes.Start)
}

// addTaintControllers adds what carries out TaintPolicies.
func (p *program) addTaintControllers(store *policies.Store, known *followed, foreseen *foresight) {
	nodes := nodetaints.NewRegister(nodetaints.RegisterOptions{
		Cache: p.manager.GetCache(), Nodes: p.clientset.CoreV1().Nodes(), Pods: p.clientset.CoreV1().Pods(""),
		Policies: store, Limits: foreseen.limits, Self: p.self, Since: p.unattended, Clock: p.clock, Local: p.local, Leads: p.leads,
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
	if known.tracker != nil {
		record.Left, record.Standing = known.ledger.Left, foreseen.view.Standing
	}
	if known.devices != nil {
		expiry.Rules, expiry.Deleter = known.tracker, &carriers{
			slices: p.clientset.ResourceV1().ResourceSlices(), rules: known.devices.rules, served: known.devices.served, window: p.window(),
		}
	}
	expired, approved := nodetaints.NewTTL(expiry), status.NewApprovals(record)
	if known.devices != nil {
		known.devices.changed.join(expired.RuleChanged)
		known.devices.changed.join(approved.RuleChanged)
		known.devices.patches.told = append(known.devices.patches.told, approved.PatchesChanged)
	}
	p.leading = append(p.leading, nodes.Start, expired.Start, approved.Start)
}

// unattended returns since when no leader may have been there.
func (p *program) unattended() time.Time {
	if p.lock == nil {
		return unattendedAt(time.Time{}, p.clock.Now())
	}
	return unattendedAt(p.lock.Before(), p.clock.Now())
}

// unattendedAt returns since when no leader may have been there, as seen at now, if one
// was heard of before; zero for never. The time of the API server is known to a second,
// and it creates objects in whole ones. Where nobody was heard of, as after a new
// installation, the policies may be those of an earlier one, and what happened to the
// nodes since then may be meant.
func unattendedAt(before, now time.Time) time.Time {
	const precision, unknown = time.Second, 10 * time.Minute
	if before.IsZero() {
		return now.Add(-unknown)
	}
	return before.Add(-precision).Truncate(precision)
}
