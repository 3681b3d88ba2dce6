package tracker

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
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
	// Patch is the ResourceSlicePatch that the rule is written out for; zero for none.
	Patch PatchRef
	// Taint is what the rule means to Tollgate: that of a patch may have another effect
	// than the API server has.
	Taint resourcev1.DeviceTaint
	// Native is the effect that the API server, and so every scheduler and Kubernetes'
	// own evictor, has for the rule if that is another one than Taint has; else empty.
	Native resourcev1.DeviceTaintEffect
	// Conditions are those of the status.
	Conditions []metav1.Condition
}

// RuleOf returns what is kept of rule.
func RuleOf(rule *resourcev1.DeviceTaintRule) Rule {
	kept := Rule{
		Name: rule.Name, UID: rule.UID, ResourceVersion: rule.ResourceVersion, Generation: rule.Generation,
		Created:    rule.CreationTimestamp.Time,
		Taint:      rule.Spec.Taint,
		Conditions: rule.Status.Conditions,
		Patch:      PatchOf(rule),
	}
	kept.Selector, kept.Selects = device.SelectorOf(rule.Spec.DeviceSelector)
	if kept.Patch != (PatchRef{}) && kept.Taint.Effect == resourcev1.DeviceTaintEffectNoSchedule &&
		rule.Annotations[v1alpha1.AnnotationPatchEffect] == string(resourcev1.DeviceTaintEffectNoExecute) {
		kept.Native, kept.Taint.Effect = kept.Taint.Effect, resourcev1.DeviceTaintEffectNoExecute
	}
	return kept
}

// NativeTaint returns the taint that the API server has for the rule.
func (r *Rule) NativeTaint() resourcev1.DeviceTaint {
	taint := r.Taint
	if r.Native != "" {
		taint.Effect = r.Native
	}
	return taint
}

// Matches reports whether the rule taints a device.
func (r *Rule) Matches(id device.ID) bool {
	return r.Selects && r.Selector.Matches(id)
}
