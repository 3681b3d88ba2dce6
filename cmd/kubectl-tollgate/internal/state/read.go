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

// reading reads a cluster. Each of its lists writes to fields of its own.
type reading struct {
	*cli.Clients

	wants    Wants
	cluster  *Cluster
	policies policies
	// slices and classes say that they could be read.
	slices, classes bool
}

// list is one kind of object.
type list struct {
	resource schema.GroupResource
	// without is what an answer lacks for whoever may not see it; empty where there is no
	// answer then.
	without string
	read    func(ctx context.Context) error
}

// Read reads the cluster as it is at now. Errors say what to do about them.
func Read(ctx context.Context, clients *cli.Clients, now time.Time, wants Wants) (*Cluster, error) {
	if wants.Lease == "" {
		wants.Lease = settings.LeaseNamespace
	}
	r := &reading{Clients: clients, wants: wants, cluster: &Cluster{
		Now: now, Tracker: tracker.New(), Policies: policyset.None(), namespaces: map[string]labels.Set{}, unread: map[string]bool{},
	}}
	if wants.Selection {
		r.cluster.devices = sliceview.New()
	}
	lists := append(r.core(), r.ours()...)
	if !wants.NoDevices {
		lists = append(lists, r.ofDevices()...)
	}
	if err := r.all(ctx, lists); err != nil {
		return nil, err
	}
	r.finish()
	return r.cluster, nil
}

// all reads Tollgate's Lease and the lists, beside each other.
func (r *reading) all(ctx context.Context, lists []list) error {
	lacks, refusals := make([]string, 1+len(lists)), make([]error, len(lists))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		r.cluster.Tollgate, lacks[0], err = readTollgate(ctx, r.Clients, r.wants.Lease, r.cluster.Now)
		return err
	})
	for i := range lists {
		group.Go(func() (err error) {
			lacks[1+i], err = lists[i].try(ctx)
			if apierrors.IsForbidden(err) { // What else is refused is to be said as well.
				refusals[i], err = err, nil
			}
			return err
		})
	}
	if err := cmp.Or(group.Wait(), together(refusals)); err != nil {
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

// together returns errors as one, in one line; nil for none.
func together(errs []error) error {
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

// try reads a list, and returns what is to be said if the user may not. What is not served
// lacks nothing: there is none.
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

// finish puts together what depends on several lists.
func (r *reading) finish() {
	c := r.cluster
	c.Rules = c.Tollgate.rules(c.comparing)
	c.selectable = r.slices && r.classes
	r.policies.into(c)
	if c.ownClaims {
		c.missing = append(c.missing, "you may list resourceclaims in namespace "+r.wants.Namespace+" alone: which devices the claims of others have is not known")
	}
	// A forecast asks for more than that devices are known, see DevicesKnown.
	c.Tracker.SetDevicesKnown(c.claimsKnown)
}
