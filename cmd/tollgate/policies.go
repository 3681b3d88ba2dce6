package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/features"
	"github.com/tollgate-dev/tollgate/policy/tolerations"
	"github.com/tollgate-dev/tollgate/webhook/snapshot"
)

// noPolicies stands for the store where the capability is switched off.
type noPolicies struct{}

// Tolerations returns a set without policies, which allows everything.
func (noPolicies) Tolerations() *tolerations.Set { return tolerations.Compile(nil) }

// addPolicies adds the store of policies and, on the leader, what writes their
// status. It returns nil where the capability is switched off.
func (p *program) addPolicies(ctx context.Context) (*snapshot.Store, error) {
	enabled := p.features.Enabled(features.TolerationPolicies)
	if err := snapshot.AddStatus(p.manager, p.clock, p.leads, enabled); err != nil {
		return nil, err
	}
	if !enabled {
		return nil, nil //nolint:nilnil // Off is neither a store nor an error.
	}
	store := snapshot.NewStore(p.manager.GetCache(), p.local, snapshot.NewMetrics(ctrlmetrics.Registry))
	if err := p.manager.Add(store); err != nil {
		return nil, fmt.Errorf("watch policies: %w", err)
	}
	// Asked for now, so that no review waits for the first list.
	namespaces := &metav1.PartialObjectMetadata{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	for _, object := range []client.Object{namespaces, &nodev1.RuntimeClass{}} {
		if _, err := p.manager.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watch what policies depend on: %w", err)
		}
	}
	return store, nil
}
