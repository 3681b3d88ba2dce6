package webhook

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// live reads objects from the API server itself: verdicts about them must not hang on
// what a cache has not heard of yet. It is safe for concurrent use.
type live struct {
	reader client.Reader
	clock  clock.PassiveClock
	limit  *rate.Limiter
}

// newLive returns a reader with a rate of its own, so that those who cause one kind
// of reads cannot keep others from being made.
func newLive(reader client.Reader, clock clock.PassiveClock) *live {
	return &live{reader: reader, clock: clock, limit: rate.NewLimiter(confirmations, confirmationsOnce)}
}

var errTooManyReads = errors.New("too many objects have to be read to decide")

// read reads an object, and reports whether it exists.
func (l *live) read(ctx context.Context, namespace, name string, into client.Object) (bool, error) {
	if !l.limit.AllowN(l.clock.Now(), 1) {
		return false, errTooManyReads
	}
	err := l.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %T %s: %w", into, types.NamespacedName{Namespace: namespace, Name: name}, err)
	}
	return true, nil
}

// pod returns a pod, or nil when it does not exist.
func (l *live) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	var pod corev1.Pod
	if found, err := l.read(ctx, namespace, name, &pod); err != nil || !found {
		return nil, err
	}
	return &pod, nil
}

// claimTemplate returns the device requests of a ResourceClaimTemplate; none when it
// does not exist.
func (l *live) claimTemplate(ctx context.Context, namespace, name string) ([]resourcev1.DeviceRequest, error) {
	var template resourcev1.ResourceClaimTemplate
	_, err := l.read(ctx, namespace, name, &template)
	return template.Spec.Spec.Devices.Requests, err
}

// podGroupTemplates returns, by the name of each claim that a PodGroup asks for, the
// template it is made from. The API of groups has several versions, and apiVersion says which
// is served (VS-08).
func (l *live) podGroupTemplates(ctx context.Context, namespace, apiVersion, name string, uid types.UID) (map[string]string, error) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, fmt.Errorf("parse apiVersion of PodGroup: %w", err)
	}
	var group unstructured.Unstructured
	group.SetGroupVersionKind(version.WithKind("PodGroup"))
	found, err := l.read(ctx, namespace, name, &group)
	if err != nil || !found || group.GetUID() != uid {
		return nil, err
	}
	claims, _, err := unstructured.NestedSlice(group.Object, "spec", "resourceClaims")
	if err != nil {
		return nil, fmt.Errorf("read the claims of PodGroup %s/%s: %w", namespace, name, err)
	}
	templates := make(map[string]string, len(claims))
	for _, claim := range claims {
		fields, ok := claim.(map[string]any)
		if !ok {
			continue
		}
		claimName, _, _ := unstructured.NestedString(fields, "name")
		template, _, _ := unstructured.NestedString(fields, "resourceClaimTemplateName")
		if template != "" {
			templates[claimName] = template
		}
	}
	return templates, nil
}
