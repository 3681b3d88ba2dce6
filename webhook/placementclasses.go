package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deviceClasses says of which DeviceClasses a pod requests devices.
type deviceClasses interface {
	// OfPod returns the classes that the claims of a pod request, and those that stand
	// behind its extended resources.
	OfPod(ctx context.Context, namespace string, claims []corev1.PodResourceClaim, resources []string) ([]string, error)
}

// Claims that pods refer to are read from the API server at this rate. They are not
// cached: there can be as many as pods, and few pods refer to one that is not made
// from a template.
const (
	claimReads     = 100 // a second
	claimReadsOnce = 200
)

var errTooManyClaims = errors.New("too many claims are asked about")

// DeviceClasses reads which classes of devices are requested: by templates of claims
// and DeviceClasses from the cache, by single claims from the API server, and by what
// the cache does not know yet from there too. It is safe for concurrent use.
type DeviceClasses struct {
	cache, live client.Reader
	clock       clock.PassiveClock
	limit       *rate.Limiter
}

// NewDeviceClasses returns a reader of what devices are requested. Clock is this
// machine's.
func NewDeviceClasses(cache, live client.Reader, clock clock.PassiveClock) *DeviceClasses {
	return &DeviceClasses{cache: cache, live: live, clock: clock, limit: rate.NewLimiter(claimReads, claimReadsOnce)}
}

// OfPod implements deviceClasses. A claim or a template that does not exist yet
// requests nothing: when it is made, the pod has been placed.
func (c *DeviceClasses) OfPod(ctx context.Context, namespace string, claims []corev1.PodResourceClaim, resources []string) ([]string, error) {
	var names []string
	for i := range claims {
		requested, err := c.ofClaim(ctx, namespace, &claims[i])
		if err != nil {
			return nil, err
		}
		names = append(names, requested...)
	}
	behind, err := c.behind(ctx, extended(resources))
	if err != nil {
		return nil, err
	}
	names = append(names, behind...)
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (c *DeviceClasses) ofClaim(ctx context.Context, namespace string, claim *corev1.PodResourceClaim) ([]string, error) {
	switch {
	case claim.ResourceClaimTemplateName != nil:
		key := types.NamespacedName{Namespace: namespace, Name: *claim.ResourceClaimTemplateName}
		var template resourcev1.ResourceClaimTemplate
		err := c.cache.Get(ctx, key, &template)
		if apierrors.IsNotFound(err) {
			err = c.readLive(ctx, key, &template)
		}
		if absent(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read ResourceClaimTemplate %s: %w", key, err)
		}
		return classesOf(&template.Spec.Spec), nil
	case claim.ResourceClaimName != nil:
		key := types.NamespacedName{Namespace: namespace, Name: *claim.ResourceClaimName}
		var object resourcev1.ResourceClaim
		err := c.readLive(ctx, key, &object)
		if absent(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read ResourceClaim %s: %w", key, err)
		}
		return classesOf(&object.Spec), nil
	default:
		return nil, nil
	}
}

// absent reports whether err says that there is no such object, or no such API.
func absent(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}

func (c *DeviceClasses) readLive(ctx context.Context, key types.NamespacedName, into client.Object) error {
	if !c.limit.AllowN(c.clock.Now(), 1) {
		return errTooManyClaims
	}
	return c.live.Get(ctx, key, into)
}

// behind returns the classes whose devices satisfy extended resources.
func (c *DeviceClasses) behind(ctx context.Context, resources []string) ([]string, error) {
	if len(resources) == 0 {
		return nil, nil
	}
	var list resourcev1.DeviceClassList
	if err := c.cache.List(ctx, &list); absent(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list DeviceClasses: %w", err)
	}
	var names []string
	for i := range list.Items {
		class := &list.Items[i]
		named := class.Spec.ExtendedResourceName
		if named != nil && slices.Contains(resources, *named) || slices.Contains(resources, resourcev1.ResourceDeviceClassPrefix+class.Name) {
			names = append(names, class.Name)
		}
	}
	return names, nil
}

func classesOf(spec *resourcev1.ResourceClaimSpec) []string {
	var names []string
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Exactly != nil {
			names = append(names, request.Exactly.DeviceClassName)
		}
		for j := range request.FirstAvailable {
			names = append(names, request.FirstAvailable[j].DeviceClassName)
		}
	}
	return names
}
