package handlers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy/placement"
)

// deviceClasses says of which DeviceClasses a pod requests devices.
type deviceClasses interface {
	// OfPod returns the classes that the claims of a pod request, and those that stand
	// behind its extended resources. With a placement.MissingClaimError they are those
	// that are known.
	OfPod(ctx context.Context, namespace string, claims []corev1.PodResourceClaim, resources []string) ([]string, error)
}

// Claims that pods refer to are read from the API server at this rate. They are not
// cached: there can be as many as pods, and few pods refer to one that is not made
// from a template.
const (
	claimReads     = 100 // a second
	claimReadsOnce = 200
	// A namespace has a share of them: four that use all of theirs are needed to use up the
	// rate.
	claimReadsEach     = 25 // a second
	claimReadsOnceEach = 50
	// claimReadsReview is for one pod. Kubernetes has no limit on the claims of a pod.
	claimReadsReview = 16
	// sharesKept is the number of namespaces whose shares are remembered, and shareKept for
	// how long: by then a share is whole again.
	sharesKept = 4096
	shareKept  = claimReadsOnceEach / claimReadsEach * time.Second
	// missingKept is for how long it is remembered that a claim or a template does not exist:
	// as long as it takes to mutate and to validate a pod that refers to it.
	missingKept = time.Second
)

var (
	errTooManyClaims      = &UndecidedError{"too many ResourceClaims have to be read to decide; try again later"}
	errTooManyClaimsOfPod = &UndecidedError{fmt.Sprintf(
		"spec.resourceClaims: more than %d ResourceClaims and unknown templates would have to be read to decide; use fewer", claimReadsReview)}
)

// DeviceClasses reads which classes of devices are requested: by templates of claims
// and DeviceClasses from the cache, and by single claims, and objects that the cache does
// not know yet, from the API server. It is safe for concurrent use.
type DeviceClasses struct {
	cache, live client.Reader
	clock       clock.PassiveClock
	limit       *rate.Limiter

	mu sync.Mutex
	// shares are the limiters of namespaces, and missing the objects that did not exist a moment ago.
	shares, missing *utilcache.LRUExpireCache
}

// claimKey names a claim or a template.
type claimKey struct {
	types.NamespacedName

	kind string
}

// NewDeviceClasses returns a reader of the classes of requested devices. Clock is this
// machine's.
func NewDeviceClasses(cache, live client.Reader, clock clock.PassiveClock) *DeviceClasses {
	return &DeviceClasses{
		cache: cache, live: live, clock: clock, limit: rate.NewLimiter(claimReads, claimReadsOnce),
		shares: utilcache.NewLRUExpireCacheWithClock(sharesKept, clock), missing: utilcache.NewLRUExpireCacheWithClock(sharesKept, clock),
	}
}

// OfPod implements deviceClasses.
func (c *DeviceClasses) OfPod(ctx context.Context, namespace string, claims []corev1.PodResourceClaim, resources []string) ([]string, error) {
	var names []string
	var missing *placement.MissingClaimError
	reads := 0
	for i := range claims {
		requested, err := c.ofClaim(ctx, namespace, &claims[i], &reads)
		if err != nil && !errors.As(err, &missing) {
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
	names = slices.Compact(names)
	if missing != nil {
		return names, missing
	}
	return names, nil
}

// ofClaim returns the classes that one claim of a pod requests. Reads counts the reads for
// the pod from the API server.
func (c *DeviceClasses) ofClaim(ctx context.Context, namespace string, claim *corev1.PodResourceClaim, reads *int) ([]string, error) {
	key := claimKey{types.NamespacedName{Namespace: namespace}, "ResourceClaim"}
	var spec resourcev1.ResourceClaimSpec
	var err error
	switch {
	case claim.ResourceClaimTemplateName != nil:
		key.Name, key.kind = *claim.ResourceClaimTemplateName, "ResourceClaimTemplate"
		var template resourcev1.ResourceClaimTemplate
		if err = c.cache.Get(ctx, key.NamespacedName, &template); apierrors.IsNotFound(err) {
			err = c.readLive(ctx, key, &template, reads)
		}
		spec = template.Spec.Spec
	case claim.ResourceClaimName != nil:
		key.Name = *claim.ResourceClaimName
		var object resourcev1.ResourceClaim
		err = c.readLive(ctx, key, &object, reads)
		spec = object.Spec
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, &placement.MissingClaimError{Kind: key.kind, Name: key.Name}
	case meta.IsNoMatchError(err):
		return nil, nil // Where the API is not served, there are no claims, and no devices.
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", key.kind, key.NamespacedName, err)
	}
	return classesOf(&spec), nil
}

// readLive reads from the API server, within the limits of the review, of the namespace and of
// all.
func (c *DeviceClasses) readLive(ctx context.Context, key claimKey, into client.Object, reads *int) error {
	if known, ok := c.missing.Get(key); ok {
		return known.(error) //nolint:forcetypeassert // Nothing else is in there.
	}
	if *reads++; *reads > claimReadsReview {
		return errTooManyClaimsOfPod
	}
	if !c.allow(key.Namespace) {
		return errTooManyClaims
	}
	err := c.live.Get(ctx, key.NamespacedName, into)
	if apierrors.IsNotFound(err) {
		c.missing.Add(key, err, missingKept)
	}
	return err
}

// allow reports whether a namespace may have a claim read now.
func (c *DeviceClasses) allow(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	share := rate.NewLimiter(claimReadsEach, claimReadsOnceEach)
	if known, ok := c.shares.Get(namespace); ok {
		share = known.(*rate.Limiter) //nolint:forcetypeassert // Nothing else is in there.
	}
	c.shares.Add(namespace, share, shareKept)
	return share.AllowN(now, 1) && c.limit.AllowN(now, 1)
}

// behind returns the classes whose devices satisfy extended resources.
func (c *DeviceClasses) behind(ctx context.Context, resources []string) ([]string, error) {
	if len(resources) == 0 {
		return nil, nil
	}
	var list resourcev1.DeviceClassList
	if err := c.cache.List(ctx, &list); apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list DeviceClasses: %w", err)
	}
	var names []string
	for _, class := range list.Items {
		named := class.Spec.ExtendedResourceName
		if named != nil && slices.Contains(resources, *named) || slices.Contains(resources, resourcev1.ResourceDeviceClassPrefix+class.Name) {
			names = append(names, class.Name)
		}
	}
	return names, nil
}

func classesOf(spec *resourcev1.ResourceClaimSpec) []string {
	var names []string
	for _, request := range spec.Devices.Requests {
		if request.Exactly != nil {
			names = append(names, request.Exactly.DeviceClassName)
		}
		for _, alternative := range request.FirstAvailable {
			names = append(names, alternative.DeviceClassName)
		}
	}
	return names
}

// extended returns which of the resources could be of devices: a DeviceClass can
// stand behind any that Kubernetes does not define itself.
func extended(resources []string) []string {
	return slices.DeleteFunc(slices.Clone(resources), func(name string) bool {
		return !isExtendedResource(name) && !strings.HasPrefix(name, resourcev1.ResourceDeviceClassPrefix)
	})
}
