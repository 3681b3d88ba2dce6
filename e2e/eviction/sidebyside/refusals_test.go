package sidebyside

import (
	"errors"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusals is about deletions that admission denies for a while.
func refusals() []row {
	return []row{{
		fault: "G16", upstream: "U2",
		story: "admission denies the deletion of a pod for 5 s, and then no more; it is looked 10 s after that",
		play: func(s *stage) string {
			s.nodes("tainted", "free")
			s.pod("tried", "free")
			uid := s.pod("a", "tainted")
			allow := s.denyDeletions("tried")
			s.begin()
			s.taint("tainted")
			s.eventually("first denial", func() error {
				if s.refused(s.namespace) == 0 {
					return errors.New("none")
				}
				return nil
			})
			s.pause(5 * time.Second)
			allow()
			s.pause(10 * time.Second)
			return s.fate("a", uid)
		},
		kubernetes: stays, tollgate: evicted,
	}}
}

// denyDeletions makes the API server refuse to delete pods of the story, to everybody,
// until allow is called. It needs a pod to try.
func (s *stage) denyDeletions(tried string) (allow func()) {
	client := s.client.AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "not now"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        s.namespace,
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	s.do("deny deletions", func() error {
		if _, err := client.ValidatingAdmissionPolicies().Create(s.ctx, policy, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := client.ValidatingAdmissionPolicyBindings().Create(s.ctx, binding, metav1.CreateOptions{})
		return err
	})
	try := func() error {
		return s.client.CoreV1().Pods(s.namespace).Delete(s.ctx, tried, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	s.eventually("denial", func() error {
		if try() == nil {
			return errors.New("it may be deleted")
		}
		return nil
	})
	return func() {
		s.do("allow deletions", func() error {
			return client.ValidatingAdmissionPolicyBindings().Delete(s.ctx, s.namespace, metav1.DeleteOptions{})
		})
		s.eventually("permission", try)
	}
}
