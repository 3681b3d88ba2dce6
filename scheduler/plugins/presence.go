package plugins

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // What leads reads.
	"k8s.io/klog/v2"                                                     //nolint:depguard // The scheduler logs with it, and its contexts carry no logger.
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// presenceTimeout is how long one renewal may take, and a farewell.
const presenceTimeout = 5 * time.Second

const (
	// presenceQPS is far above a request every 10 s.
	presenceQPS = 1
	// presenceBurst lets one renewal pass that finds its Lease written or deleted by
	// somebody else: update, get and update.
	presenceBurst = 5
)

var presenceFailures = metrics.NewCounter(&metrics.CounterOpts{
	Subsystem:      "tollgate_scheduler",
	Name:           "presence_failures_total",
	Help:           "Failed renewals of the Lease that shows that the scheduler applies ResourceSlicePatches.",
	StabilityLevel: metrics.ALPHA,
})

var registerPresence = sync.OnceFunc(func() { legacyregistry.MustRegister(presenceFailures) })

// announcer says that this process schedules by patches, in a Lease. Scheduling does not
// wait for it and does not depend on it.
type announcer struct {
	leases   coordinationclient.LeaseInterface
	holder   string
	profiles func() []string
	// leads reports whether this process is the one that schedules.
	leads func() bool
	clock clock.WithTicker

	// lease is what was last read or written, nil before that. It and what follows are for
	// the goroutine of run.
	lease *coordinationv1.Lease
	// failing is set from a renewal that failed to one that did not.
	failing bool
}

func newAnnouncer(leases coordinationclient.LeasesGetter, profiles func() []string) *announcer {
	registerPresence()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // The rest of the holder is unique.
	}
	return &announcer{
		leases: leases.Leases(slicepatch.PresenceNamespace), holder: host + "_" + string(uuid.NewUUID()), profiles: profiles,
		leads: func() bool { return leads(legacyregistry.DefaultGatherer) }, clock: clock.RealClock{},
	}
}

// leasesOf returns a client for Leases with a limit of requests of its own. With the
// scheduler's a renewal would wait behind the pods that are being bound, and fail when
// there are many.
func leasesOf(scheduler *rest.Config) (coordinationclient.LeasesGetter, error) {
	config := rest.CopyConfig(scheduler)
	config.RateLimiter = nil // A copy would share it.
	config.QPS, config.Burst = presenceQPS, presenceBurst
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for leases: %w", err)
	}
	return client, nil
}

// leads reports whether this process leads, or elects no leader. The scheduler tells
// nobody but its metrics. They have no leader before the election begins, which is soon
// after the informers have synced.
func leads(gatherer metrics.Gatherer) bool {
	// What cannot be gathered of other metrics is not our business.
	families, _ := gatherer.Gather()
	for _, family := range families {
		if family.GetName() != "leader_election_master_status" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetGauge().GetValue() == 1 {
				return true
			}
		}
		return len(family.GetMetric()) == 0
	}
	return true
}

// run renews the Lease until the context ends, for the first time an interval after it was
// called.
func (a *announcer) run(ctx context.Context) {
	ticker := a.clock.NewTicker(slicepatch.RenewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			a.release(context.WithoutCancel(ctx))
			return
		case <-ticker.C():
			if a.leads() {
				a.renew(ctx)
			}
		}
	}
}

func (a *announcer) renew(ctx context.Context) {
	err := a.claim(ctx)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		a.lease = nil // Somebody wrote or deleted it.
		err = a.claim(ctx)
	}
	logger := klog.FromContext(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		presenceFailures.Inc()
		a.lease = nil
		if !a.failing {
			logger.Error(err, "Failed to say that ResourceSlicePatches are obeyed, will go on trying; the status of patches may say that no scheduler obeys them",
				"lease", klog.KRef(slicepatch.PresenceNamespace, slicepatch.Name))
		}
		a.failing = true
	case err == nil && a.failing:
		logger.Info("Said again that ResourceSlicePatches are obeyed")
		a.failing = false
	}
}

// claim writes the Lease. It reads it first if it does not know it.
func (a *announcer) claim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	if a.lease == nil {
		found, err := a.leases.Get(ctx, slicepatch.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			a.lease = found
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get lease: %w", err)
		}
	}
	next := slicepatch.ClaimPresence(a.lease, slicepatch.Scheduler{Holder: a.holder, Profiles: a.profiles()}, a.clock.Now())
	var err error
	if a.lease == nil {
		next, err = a.leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		next, err = a.leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	a.lease = next
	return nil
}

// release says goodbye. Where that fails the Lease runs out.
func (a *announcer) release(ctx context.Context) {
	last, held := slicepatch.ReleasePresence(a.lease, a.holder, a.clock.Now())
	if !held {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, presenceTimeout)
	defer cancel()
	if _, err := a.leases.Update(ctx, last, metav1.UpdateOptions{}); err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to release the lease, it will run out", "err", err)
	}
}
