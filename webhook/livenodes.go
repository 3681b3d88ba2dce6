package webhook

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// liveNodes reads the taints of nodes from the API server itself, so that a taint that
// was set a moment ago already counts (C04). Anyone who may create pods can cause such
// reads, by a dry run too: beyond the rate the taints are the cache's, which lags by
// as much as a watch does, and nobody is kept waiting by what somebody else does. It is
// safe for concurrent use.
type liveNodes struct {
	live *live
	// cache is nil where there is none. Too many reads are no verdict then.
	cache   client.Reader
	flights flights[nodeTaints]
}

// nodeTaints are the taints of a node, if it exists.
type nodeTaints struct {
	taints []corev1.Taint
	exists bool
}

func newLiveNodes(reader, cache client.Reader, clock clock.PassiveClock) *liveNodes {
	return &liveNodes{live: newLive(reader, clock), cache: cache, flights: flights[nodeTaints]{clock: clock}}
}

// taints returns the taints of a node; false when it does not exist.
func (n *liveNodes) taints(ctx context.Context, name string) ([]corev1.Taint, bool, error) {
	got, err := n.flights.read(ctx, name, n.live.clock.Now(), func(ctx context.Context) (nodeTaints, error) {
		var node corev1.Node
		found, err := n.live.read(ctx, "", name, &node)
		return nodeTaints{node.Spec.Taints, found}, err
	})
	if errors.Is(err, errTooManyReads) && n.cache != nil {
		return n.cached(ctx, name)
	}
	return got.value.taints, got.value.exists, err
}

func (n *liveNodes) cached(ctx context.Context, name string) ([]corev1.Taint, bool, error) {
	var node corev1.Node
	err := n.cache.Get(ctx, types.NamespacedName{Name: name}, &node)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read node %s from the cache: %w", name, err)
	}
	return node.Spec.Taints, true, nil
}
