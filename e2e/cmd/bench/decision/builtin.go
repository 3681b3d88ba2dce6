package decision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/devicetainteviction"
)

// informer hands out the handler that a controller adds, so that its events can be
// delivered, and timed, without goroutines in between. It is never started.
type informer struct {
	cache.SharedIndexInformer

	handlers chan cache.ResourceEventHandler
}

func newInformer(inner cache.SharedIndexInformer) *informer {
	return &informer{SharedIndexInformer: inner, handlers: make(chan cache.ResourceEventHandler, 1)}
}

// AddEventHandlerWithOptions implements [cache.SharedIndexInformer].
func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers <- handler
	return i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
}

type (
	podInformer struct {
		coreinformers.PodInformer
		informer *informer
	}
	claimInformer struct {
		resourceinformers.ResourceClaimInformer
		informer *informer
	}
	sliceInformer struct {
		resourceinformers.ResourceSliceInformer
		informer *informer
	}
	ruleInformer struct {
		resourceinformers.DeviceTaintRuleInformer
		informer *informer
	}
)

// Informer implements the interface of the embedded informer.
func (i podInformer) Informer() cache.SharedIndexInformer { return i.informer }

// Informer implements the interface of the embedded informer.
func (i claimInformer) Informer() cache.SharedIndexInformer { return i.informer }

// Informer implements the interface of the embedded informer.
func (i sliceInformer) Informer() cache.SharedIndexInformer { return i.informer }

// Informer implements the interface of the embedded informer.
func (i ruleInformer) Informer() cache.SharedIndexInformer { return i.informer }

// Builtin returns how long the handler of the built-in controller takes for the
// rule: it decides about all pods before it returns.
func (c *Cluster) Builtin(ctx context.Context, logger logr.Logger) (took time.Duration, err error) {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	resources := factory.Resource().V1()
	pods := podInformer{factory.Core().V1().Pods(), newInformer(factory.Core().V1().Pods().Informer())}
	claims := claimInformer{resources.ResourceClaims(), newInformer(resources.ResourceClaims().Informer())}
	slices := sliceInformer{resources.ResourceSlices(), newInformer(resources.ResourceSlices().Informer())}
	rules := ruleInformer{resources.DeviceTaintRules(), newInformer(resources.DeviceTaintRules().Informer())}
	controller := devicetainteviction.New(client, pods, claims, slices, rules, resources.DeviceClasses(), "measured")

	ctx, cancel := context.WithCancel(logr.NewContext(ctx, logger))
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx, 0) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	for _, pod := range c.pods {
		if err := pods.informer.GetIndexer().Add(pod); err != nil {
			return 0, fmt.Errorf("keep pod: %w", err)
		}
	}
	// The order in which the controller adds its handlers.
	onClaim, onPod, onRule, onSlice := <-claims.informer.handlers, <-pods.informer.handlers, <-rules.informer.handlers, <-slices.informer.handlers
	// Claims come before slices: the other way round, each claim is looked for in
	// all slices of its pool, which is not what is measured here.
	for _, claim := range c.claims {
		onClaim.OnAdd(claim, true)
	}
	for _, slice := range c.slices {
		onSlice.OnAdd(slice, true)
	}
	for _, pod := range c.pods {
		onPod.OnAdd(pod, true)
	}
	start := time.Now()
	onRule.OnAdd(c.rule, false)
	return time.Since(start), nil
}
