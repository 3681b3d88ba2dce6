package app

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/leader"
)

// addLeader adds the leader's controllers, which run until shutdownCtx is done. A process without
// the evictor does not take part in the election. The lease is released once all of them have
// stopped, while reviews are still answered.
func (p *program) addLeader(shutdownCtx context.Context) error {
	if !p.components.evictor {
		return nil
	}
	work := func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, part := range p.leaderTasks {
			group.Go(func() error { return part(ctx) })
		}
		return group.Wait()
	}
	if p.lock == nil {
		return p.manager.Add(Until(shutdownCtx, manager.RunnableFunc(work)))
	}
	election := p.config.LeaderElection
	runner := leader.NewRunner(p.lock, leader.Durations{
		Lease:         election.LeaseDuration.Duration,
		RenewDeadline: election.RenewDeadline.Duration,
		RetryPeriod:   election.RetryPeriod.Duration,
	}, work)
	if err := p.manager.Add(Until(shutdownCtx, runner)); err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	return nil
}

// leads reports whether this replica may act as the leader.
func (p *program) leads() bool {
	return p.components.evictor && (p.lock == nil || p.lock.HeldWithin(p.config.LeaderElection.RenewDeadline.Duration))
}

// newLock returns the lock of the leader election; nil when it is off. The lock has a client of
// its own, so that other requests cannot delay a renewal.
func (p *program) newLock() (*leader.Lock, error) {
	if !p.config.LeaderElection.Enabled {
		return nil, nil //nolint:nilnil // Nil means that this replica always leads.
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this replica: %w", err)
	}
	connection := rest.CopyConfig(p.connection)
	connection.Timeout = p.config.LeaderElection.RenewDeadline.Duration / 2
	clientset, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("make a client for the lease: %w", err)
	}
	return leader.New(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: p.config.Namespace, Name: objectName},
		Client:     clientset.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		Labels:     settings.EvictionOf(&p.config.Eviction, p.features).Labels(),
	}, p.local, p.clock), nil
}
