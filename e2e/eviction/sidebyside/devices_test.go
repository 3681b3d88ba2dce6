package sidebyside

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// devices is about the evictor of tainted devices.
func devices() []row {
	return []row{
		{
			fault: "I16", upstream: "U11",
			story: "it takes 8 s to write the status of one rule; meanwhile another device is tainted, which is looked at after 5 s",
			play: func(s *stage) string {
				s.publish("ruled", "a")
				s.publish("pool", "b")
				s.share("b", 1)
				defer s.proxy.Inject(faultproxy.Fault{
					Match: faultproxy.Match{Resources: []string{"devicetaintrules/status"}}, Delay: 8 * time.Second,
				})()
				s.do("create rule", func() error {
					rule := dra.Rule(s.namespace, s.driver(), dra.Taint(taintKey, "", resourcev1.DeviceTaintEffectNoExecute))
					rule.Spec.DeviceSelector.Pool = new("ruled")
					_, err := s.client.ResourceV1().DeviceTaintRules().Create(s.ctx, rule, metav1.CreateOptions{})
					return err
				})
				s.begin()
				s.after(time.Second)
				s.taintDevice("pool")
				s.after(6 * time.Second)
				if s.left() > 0 {
					return stays
				}
				return evicted
			},
			kubernetes: stays, tollgate: evicted,
		},
	}
}

func (s *stage) driver() string { return s.namespace + ".faults.example.com" }

// publish publishes a pool that has one device.
func (s *stage) publish(pool, device string) {
	s.do("create slice", func() error {
		_, err := s.client.ResourceV1().ResourceSlices().Create(s.ctx, dra.Slice(s.driver(), pool, dra.Device(device)), metav1.CreateOptions{})
		return err
	})
}

// taintDevice taints the device of a pool.
func (s *stage) taintDevice(pool string) {
	client := s.client.ResourceV1().ResourceSlices()
	s.do("taint device", func() error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			slice, err := client.Get(s.ctx, s.driver()+"-"+pool, metav1.GetOptions{})
			if err != nil {
				return err
			}
			slice.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{dra.Taint(taintKey, "", resourcev1.DeviceTaintEffectNoExecute)}
			_, err = client.Update(s.ctx, slice, metav1.UpdateOptions{})
			return err
		})
	})
}

// share runs pods that have one device of the pool named pool by one claim.
func (s *stage) share(device string, count int) {
	s.nodes("node")
	claims := s.client.ResourceV1().ResourceClaims(s.namespace)
	s.do("create claim", func() error {
		_, err := claims.Create(s.ctx, dra.Claim("shared", s.driver(), device), metav1.CreateOptions{})
		return err
	})
	consumers := make([]resourcev1.ResourceClaimConsumerReference, count)
	s.inParallel("create pods", count, func(i int) error {
		pod := dra.Pod(fmt.Sprintf("a-%d", i), "shared")
		pod.Spec.NodeName = s.node("node")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
		pod, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		consumers[i] = resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID}
		return nil
	})
	s.do("allocate claim", func() error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			claim, err := claims.Get(s.ctx, "shared", metav1.GetOptions{})
			if err != nil {
				return err
			}
			claim.Status = resourcev1.ResourceClaimStatus{
				Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
					Results: []resourcev1.DeviceRequestAllocationResult{{Request: "device", Driver: s.driver(), Pool: "pool", Device: device}},
				}},
				ReservedFor: consumers,
			}
			_, err = claims.UpdateStatus(s.ctx, claim, metav1.UpdateOptions{})
			return err
		})
	})
	s.eventually("running pods", func() error {
		list, err := s.client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Status.Phase != corev1.PodRunning {
				return errors.New("not yet")
			}
		}
		return nil
	})
}
