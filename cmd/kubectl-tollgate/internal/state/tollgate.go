package state

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/evictor"
)

var leaseResource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// Tollgate is the state of Tollgate by the Lease of its leader.
type Tollgate struct {
	// Installed is true if there is a Lease, or it may not be read.
	Installed bool
	// Leading is true if the Lease is renewed.
	Leading bool
	// Terms are the eviction settings of the Lease, else of the default configuration; zero if
	// not installed.
	Terms settings.Eviction
	// Told is true if Terms are those of the Lease.
	Told bool
}

// heedsPolicies reports whether EvictionPolicies protect pods.
func (t *Tollgate) heedsPolicies() bool {
	return t.Installed && t.Terms.Mode == configv1alpha1.EvictionReplace && t.Terms.Policies
}

// rules returns the rules of the evictor. Comparing says that pods have comparison operators,
// which the API server accepts only where they are enabled (AV-25).
func (t *Tollgate) rules(comparing bool) evictor.Rules {
	if !t.Told {
		return evictor.Rules{ComparisonOperators: comparing}
	}
	return evictor.Rules{
		ComparisonOperators: t.Terms.ComparisonOperators, MaxHold: t.Terms.MaxHold,
		Window: t.Terms.Mode == configv1alpha1.EvictionWindow,
	}
}

// readTollgate reads the Lease of Tollgate's leader, and returns a sentence for Missing, if any.
func readTollgate(ctx context.Context, clients *cli.Clients, namespace string, now time.Time) (Tollgate, string, error) {
	lease, err := clients.Kubernetes.CoordinationV1().Leases(namespace).Get(ctx, settings.LeaseName, metav1.GetOptions{})
	defaults := Tollgate{Installed: true, Leading: true, Terms: settings.DefaultEviction()}
	switch {
	case apierrors.IsNotFound(err):
		return Tollgate{}, fmt.Sprintf("Tollgate does not run here (there is no Lease %s/%s): the controllers of Kubernetes evict, past PodDisruptionBudgets and EvictionPolicies",
			namespace, settings.LeaseName), nil
	case apierrors.IsForbidden(err):
		return defaults, fmt.Sprintf("you may not read Lease %s/%s, so it is not known whether Tollgate runs: the answer is for one with the default configuration%s",
			namespace, settings.LeaseName, cli.Advice(err, "get", leaseResource)), nil
	case err != nil:
		return Tollgate{}, "", cli.Failed(err, "read Lease "+namespace+"/"+settings.LeaseName, "get", leaseResource)
	}
	found := defaults
	found.Leading = isLeading(lease, now)
	terms, err := settings.ParseEviction(lease.Labels)
	if err != nil {
		return found, fmt.Sprintf("Lease %s/%s does not say how Tollgate evicts (%v): the answer is for the default configuration", namespace, settings.LeaseName, err), nil
	}
	found.Terms, found.Told = terms, true
	if !found.Leading {
		return found, fmt.Sprintf("no Tollgate leads at the moment (Lease %s/%s is not renewed): what it evicts stays until one does", namespace, settings.LeaseName), nil
	}
	return found, "", nil
}

// Again returns a copy of c with the Lease as it is at now.
func (c *Cluster) Again(ctx context.Context, clients *cli.Clients, now time.Time) (*Cluster, error) {
	status, lack, err := readTollgate(ctx, clients, c.lease, now)
	if err != nil {
		return nil, err
	}
	again := *c
	again.Now, again.Tollgate, again.Rules, again.leaseLack, again.missing = now, status, status.rules(c.comparing), lack, nil
	if lack != "" {
		again.missing = append(again.missing, lack)
	}
	for _, sentence := range c.missing {
		if sentence != c.leaseLack {
			again.missing = append(again.missing, sentence)
		}
	}
	return &again, nil
}

// isLeading reports whether a lease is held. It allows a minute of clock skew.
func isLeading(lease *coordinationv1.Lease, now time.Time) bool {
	spec := &lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return false
	}
	const skew = time.Minute
	return now.Sub(spec.RenewTime.Time) < time.Duration(*spec.LeaseDurationSeconds)*time.Second+skew
}
