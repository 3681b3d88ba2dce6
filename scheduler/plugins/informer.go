package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2" //nolint:depguard // The scheduler logs with it, and its contexts carry no logger.

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// informerOfPatches makes the informer of ResourceSlicePatches one of the factory's,
// with which it starts and is waited for. It has a client of its own: that of the scheduler asks
// for protobuf, which custom resources do not have.
func informerOfPatches(scheduler *rest.Config, factory informers.SharedInformerFactory) (cache.SharedIndexInformer, error) {
	if scheduler == nil {
		return nil, errors.New("create client for ResourceSlicePatches: the scheduler has no configuration of its client")
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register kinds of %s: %w", v1alpha1.GroupVersion, err)
	}
	config := rest.CopyConfig(scheduler)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create client for ResourceSlicePatches: %w", err)
	}
	watched := cache.NewListWatchFromClient(client, "resourceslicepatches", metav1.NamespaceAll, fields.Everything())
	addGates()
	return addInformer(factory, orNone(watched), utilfeature.DefaultFeatureGate.Enabled(ResourceSlicePatchAttributes))
}

// addInformer makes an informer of the objects that a source lists and watches. It is set up here, once,
// because every profile's plugins come by. Without attributes, patches do nothing but taint.
func addInformer(factory informers.SharedInformerFactory, source cache.ListerWatcher, attributes bool) (cache.SharedIndexInformer, error) {
	informer := factory.InformerFor(&v1alpha1.ResourceSlicePatch{}, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(source, &v1alpha1.ResourceSlicePatch{}, resync, cache.Indexers{})
	})
	err := informer.SetWatchErrorHandlerWithContext(reportWatchError)
	if err == nil && !attributes {
		err = informer.SetTransform(withoutAttributes)
	}
	if err != nil {
		return nil, fmt.Errorf("set up informer of ResourceSlicePatches: %w", err)
	}
	return informer, nil
}

// orNone lists no patches where the API server has no such kind. Else the scheduler
// would wait for it, and schedule nothing. That the kind is there later is found
// when the reflector, whose watch fails, lists again.
func orNone(source *cache.ListWatch) *cache.ListWatch {
	list := source.ListWithContextFunc
	source.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		patches, err := list(ctx, options)
		if apierrors.IsNotFound(err) {
			return &v1alpha1.ResourceSlicePatchList{}, nil
		}
		return patches, err
	}
	return source
}

func reportWatchError(ctx context.Context, reflector *cache.Reflector, err error) {
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("The API server has no ResourceSlicePatches, devices are used as published", "err", err)
		return
	}
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}
