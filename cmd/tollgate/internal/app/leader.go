package app

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/evictor"
)

// addLeader adds the election of the leader, which runs its tasks until shutdownCtx is done. A
// process without the evictor does not take part in the election. The lease is released once all
// tasks have stopped, while reviews are still answered.
func (p *program) addLeader(shutdownCtx context.Context) {
	if !p.components.evictor {
		return
	}
	work := func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, task := range p.leaderTasks {
			group.Go(func() error { return task(ctx) })
		}
		return group.Wait()
	}
	p.add(Until(shutdownCtx, func(ctx context.Context) error {
		if p.lock == nil {
			return work(ctx)
		}
		return p.lock.Lead(ctx, &p.config.LeaderElection, work)
	}))
}

// leads reports whether this replica may act as the leader.
func (p *program) leads() bool {
	return p.components.evictor && (p.lock == nil || p.lock.HeldWithin(p.config.LeaderElection.RenewDeadline.Duration))
}

// newLock returns the lock of the leader election; nil when it is off. The lock has a client of
// its own, so that other requests cannot delay a renewal.
func (p *program) newLock() (*Lock, error) {
	election := &p.config.LeaderElection
	if !election.Enabled {
		return nil, nil //nolint:nilnil // Nil means that this replica always leads.
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this replica: %w", err)
	}
	connection := rest.CopyConfig(p.connection)
	connection.Timeout = election.RenewDeadline.Duration / 2
	clientset, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("make a client for the lease: %w", err)
	}
	return &Lock{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: p.config.Namespace, Name: objectName},
		Client:     clientset.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		Labels:     settings.EvictionOf(&p.config.Eviction, p.features).Labels(),
	}, clock: p.local, server: p.clock}, nil
}

// These are the source components of events. They are the names of the Kubernetes controllers
// that Tollgate replaces (NE-21, DE-42), as are its metrics, so that event watchers keep working.
const (
	nodeEventComponent   = "taint-eviction-controller"
	deviceEventComponent = "device-taint-eviction-controller"
	// policyEventComponent is the source of events about policies. Kubernetes has no counterpart.
	policyEventComponent = "tollgate"
)

// Events have a client and a rate limit of their own: a backlog delays events, never evictions.
const (
	eventQPS   = 20
	eventBurst = 100
)

// recorders write events about evictions from nodes, evictions because of devices, and policies.
type recorders struct {
	nodes, devices, policies record.EventRecorder
	// stop is called after all recorders: events of the shutdown are written too.
	stop func()
}

func newRecorders(ctx context.Context, connection *rest.Config) (recorders, error) {
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = eventQPS, eventBurst
	clientset, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return recorders{}, fmt.Errorf("make a client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)),
		record.WithCorrelatorOptions(record.CorrelatorOptions{KeyFunc: neverCombined}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: clientset.CoreV1().Events("")})
	from := func(component string) record.EventRecorder {
		return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component})
	}
	return recorders{
		nodes: from(nodeEventComponent), devices: from(deviceEventComponent), policies: from(policyEventComponent), stop: broadcaster.Shutdown,
	}, nil
}

// neverCombined keeps events apart that differ in their messages. By default client-go combines the events of
// an object with the same reason from the tenth on, and drops their annotations, which commands read. How many
// events there are is bounded where they are written.
func neverCombined(event *corev1.Event) (aggregate, local string) {
	aggregate, local = record.EventAggregatorByReasonFunc(event)
	return aggregate + event.Message, local
}

// Reasons of events on the Lease.
const (
	reasonModeFits   = "ModeFits"
	reasonModeMisfit = "ModeMisfit"
)

// fitChanged records an event on the Lease about whether the mode fits the cluster.
func (p *program) fitChanged(finding evictor.ModeFinding) {
	lease, mode := p.leaseReference(), p.config.Eviction.Mode
	if finding == evictor.Fits {
		p.recorders.policies.Eventf(lease, corev1.EventTypeNormal, reasonModeFits, "eviction.mode %s fits again", mode)
		return
	}
	p.recorders.policies.Eventf(lease, corev1.EventTypeWarning, reasonModeMisfit, "eviction.mode %s does not fit: %s", mode, finding.Message())
}

// leaseReference returns the reference of events about Tollgate itself.
func (p *program) leaseReference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: p.config.Namespace, Name: objectName}
}
