package main

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/lease"
)

// addLease makes the lock of the leader election, where there is one. It has a
// client of its own: a leader must not lose its lease because it is busy.
func (p *program) addLease() error {
	if !*p.config.LeaderElection.Enabled {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this replica: %w", err)
	}
	connection := rest.CopyConfig(p.connection)
	connection.Timeout = p.config.LeaderElection.RenewDeadline.Duration / 2
	clientset, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return fmt.Errorf("make a client for the lease: %w", err)
	}
	inner, err := resourcelock.New(resourcelock.LeasesResourceLock, p.config.Namespace, objectName,
		clientset.CoreV1(), clientset.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())})
	if err != nil {
		return fmt.Errorf("make the lease: %w", err)
	}
	p.lease = lease.New(inner, p.local)
	return nil
}

// leads reports whether this replica may act as the leader.
func (p *program) leads() bool {
	return p.lease == nil || p.lease.HeldWithin(p.config.LeaderElection.RenewDeadline.Duration)
}
