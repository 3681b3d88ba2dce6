package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// runtimeClasses returns the tolerations of a RuntimeClass.
type runtimeClasses interface {
	Tolerations(ctx context.Context, runtimeClass string) ([]corev1.Toleration, error)
}

// RuntimeClasses reads RuntimeClasses: from the cache, and from the API server
// where the cache does not know the class yet. The API server does the same, so
// the first pod of a new class is not refused what the class brings.
// It is safe for concurrent use.
type RuntimeClasses struct {
	cache, live client.Reader
	clock       clock.PassiveClock
	limit       *rate.Limiter
}

// NewRuntimeClasses returns a reader of RuntimeClasses. Clock is this machine's.
func NewRuntimeClasses(cache, live client.Reader, clock clock.PassiveClock) *RuntimeClasses {
	return &RuntimeClasses{cache: cache, live: live, clock: clock, limit: rate.NewLimiter(liveReads, liveReadsOnce)}
}

var errTooManyRuntimeClasses = errors.New("too many unknown RuntimeClasses are asked about")

// Tolerations returns what the API server adds to pods of a RuntimeClass
// (TP-19). A class that does not exist adds nothing.
func (r *RuntimeClasses) Tolerations(ctx context.Context, runtimeClass string) ([]corev1.Toleration, error) {
	var class nodev1.RuntimeClass
	key := types.NamespacedName{Name: runtimeClass}
	err := r.cache.Get(ctx, key, &class)
	if apierrors.IsNotFound(err) {
		if !r.limit.AllowN(r.clock.Now(), 1) {
			return nil, errTooManyRuntimeClasses
		}
		err = r.live.Get(ctx, key, &class)
	}
	if apierrors.IsNotFound(err) || (err == nil && class.Scheduling == nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read RuntimeClass %s: %w", runtimeClass, err)
	}
	return class.Scheduling.Tolerations, nil
}

// additions knows which tolerations an administrator's settings give to pods by way of
// admission plugins of the API server, which run before webhooks. They are no choice
// of the user who creates the pod.
type additions struct {
	runtimeClasses runtimeClasses
	// extendedResources says whether the API server adds tolerations for extended
	// resources.
	extendedResources bool
	// podTolerationRestriction says whether the API server adds a toleration for
	// memory pressure.
	podTolerationRestriction bool
}

// added is what is added to a pod.
type added struct {
	bySettings []corev1.Toleration
	// forResources is added because of what the pod requests. A scheduler sees to it
	// that such a pod only goes to a node that has it; past the scheduler nobody does,
	// because kubelets let in what their nodes do not have.
	forResources []corev1.Toleration
}

// of returns what is added to pod. Raw is its JSON.
func (a *additions) of(ctx context.Context, pod *corev1.Pod, raw []byte) (added, error) {
	if len(pod.Spec.Tolerations) == 0 {
		return added{}, nil
	}
	var to added
	if class := pod.Spec.RuntimeClassName; class != nil {
		ofClass, err := a.runtimeClasses.Tolerations(ctx, *class)
		if err != nil {
			return added{}, err
		}
		to.bySettings = append(to.bySettings, ofClass...)
	}
	if a.podTolerationRestriction {
		// TP-03; of pods of every quality of service, because the plugin adds it to
		// most and it is a small thing to have.
		to.bySettings = append(to.bySettings, corev1.Toleration{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	if !a.extendedResources {
		return to, nil
	}
	var err error
	to.forResources, err = extendedResourceTolerations(raw)
	return to, err
}

// containerFields are the fields of a pod that say which resources it requests.
type containerFields struct {
	Spec struct {
		Containers     json.RawMessage `json:"containers"`
		InitContainers json.RawMessage `json:"initContainers"`
	} `json:"spec"`
}

type resourcesOfContainer struct {
	Resources struct {
		Requests map[string]json.RawMessage `json:"requests"`
	} `json:"resources"`
}

// extendedResourceTolerations returns what the plugin ExtendedResourceToleration
// adds: a toleration of the taint named like each extended resource that a
// container requests (TP-16). It adds that for a request of zero too. Such a pod fits
// on any node, so to request nothing would be a way to tolerate anything: it is left
// out here, and judged like what a user writes.
func extendedResourceTolerations(raw []byte) ([]corev1.Toleration, error) {
	var fields containerFields
	if err := unmarshal(raw, &fields); err != nil {
		return nil, &badReviewError{fmt.Errorf("decode pod: %w", err)}
	}
	var containers, initContainers []resourcesOfContainer
	err := errors.Join(
		decodeField(fields.Spec.Containers, "spec.containers", &containers),
		decodeField(fields.Spec.InitContainers, "spec.initContainers", &initContainers),
	)
	if err != nil {
		return nil, &badReviewError{err}
	}
	requested := map[string]bool{}
	for _, container := range append(containers, initContainers...) {
		for name, quantity := range container.Resources.Requests {
			if requested[name] || !isExtendedResource(name) {
				continue
			}
			some, err := isSome(quantity)
			if err != nil {
				return nil, &badReviewError{fmt.Errorf("decode the request of %s: %w", clip(name), err)}
			}
			if some {
				requested[name] = true
			}
		}
	}
	tolerations := make([]corev1.Toleration, 0, len(requested))
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		tolerations = append(tolerations, corev1.Toleration{
			Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return tolerations, nil
}

// isSome reports whether a quantity is more than zero.
func isSome(raw json.RawMessage) (bool, error) {
	var quantity apiresource.Quantity
	err := quantity.UnmarshalJSON(raw)
	return quantity.Sign() > 0, err
}

// isExtendedResource reports whether a resource is one that neither Kubernetes
// nor its quota defines.
func isExtendedResource(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}
