package sidebyside

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// claims is about who uses a device.
func claims() []scenario {
	return []scenario{
		{
			name: "a claim made from a template", rules: "DE-04",
			play: func(s *stage) {
				s.devices("a", "a")
				s.template(dra.Template("template", s.driver, "a", dra.TolerateFor(key, laterSeconds)))
				s.run(dra.FromTemplate(dra.Pod("a"), "template"))
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(1), "rule r": "False Completed"},
		},
		{
			name: "a claim made from a template, which its pod does not own any more", rules: "DE-05",
			play: func(s *stage) {
				s.devices("a", "a")
				s.template(dra.Template("template", s.driver, "a"))
				s.run(dra.FromTemplate(dra.Pod("a"), "template"))
				s.patchClaim(s.generated("a"), `{"metadata":{"ownerReferences":null}}`)
				s.begin()
				s.after(soon) // An evictor may hear of the rule before it hears of the claim.
				s.rule("r", drain())
			},
			want: outcome{"a": stays, "rule r": "False NotStarted"},
		},
		{
			name: "a claim that three pods share", rules: "DE-06, DE-65",
			play: func(s *stage) {
				s.devices("a", "a")
				s.claim(dra.Claim("shared", s.driver, "a"))
				s.run(dra.Pod("a", "shared"), dra.Pod("b", "shared"), dra.Pod("c", "shared"))
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(0), "b": leaves(0), "c": leaves(0), "rule r": "False Completed"},
		},
		{
			name: "a device that two claims share", rules: "DE-14",
			play: func(s *stage) {
				device := dra.Device("a")
				device.AllowMultipleAllocations = new(true)
				s.slice(dra.Slice(s.driver, "a", device))
				s.claim(dra.Claim("a", s.driver, "a"))
				s.claim(dra.Claim("b", s.driver, "a", dra.TolerateFor(key, laterSeconds)))
				s.run(dra.Pod("a", "a"), dra.Pod("b", "b"))
				s.begin()
				s.taint("a", drain())
			},
			want: outcome{"a": leaves(0), "b": leaves(1)},
		},
		{
			name: "a pod with two claims, of which one tolerates less", rules: "DE-27",
			play: func(s *stage) {
				s.devices("a", "a", "b")
				s.claim(dra.Claim("a", s.driver, "a", dra.TolerateFor(key, hour)))
				s.claim(dra.Claim("b", s.driver, "b", dra.TolerateFor(key, laterSeconds)))
				s.run(dra.Pod("a", "a", "b"))
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(1), "rule r": "False Completed"},
		},
		{
			name: "a claim that a pod holds and does not refer to", rules: "DE-07",
			play: func(s *stage) {
				s.devices("a", "a")
				s.claim(dra.Claim("a", s.driver, "a"))
				s.run(dra.Pod("a"))
				s.allocate("a", "a")
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": stays, "rule r": "False NotStarted"},
		},
		{
			name: "a claim with access for administrators", rules: "DE-13",
			play: func(s *stage) {
				s.devices("a", "a")
				claim := dra.Claim("a", s.driver, "a")
				claim.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)
				s.claim(claim)
				s.run(dra.Pod("a", "a"))
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(0), "rule r": "False Completed"},
		},
		{
			name: "a claim behind an extended resource", rules: "DE-10",
			play: func(s *stage) {
				class := dra.Class("extended." + s.driver)
				class.Spec.Selectors = dra.Class(s.driver).Spec.Selectors
				class.Spec.ExtendedResourceName = new(s.driver + "/device")
				s.class(class)
				s.devices("a", "a")
				pod := dra.Pod("a")
				pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
					corev1.ResourceName(*class.Spec.ExtendedResourceName): resource.MustParse("1"),
				}
				s.run(pod)
				s.begin()
				s.rule("r", drain())
			},
			want:    outcome{"a": stays, "rule r": "False NotStarted"},
			differs: "DE-10", tollgate: outcome{"a": leaves(0), "rule r": "False Completed"},
		},
	}
}

func (s *stage) template(template *resourcev1.ResourceClaimTemplate) {
	s.do("create template", func() error {
		_, err := s.client.ResourceV1().ResourceClaimTemplates(s.namespace).Create(s.ctx, template, metav1.CreateOptions{})
		return err
	})
}

// generated returns the name of the claim that was made for a pod.
func (s *stage) generated(name string) string {
	var generated string
	s.do("find claim", func() error {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, status := range pod.Status.ResourceClaimStatuses {
			if status.ResourceClaimName != nil {
				generated = *status.ResourceClaimName
				return nil
			}
		}
		return fmt.Errorf("none among %v", pod.Status.ResourceClaimStatuses)
	})
	return generated
}

// allocate gives a claim the device of its own name, for a pod.
func (s *stage) allocate(name, pod string) {
	s.do("allocate claim", func() error {
		holder, err := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim, err := s.client.ResourceV1().ResourceClaims(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim.Status = resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
				Results: []resourcev1.DeviceRequestAllocationResult{{Request: "device", Driver: s.driver, Pool: name, Device: name}},
			}},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: holder.UID}},
		}
		_, err = s.client.ResourceV1().ResourceClaims(s.namespace).UpdateStatus(s.ctx, claim, metav1.UpdateOptions{})
		return err
	})
}
