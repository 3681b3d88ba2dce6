package certs

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// watch calls wake on changes of the Secret and of the named configurations. Each is
// watched by name, so that a Role with resourceNames suffices. A refresh does not use the
// caches; it reads from the API server.
func (c *ownCA) watch(ctx context.Context, wake func()) (func(), error) {
	var factories []informers.SharedInformerFactory
	watch := func(name string, informer func(informers.SharedInformerFactory) cache.SharedIndexInformer) error {
		factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0,
			informers.WithNamespace(c.options.Namespace),
			informers.WithTransform(nameOnly),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
			}))
		factories = append(factories, factory)
		return c.wakeOn(informer(factory), wake)
	}
	errs := []error{watch(c.options.SecretName, secrets)}
	for _, name := range c.options.ValidatingWebhooks {
		errs = append(errs, watch(name, validating))
	}
	for _, name := range c.options.MutatingWebhooks {
		errs = append(errs, watch(name, mutating))
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	for _, f := range factories {
		f.StartWithContext(ctx)
	}
	return func() {
		for _, f := range factories {
			f.Shutdown()
		}
	}, nil
}

func secrets(f informers.SharedInformerFactory) cache.SharedIndexInformer {
	return f.Core().V1().Secrets().Informer()
}

func validating(f informers.SharedInformerFactory) cache.SharedIndexInformer {
	return f.Admissionregistration().V1().ValidatingWebhookConfigurations().Informer()
}

func mutating(f informers.SharedInformerFactory) cache.SharedIndexInformer {
	return f.Admissionregistration().V1().MutatingWebhookConfigurations().Informer()
}

func (c *ownCA) wakeOn(informer cache.SharedIndexInformer, wake func()) error {
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		c.metrics.failed(reasonWatch)
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return fmt.Errorf("set watch error handler: %w", err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { wake() },
		UpdateFunc: func(any, any) { wake() },
		DeleteFunc: func(any) { wake() },
	})
	if err != nil {
		return fmt.Errorf("add event handler: %w", err)
	}
	return nil
}

// nameOnly keeps private keys out of the caches, which are not read.
func nameOnly(object any) (any, error) {
	meta, ok := object.(metav1.Object)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace:       meta.GetNamespace(),
		Name:            meta.GetName(),
		UID:             meta.GetUID(),
		ResourceVersion: meta.GetResourceVersion(),
	}}, nil
}
