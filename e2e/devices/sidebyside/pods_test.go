package sidebyside

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

func (s *stage) claim(claim *resourcev1.ResourceClaim) {
	s.do("create claim", func() error {
		_, err := s.client.ResourceV1().ResourceClaims(s.namespace).Create(s.ctx, claim, metav1.CreateOptions{})
		return err
	})
}

// create creates a pod and does not wait for it.
func (s *stage) create(pod *corev1.Pod) {
	s.pods = append(s.pods, pod.Name)
	s.do("create pod", func() error {
		_, err := s.client.CoreV1().Pods(s.namespace).Create(s.ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// run creates pods and returns when they run.
func (s *stage) run(pods ...*corev1.Pod) {
	for _, pod := range pods {
		s.create(pod)
	}
	for _, pod := range pods {
		s.eventually("pod "+pod.Name, func() error {
			got, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, pod.Name, metav1.GetOptions{})
			if err == nil && got.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("it is %s: %v", got.Status.Phase, got.Status.Conditions)
			}
			return err
		})
	}
}

// user publishes a device, and runs a pod of the same name that has it by a claim,
// again of the same name, with tolerations.
func (s *stage) user(name string, tolerations ...resourcev1.DeviceToleration) {
	s.devices(name, name)
	s.claim(dra.Claim(name, s.driver, name, tolerations...))
	s.run(dra.Pod(name, name))
}

func (s *stage) patchClaim(name, patch string, subresources ...string) {
	s.do("patch claim", func() error {
		_, err := s.client.ResourceV1().ResourceClaims(s.namespace).
			Patch(s.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	})
}

// finish makes a pod one that has ended well.
func (s *stage) finish(name string) {
	s.do("patch pod", func() error {
		_, err := s.client.CoreV1().Pods(s.namespace).Patch(s.ctx, name, types.StrategicMergePatchType,
			[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		return err
	})
}

func (s *stage) deletePod(name string) {
	s.do("delete pod", func() error {
		return s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, name, metav1.DeleteOptions{})
	})
}
