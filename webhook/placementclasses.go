package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
// from a template. Each namespace has a share, so that nobody is refused because of what
// others create.
const (
	claimReads          = 100 // a second
	claimReadsOnce      = 200
	claimReadsShare     = 20
	claimReadsShareOnce = 40
	// mostClaimReads is how many are read for one pod.
	mostClaimReads = 16
	// missingFor is for how long it is remembered that a claim does not exist: as long as
	// it takes to mutate and to validate a pod that refers to it.
	missingFor = time.Second
	// mostRemembered bounds the namespaces and the missing claims that are remembered.
	mostRemembered = 10_000
)

var errTooManyClaims = errors.New("too many claims are asked about")

// DeviceClasses reads which classes of devices are requested: by templates of claims
// and DeviceClasses from the cache, by single claims from the API server, and by what
// the cache does not know yet from there too. It is safe for concurrent use.
type DeviceClasses struct {
	cache, live client.Reader
	clock       clock.PassiveClock
	limit       *rate.Limiter

	mu sync.Mutex
	// shares are those of namespaces that have used some of it.
	shares map[string]*rate.Limiter
	// missing is when claims were found not to exist.
	missing map[claimKey]time.Time
}

// claimKey names a claim or a template.
type claimKey struct {
	kind string
	types.NamespacedName
}

// NewDeviceClasses returns a reader of what devices are requested. Clock is this
// machine's.
func NewDeviceClasses(cache, live client.Reader, clock clock.PassiveClock) *DeviceClasses {
	return &DeviceClasses{cache: cache, live: live, clock: clock, limit: rate.NewLimiter(claimReads, claimReadsOnce),
		shares: map[string]*rate.Limiter{}, missing: map[claimKey]time.Time{}}
}

// OfPod implements deviceClasses.
func (c *DeviceClasses) OfPod(ctx context.Context, namespace string, claims []corev1.PodResourceClaim, resources []string) ([]string, error) {
	var names []string
	var missing *placement.MissingClaimError
	reads := mostClaimReads
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

// ofClaim returns the classes that one claim of a pod requests. Reads is how many more may be
// read for the pod.
func (c *DeviceClasses) ofClaim(ctx context.Context, namespace string, claim *corev1.PodResourceClaim, reads *int) ([]string, error) {
	switch {
	case claim.ResourceClaimTemplateName != nil:
		key := types.NamespacedName{Namespace: namespace, Name: *claim.ResourceClaimTemplateName}
		var template resourcev1.ResourceClaimTemplate
		err := c.cache.Get(ctx, key, &template)
		if apierrors.IsNotFound(err) {
			err = c.readLive(ctx, claimKey{"ResourceClaimTemplate", key}, &template, reads)
		}
		if err != nil {
			return nil, ofUnread("ResourceClaimTemplate", key, err)
		}
		return classesOf(&template.Spec.Spec), nil
	case claim.ResourceClaimName != nil:
		key := types.NamespacedName{Namespace: namespace, Name: *claim.ResourceClaimName}
		var object resourcev1.ResourceClaim
		if err := c.readLive(ctx, claimKey{"ResourceClaim", key}, &object, reads); err != nil {
			return nil, ofUnread("ResourceClaim", key, err)
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

// ofUnread returns what it says of a pod that a claim could not be read. Where the API is not
// served, there are no claims, and no devices.
func ofUnread(kind string, key types.NamespacedName, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return &placement.MissingClaimError{Kind: kind, Name: key.Name}
	case meta.IsNoMatchError(err):
		return nil
	}
	return fmt.Errorf("read %s %s: %w", kind, key, err)
}

func (c *DeviceClasses) readLive(ctx context.Context, key claimKey, into client.Object, reads *int) error {
	now := c.clock.Now()
	if c.isMissing(key, now) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: key.kind}, key.Name)
	}
	if *reads--; *reads < 0 {
		return fmt.Errorf("%w: the pod refers to more than %d that have to be read", errTooManyClaims, mostClaimReads)
	}
	if !c.share(key.Namespace, now).AllowN(now, 1) || !c.limit.AllowN(now, 1) {
		return errTooManyClaims
	}
	err := c.live.Get(ctx, key.NamespacedName, into)
	if apierrors.IsNotFound(err) {
		c.remember(key, now)
	}
	return err
}

// share returns the limit of a namespace.
func (c *DeviceClasses) share(namespace string, now time.Time) *rate.Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	share, ok := c.shares[namespace]
	if !ok {
		if len(c.shares) >= mostRemembered {
			maps.DeleteFunc(c.shares, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= claimReadsShareOnce })
		}
		share = rate.NewLimiter(claimReadsShare, claimReadsShareOnce)
		c.shares[namespace] = share
	}
	return share
}

// isMissing reports whether a claim was found not to exist just now.
func (c *DeviceClasses) isMissing(key claimKey, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.missing[key]
	return ok && now.Sub(at) < missingFor
}

func (c *DeviceClasses) remember(key claimKey, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.missing) >= mostRemembered {
		maps.DeleteFunc(c.missing, func(_ claimKey, at time.Time) bool { return now.Sub(at) >= missingFor })
	}
	if len(c.missing) < mostRemembered {
		c.missing[key] = now
	}
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
