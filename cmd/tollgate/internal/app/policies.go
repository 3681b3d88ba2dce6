package app

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/policies"
)

// judges reports whether the feature gate of a kind of policies is on.
func (p *program) judges(kind policyset.Kind) bool { return settings.Judges(p.features, kind) }

// addPolicies adds the store of policies and the watches of the objects that they refer to.
func (p *program) addPolicies(ctx context.Context) (*policies.Store, error) {
	store := policies.NewStore(policies.Options{
		Kinds:     settings.Kinds(p.features),
		Cache:     p.manager.GetCache(),
		Live:      p.manager.GetAPIReader(),
		Discovery: discovery.ToServerResourcesInterfaceWithContext(p.clientset.Discovery()),
		Clock:     p.local,
		Metrics:   policies.NewMetrics(ctrlmetrics.Registry),
	})
	if err := p.manager.Add(store); err != nil {
		return nil, fmt.Errorf("watch policies: %w", err)
	}
	// Informers start now, so that no review waits for the first list.
	for _, object := range []client.Object{&corev1.Namespace{}, &nodev1.RuntimeClass{}} {
		if _, err := p.manager.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watch what policies depend on: %w", err)
		}
	}
	if err := p.manager.Add(everyReplica(p.warm)); err != nil {
		return nil, fmt.Errorf("watch what policies depend on: %w", err)
	}
	return store, nil
}

// warm starts informers of kinds that reviews read now and then, so that the first such review
// does not wait. Errors are only logged: a cluster may not serve a kind, or not permit its watch.
func (p *program) warm(ctx context.Context) {
	var wanted []client.Object
	if p.features.Enabled(settings.TaintPolicies) {
		wanted = append(wanted, &v1alpha1.EvictionApproval{}, &corev1.Node{})
	}
	if p.features.Enabled(settings.PlacementPolicies) {
		wanted = append(wanted, &resourcev1.DeviceClass{}, &resourcev1.ResourceClaimTemplate{})
	}
	log := logr.FromContextOrDiscard(ctx)
	for _, object := range wanted {
		if _, err := p.manager.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			log.V(1).Info("not watched", "kind", fmt.Sprintf("%T", object), "reason", err.Error())
		}
	}
}
