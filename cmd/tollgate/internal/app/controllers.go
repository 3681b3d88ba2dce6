package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/controllers/audit"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/controllers/nodetaints"
	"github.com/tollgate-dev/tollgate/controllers/registration"
	"github.com/tollgate-dev/tollgate/controllers/status"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// controllerBase returns what the controllers of the leader share.
func (p *program) controllerBase() controller.Base {
	return controller.Base{
		Cache: p.manager.GetCache(), Status: p.manager.GetClient().Status(), Policies: p.store, Recorder: p.recorders.policies,
		Clock: p.clock, Local: p.local, Leads: p.leads, Timeout: p.attemptTimeout(),
	}
}

// addControllers adds the controllers that the leader runs for the policies.
func (p *program) addControllers(state *evictionState, limits *preview.Limits) error {
	base := p.controllerBase()
	watch := registration.WatchOptions{
		Client: p.clientset, Name: objectName, URL: p.config.Webhook.URL, Lease: p.leaseReference(), Metrics: registration.NewWatchMetrics(ctrlmetrics.Registry),
	}
	var registered func() (bool, string)
	var ready *status.ReadyController
	if p.config.Webhook.Registration == configv1alpha1.RegistrationManaged {
		writer, err := p.newRegistration(base, func() { ready.Recheck() })
		if err != nil {
			return err
		}
		registered, watch.Own = writer.Registered, writer.Wrote
		p.whileLeading(writer.Start)
	}
	judges := func(kind policyset.Kind) bool { return settings.Judges(p.features, kind) }
	ready = status.NewReady(base, judges, registered)
	p.whileLeading(ready.Start, registration.NewWatcher(base, watch).Start)
	if p.features.Enabled(settings.TolerationPolicies) && state.tracker != nil {
		reports, err := p.addReports()
		if err != nil {
			return err
		}
		p.whileLeading(audit.New(base, audit.Options{
			Pods: state.tracker, Synced: state.pods, Namespace: p.config.Namespace,
			DefaultSeconds: settings.DefaultSeconds(p.config), Metrics: audit.NewMetrics(ctrlmetrics.Registry), Reports: reports,
		}).Start)
	}
	if p.pairs(state) {
		// Pods with a bounded toleration do not return to their devices.
		d := state.devices
		devices := devicetaints.New(base, devicetaints.Options{
			Devices: state.tracker, Synced: d.synced.Load, Client: devicetaints.NewRuleClient(d.rules, d.served, devicetaints.Label),
			Window: p.window(), Metrics: devicetaints.NewMetrics(ctrlmetrics.Registry),
		})
		state.changes.rules.join(devices.RuleChanged)
		p.whileLeading(devices.Start)
	}
	if p.features.Enabled(settings.EvictionPolicies) {
		// Pods do not return to their nodes in mode Window. In other modes, leftover paired
		// taints are removed.
		p.whileLeading(nodetaints.NewPairing(base, nodetaints.PairingOptions{
			Nodes: p.clientset.CoreV1().Nodes(), Window: p.window(), Metrics: nodetaints.NewPairingMetrics(ctrlmetrics.Registry),
		}).Start)
	}
	if p.features.Enabled(settings.TaintPolicies) {
		p.addTaintControllers(base, state, limits)
	}
	return nil
}

// newRegistration returns the writer of the webhooks, which calls changed when they are registered,
// or are no more.
func (p *program) newRegistration(base controller.Base, changed func()) (*registration.Controller, error) {
	config := p.config
	deriver, err := registration.NewDeriver(registration.Settings{
		Namespace: config.Namespace, Service: config.Certificates.ServiceName, URL: config.Webhook.URL,
		FailurePolicy:      admissionregistrationv1.FailurePolicyType(config.Webhook.FailurePolicy),
		ExcludedNamespaces: config.Webhook.ExcludedNamespaces,
		DefaultSeconds:     settings.DefaultSeconds(config), Window: p.window(),
		NodeTaintTimestamps: p.features.Enabled(settings.NodeTaintTimestamps), DeviceTaintAdmission: p.features.Enabled(settings.DeviceTaintAdmission),
		WarnsOfComparisons: p.ignoresComparisons(),
	})
	if err != nil {
		return nil, fmt.Errorf("webhook.registration: %w", err)
	}
	options := registration.Options{
		Name: objectName, Deriver: deriver, Client: p.manager.GetClient(), Changed: changed, Metrics: registration.NewMetrics(ctrlmetrics.Registry),
	}
	if config.Webhook.URL != "" {
		at, _ := url.Parse(config.Webhook.URL) // The configuration is valid.
		// Reachable means that the server has a certificate of one of the CAs.
		options.Reachable = func(ctx context.Context, caBundle []byte) error {
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM(caBundle) {
				return errors.New("the CA bundle has no certificate")
			}
			dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
			connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "443")))
			if err != nil {
				return err
			}
			return connection.Close()
		}
	}
	return registration.New(base, options), nil
}

// ignoresComparisons reports whether pods are evicted in spite of tolerations that compare numbers.
func (p *program) ignoresComparisons() bool {
	return !p.config.Eviction.ComparisonOperators && p.config.Eviction.Mode != configv1alpha1.EvictionObserve && p.features.Enabled(settings.NodeTaintEviction)
}

// pairs reports whether paired rules are written for device taints.
func (p *program) pairs(state *evictionState) bool {
	return (p.features.Enabled(settings.PlacementPolicies) || p.window()) && state.watchesRules()
}

// window reports whether the mode is Window, in which Tollgate evicts before Kubernetes does.
func (p *program) window() bool {
	return settings.Window(p.config, p.features)
}

// addTaintControllers adds the controllers of TaintPolicies.
func (p *program) addTaintControllers(base controller.Base, state *evictionState, limits *preview.Limits) {
	nodes := nodetaints.NewRegister(base, nodetaints.RegisterOptions{
		Nodes: p.clientset.CoreV1().Nodes(), ListPods: p.clientset.CoreV1().Pods("").List,
		Check: limits.Node, Self: p.self, Since: p.leaderlessSince, Metrics: nodetaints.NewRegisterMetrics(ctrlmetrics.Registry),
	})
	expiry := nodetaints.TTLOptions{Nodes: p.clientset.CoreV1().Nodes(), Metrics: nodetaints.NewTTLMetrics(ctrlmetrics.Registry)}
	if p.features.Enabled(settings.ResourceSlicePatches) {
		expiry.Patches = p.dynamic.Resource(v1alpha1.GroupVersion.WithResource("resourceslicepatches"))
	}
	approvals := status.ApprovalOptions{Metrics: status.NewMetrics(ctrlmetrics.Registry)}
	if state.tracker != nil {
		approvals.Left, approvals.Standing = state.ledger.Left, state.tracker.Standing
	}
	if state.devices != nil {
		expiry.Rules, expiry.Deleter = state.tracker, state.carriers
	}
	expired, approved := nodetaints.NewTTL(base, expiry), status.NewApprovals(base, approvals)
	if state.devices != nil {
		state.changes.rules.join(expired.RuleChanged)
		state.changes.rules.join(approved.RuleChanged)
		state.changes.patches.join(approved.PatchesChanged)
	}
	p.whileLeading(nodes.Start, expired.Start, approved.Start)
}

// leaderlessSince returns the earliest time at which there may have been no leader.
func (p *program) leaderlessSince() time.Time {
	var before time.Time
	if p.lock != nil {
		before = p.lock.Before()
	}
	return leaderlessAt(before, p.clock.Now())
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

// listeners are the functions that a source of changes calls, in the order in which they joined.
// All of them join before the source starts, and none may block.
type listeners[T any] []func(T)

func (l *listeners[T]) join(listen func(T)) { *l = append(*l, listen) }

func (l *listeners[T]) notify(change T) {
	for _, listen := range *l {
		listen(change)
	}
}

// changeListeners are the listeners of the changes that watches and the evictor report. They are
// made before both.
type changeListeners struct {
	// Evictor alone listens to changes of pods and nodes. It is set before the watches start.
	*evictor.Evictor

	// rules are DeviceTaintRules that were created, changed or deleted, and patches the
	// ResourceSlicePatches whose rules were.
	rules   listeners[string]
	patches listeners[[]string]
	// evictingRules and evictingPatches are those because of which other pods have to leave than
	// before, or were evicted.
	evictingRules, evictingPatches listeners[[]string]
}

// RuleChanged implements a listener of package informer.
func (c *changeListeners) RuleChanged(name string) { c.rules.notify(name) }

// reportResource is the resource of the Reports of OpenReports.
var reportResource = openreportsv1alpha1.SchemeGroupVersion.WithResource("reports")

// addReports returns the options of the Reports of OpenReports, nil if none are configured. It
// adds the discovery of their resource, which is that of a CustomResourceDefinition.
func (p *program) addReports() (*audit.ReportOptions, error) {
	if !p.config.Audit.OpenReports || !p.components.evictor {
		return nil, nil
	}
	name := reportResource.GroupResource()
	keeper := p.newKeeper(func(bool) {}, apiResource{
		Name: name, Versions: []string{reportResource.Version},
		Without: "no Reports are written until its CustomResourceDefinition is installed",
	})
	p.add(keeper)
	scheme := runtime.NewScheme()
	utilruntime.Must(openreportsv1alpha1.Install(scheme))
	// Without a cache: the leader alone reads them, and seldom.
	reports, err := client.New(p.connection, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client for Reports: %w", err)
	}
	return &audit.ReportOptions{
		Client: reports, Served: func() bool { return keeper.Version(name) != "" },
		Metrics: audit.NewReportMetrics(ctrlmetrics.Registry),
	}, nil
}

// newKeeper returns a keeper of resources. All keepers share their metrics.
func (p *program) newKeeper(known func(bool), resources ...apiResource) *Keeper {
	return NewKeeper(KeeperOptions{
		Discovery: discovery.ToServerResourcesInterfaceWithContext(p.clientset.Discovery()),
		Permitted: func(ctx context.Context, resource schema.GroupVersionResource) error {
			return informer.Permitted(ctx, p.dynamic.Resource(resource))
		},
		Clock: p.local, Resources: resources, Known: known, Metrics: p.resources,
	})
}
