package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/leader"
)

// alone runs work on the only replica there is.
type alone struct{ work func(context.Context) error }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (alone) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (a alone) Start(ctx context.Context) error { return a.work(ctx) }

// addLeader adds what one replica does at a time: work.
func (p *program) addLeader(work func(context.Context) error) error {
	if p.lock == nil {
		return p.manager.Add(alone{work})
	}
	election := p.config.LeaderElection
	runner := leader.NewRunner(p.lock, leader.Durations{
		Lease:         election.LeaseDuration.Duration,
		RenewDeadline: election.RenewDeadline.Duration,
		RetryPeriod:   election.RetryPeriod.Duration,
	}, work)
	if err := p.manager.Add(runner); err != nil {
		return fmt.Errorf("stand for election: %w", err)
	}
	return nil
}

// leads reports whether this replica may act as the leader.
func (p *program) leads() bool {
	return p.lock == nil || p.lock.HeldWithin(p.config.LeaderElection.RenewDeadline.Duration)
}

// newLock returns the lock of the leader election; nil where there is none. It
// has a client of its own: a leader must not lose its lease because it is busy.
func (p *program) newLock() (*leader.Lock, error) {
	if !p.config.LeaderElection.Enabled {
		return nil, nil //nolint:nilnil // Nobody else is there to lead.
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
	inner, err := resourcelock.New(resourcelock.LeasesResourceLock, p.config.Namespace, objectName,
		clientset.CoreV1(), clientset.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())})
	if err != nil {
		return nil, fmt.Errorf("make the lease: %w", err)
	}
	return leader.New(inner, p.local), nil
}
