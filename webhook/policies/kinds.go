package policies

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// objects are policies of one kind.
type objects []policyset.Object

// cached returns the policies of a kind that are in a cache. They belong to the cache and
// must not be written to.
func (w *watched) cached(ctx context.Context, from reader) (objects, error) {
	return w.read(ctx, from, client.UnsafeDisableDeepCopy)
}

// read returns the policies of a kind, not nil without an error.
func (w *watched) read(ctx context.Context, from reader, opts ...client.ListOption) (objects, error) {
	list := w.NewList()
	if err := from.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("list %s: %w", w.Resource, err)
	}
	return w.Items(list), nil
}

// generations returns the generations of policies by their UIDs.
func (o objects) generations() map[types.UID]int64 {
	generations := make(map[types.UID]int64, len(o))
	for _, p := range o {
		generations[p.GetUID()] = p.GetGeneration()
	}
	return generations
}

// uids returns the UIDs of policies.
func (o objects) uids() map[types.UID]struct{} {
	uids := make(map[types.UID]struct{}, len(o))
	for _, p := range o {
		uids[p.GetUID()] = struct{}{}
	}
	return uids
}

// keep returns the stored policies together with those in force that are lost: neither they
// nor others of their names are stored. It reports whether there are such.
func keep(inForce, stored objects) (both objects, lost bool) {
	names := make(map[string]struct{}, len(stored))
	for _, p := range stored {
		names[p.GetName()] = struct{}{}
	}
	both = slices.Clone(stored)
	for _, p := range inForce {
		if _, ok := names[p.GetName()]; !ok {
			both = append(both, p)
		}
	}
	return both, len(both) > len(stored)
}
