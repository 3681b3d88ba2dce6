package evictor

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	resourcev1client "k8s.io/client-go/kubernetes/typed/resource/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// prefixes are what stands before the names of objects in the fake API's store, by
// resource.
var prefixes = map[string]string{
	"resourceslices": "slice:", "devicetaintrules": "rule:", "resourceclaims": "claim:",
}

func resourceOf(obj runtime.Object) string {
	switch obj.(type) {
	case *corev1.Node:
		return "nodes"
	case *corev1.Pod:
		return "pods"
	case *resourcev1.ResourceSlice:
		return "resourceslices"
	case *resourcev1.DeviceTaintRule:
		return "devicetaintrules"
	case *resourcev1.ResourceClaim:
		return "resourceclaims"
	}
	return ""
}

// deviceFeed passes changes of slices, rules and claims on as their informers do.
type deviceFeed struct {
	feed     *informer.DeviceFeed
	handlers map[string]toolscache.ResourceEventHandler
}

func newDeviceFeed(known *tracker.Tracker, evictor *Evictor, clk clock.PassiveClock) *deviceFeed {
	feed := informer.NewDeviceFeed(known, evictor, clk)
	return &deviceFeed{feed: feed, handlers: map[string]toolscache.ResourceEventHandler{
		"resourceslices": feed.Slices(), "devicetaintrules": feed.Rules(), "resourceclaims": feed.Claims(),
	}}
}

// synced says that everything was listed.
func (d *deviceFeed) synced() { d.feed.SetKnown(true) }

// The driver and the pool of all devices that are not said to be elsewhere.
const (
	driverX = "gpu.example.com"
	poolX   = "pool"
)

// deviceTaint returns a NoExecute taint with the time that it has now.
func deviceTaint(key string) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{
		Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(time.Now().Truncate(time.Second))),
	}
}

// newSlice returns a slice with one device.
func newSlice(name string, generation int64, device string, taints ...resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-slice-uid")},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driverX, Pool: resourcev1.ResourcePool{Name: poolX, Generation: generation, ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: device, Taints: taints}},
		},
	}
}

// newRule returns a rule that taints a device, or all of the driver if none is
// named.
func newRule(name, device string, taint resourcev1.DeviceTaint) *resourcev1.DeviceTaintRule {
	selector := &resourcev1.DeviceTaintSelector{Driver: new(driverX)}
	if device != "" {
		selector.Device = &device
	}
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name + "-rule-uid"), Generation: 1, CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)),
		},
		Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: taint},
	}
}

// newClaim returns a claim that is allocated a device and reserved for pods.
func newClaim(name, device string, tolerations []resourcev1.DeviceToleration, pods ...string) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-claim-uid")},
		Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "r", Driver: driverX, Pool: poolX, Device: device, Tolerations: tolerations,
			}}},
		}},
	}
	for _, pod := range pods {
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod, UID: types.UID(pod + "-uid"),
		})
	}
	return claim
}

// using returns pod with a claim that it names.
func using(pod *corev1.Pod, claim string) *corev1.Pod {
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
	return pod
}

// tolerated returns a toleration of a key for some seconds, for ever when negative.
func tolerated(key string, seconds int64) []resourcev1.DeviceToleration {
	toleration := resourcev1.DeviceToleration{
		Key: key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute,
	}
	if seconds >= 0 {
		toleration.TolerationSeconds = &seconds
	}
	return []resourcev1.DeviceToleration{toleration}
}

// several joins tolerations.
func several(lists ...[]resourcev1.DeviceToleration) []resourcev1.DeviceToleration {
	var all []resourcev1.DeviceToleration
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// typedCarriers implements Carriers by resource.k8s.io/v1.
type typedCarriers struct {
	Client resourcev1client.ResourceV1Interface
}

// ReadSlice returns a ResourceSlice.
func (c typedCarriers) ReadSlice(ctx context.Context, name string) (tracker.Slice, error) {
	slice, err := c.Client.ResourceSlices().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return tracker.Slice{}, err
	}
	return tracker.SliceOf(slice), nil
}

// ReadRule returns a DeviceTaintRule.
func (c typedCarriers) ReadRule(ctx context.Context, name string) (tracker.Rule, error) {
	rule, err := c.Client.DeviceTaintRules().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return tracker.Rule{}, err
	}
	return tracker.RuleOf(rule), nil
}
