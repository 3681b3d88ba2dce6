package sidebyside

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const (
	noExecute  = resourcev1.DeviceTaintEffectNoExecute
	noSchedule = resourcev1.DeviceTaintEffectNoSchedule
	none       = resourcev1.DeviceTaintEffectNone

	// key is that of the taints here.
	key = "e2e.example.com/fault"
)

// drain is the taint that most scenarios are about.
func drain() resourcev1.DeviceTaint { return dra.Taint(key, "", noExecute) }

// rule creates a rule for all devices of the scenario's driver. The edits change it
// before.
func (s *stage) rule(name string, taint resourcev1.DeviceTaint, edits ...func(*resourcev1.DeviceTaintRule)) {
	s.rules = append(s.rules, name)
	s.ruleAgain(name, taint, edits...)
}

// ruleAgain creates a rule under a name that there was a rule under.
func (s *stage) ruleAgain(name string, taint resourcev1.DeviceTaint, edits ...func(*resourcev1.DeviceTaintRule)) {
	s.do("create rule", func() error {
		rule := dra.Rule(s.ruleName(name), s.driver, taint)
		for _, edit := range edits {
			edit(rule)
		}
		_, err := s.client.ResourceV1().DeviceTaintRules().Create(s.ctx, rule, metav1.CreateOptions{})
		return err
	})
}

// ruleName is the name of a rule among those of all scenarios.
func (s *stage) ruleName(name string) string { return s.namespace + "-" + name }

// selects makes a rule select devices in another way.
func selects(selector *resourcev1.DeviceTaintSelector) func(*resourcev1.DeviceTaintRule) {
	return func(rule *resourcev1.DeviceTaintRule) { rule.Spec.DeviceSelector = selector }
}

// since gives the taint of a rule a time.
func since(at *metav1.Time) func(*resourcev1.DeviceTaintRule) {
	return func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.TimeAdded = at }
}

func (s *stage) editRule(name string, edit func(*resourcev1.DeviceTaintRule)) {
	client := s.client.ResourceV1().DeviceTaintRules()
	s.do("edit rule", func() error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			rule, err := client.Get(s.ctx, s.ruleName(name), metav1.GetOptions{})
			if err != nil {
				return err
			}
			edit(rule)
			_, err = client.Update(s.ctx, rule, metav1.UpdateOptions{})
			return err
		})
	})
}

// deleteRule deletes a rule; what it says in the end is not asked any more unless
// it is created again.
func (s *stage) deleteRule(name string) {
	s.do("delete rule", func() error {
		return s.client.ResourceV1().DeviceTaintRules().Delete(s.ctx, s.ruleName(name), metav1.DeleteOptions{})
	})
}
