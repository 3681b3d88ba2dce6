package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/sliceview"
)

// reader reads a cluster. Its lists run concurrently and write to different fields.
type reader struct {
	*cli.Clients

	wants    Wants
	cluster  *Cluster
	policies policies
	// slices and classes are true if they were read.
	slices, classes bool
}

// list is one kind of object.
type list struct {
	resource schema.GroupResource
	// without describes the effect of a forbidden list; empty if the list is required.
	without string
	read    func(ctx context.Context) error
}

// Read reads a snapshot of the cluster at now. Errors have advice.
func Read(ctx context.Context, clients *cli.Clients, now time.Time, wants Wants) (*Cluster, error) {
	if wants.Lease == "" {
		wants.Lease = settings.LeaseNamespace
	}
	r := &reader{Clients: clients, wants: wants, cluster: &Cluster{
		Now: now, Tracker: tracker.New(), Policies: policyset.None(), namespaces: map[string]labels.Set{}, unread: map[string]bool{},
	}}
	if wants.Selection {
		r.cluster.devices = sliceview.New()
	}
	lists := append(r.core(), r.policyLists()...)
	if !wants.NoDevices {
		lists = append(lists, r.deviceLists()...)
	}
	if err := r.all(ctx, lists); err != nil {
		return nil, err
	}
	r.finish()
	return r.cluster, nil
}

// all reads Tollgate's Lease and the lists concurrently.
func (r *reader) all(ctx context.Context, lists []list) error {
	lacks, refusals := make([]string, 1+len(lists)), make([]error, len(lists))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		r.cluster.Tollgate, lacks[0], err = readTollgate(ctx, r.Clients, r.wants.Lease, r.cluster.Now)
		return err
	})
	for i := range lists {
		group.Go(func() (err error) {
			lacks[1+i], err = lists[i].try(ctx)
			if apierrors.IsForbidden(err) { // The other errors are reported too.
				refusals[i], err = err, nil
			}
			return err
		})
	}
	if err := cmp.Or(group.Wait(), joinErrors(refusals)); err != nil {
		return err
	}
	r.cluster.lease, r.cluster.leaseLack = r.wants.Lease, lacks[0]
	for i, lack := range lacks {
		if lack == "" {
			continue
		}
		r.cluster.missing = append(r.cluster.missing, lack)
		if i > 0 {
			r.cluster.unread[lists[i-1].resource.Resource] = true
		}
	}
	return nil
}

// joinErrors joins errors in one line; nil for none.
func joinErrors(errs []error) error {
	var all error
	for _, err := range errs {
		switch {
		case all == nil:
			all = err
		case err != nil:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

// try reads a list, and returns a sentence for Missing if it is forbidden. A resource that is not
// served is empty.
func (l *list) try(ctx context.Context) (lack string, err error) {
	err = l.read(ctx)
	switch {
	case l.without == "":
		return "", err
	case errors.Is(err, cli.ErrNotServed):
		return "", nil
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("you may not list %s: %s%s", l.resource.Resource, l.without, cli.Advice(err, "list", l.resource)), nil
	default:
		return "", err
	}
}

// finish computes the fields that depend on several lists.
func (r *reader) finish() {
	c := r.cluster
	c.Rules = c.Tollgate.rules(c.comparing)
	c.selectable = r.slices && r.classes
	r.policies.into(c)
	if c.ownClaims {
		c.missing = append(c.missing, "you may list resourceclaims in namespace "+r.wants.Namespace+" alone: which devices the claims of others have is not known")
	}
	// A preview also checks DevicesKnown.
	c.Tracker.SetDevicesKnown(c.claimsKnown)
}
