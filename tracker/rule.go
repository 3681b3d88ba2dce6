package tracker

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Rule is what is kept of a DeviceTaintRule. Its slices are shared and must not be
// written to.
type Rule struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Generation      int64
	Created         time.Time
	// Selector selects devices if Selects is true; else none are selected.
	Selector device.Selector
	Selects  bool
	// Unsupported names fields of the selector that are not understood, such as those
	// of Kubernetes 1.34 and before (VS-03). Such a rule selects nothing: what is left
	// of its selector may be far wider than what was meant.
	Unsupported []string
	Taint       resourcev1.DeviceTaint
	// Conditions are those of the status.
	Conditions []metav1.Condition
}

// RuleOf returns what is kept of rule.
func RuleOf(rule *resourcev1.DeviceTaintRule) Rule {
	selector, selects := device.SelectorOf(rule.Spec.DeviceSelector)
	return Rule{
		Name: rule.Name, UID: rule.UID, ResourceVersion: rule.ResourceVersion, Generation: rule.Generation,
		Created:  rule.CreationTimestamp.Time,
		Selector: selector, Selects: selects, Taint: rule.Spec.Taint,
		Conditions: rule.Status.Conditions,
	}
}

// Matches reports whether the rule taints a device.
func (r *Rule) Matches(id device.ID) bool {
	return r.Selects && r.Selector.Matches(id)
}
