package slicepatches

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

const (
	kindRule  = "DeviceTaintRule"
	kindPatch = "ResourceSlicePatch"
	// hashBytes is the number of bytes of a hash in a name.
	hashBytes = 8
	// maxNamePrefix caps the part of the patch name in the names of its rules.
	maxNamePrefix = 200
)

// rule is a desired DeviceTaintRule.
type rule struct {
	name     string
	patch    tracker.PatchRef
	selector resourcev1.DeviceTaintSelector
	// taint is the taint of the patch, with a time; native is the effect in the spec of
	// the rule.
	taint  resourcev1.DeviceTaint
	native resourcev1.DeviceTaintEffect
}

// rulesOf returns the rules of a patch for devices, which are nil if it selects by names
// alone. Each taint has a time. shared is true if Kubernetes evicts too.
func rulesOf(patch *v1alpha1.ResourceSlicePatch, taints []resourcev1.DeviceTaint, devices []device.ID, shared bool) []rule {
	selectors := []resourcev1.DeviceTaintSelector{slicepatch.NamesOf(patch.Spec.Devices.Filter)}
	if slicepatch.Conditional(patch.Spec.Devices.Filter) {
		selectors = selectors[:0]
		for i := range devices {
			selectors = append(selectors, resourcev1.DeviceTaintSelector{Driver: &devices[i].Driver, Pool: &devices[i].Pool, Device: &devices[i].Name})
		}
	}
	rules := make([]rule, 0, len(selectors)*len(taints))
	for i := range selectors {
		// A device may have several taints of one key and effect (DE-21).
		duplicates := map[[2]string]int{}
		for _, taint := range taints {
			kind := [2]string{taint.Key, string(taint.Effect)}
			rules = append(rules, rule{
				name:  ruleName(patch.Name, &selectors[i], kind, duplicates[kind]),
				patch: tracker.PatchRef{Name: patch.Name, UID: patch.UID}, selector: selectors[i],
				taint: taint, native: nativeEffect(taint.Effect, shared),
			})
			duplicates[kind]++
		}
	}
	return rules
}

// nativeEffect returns the effect for components without support for patches.
func nativeEffect(effect resourcev1.DeviceTaintEffect, shared bool) resourcev1.DeviceTaintEffect {
	if shared && effect == resourcev1.DeviceTaintEffectNoExecute {
		return resourcev1.DeviceTaintEffectNoSchedule
	}
	return effect
}

// ruleName returns the name of a rule. It does not depend on the value and the time of the
// taint: the rule is updated when they change.
func ruleName(patch string, s *resourcev1.DeviceTaintSelector, kind [2]string, index int) string {
	parts := make([]string, 0, 7)
	parts = append(parts, patch)
	for _, name := range []*string{s.Driver, s.Pool, s.Device} {
		part := "*" // No driver, pool or device can have that name.
		if name != nil {
			part = *name
		}
		parts = append(parts, part)
	}
	parts = append(parts, kind[0], kind[1], strconv.Itoa(index))
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	// A truncated name must not end with '.' or '-' before the hash.
	return strings.TrimRight(patch[:min(maxNamePrefix, len(patch))], ".-") + "-" + hex.EncodeToString(sum[:hashBytes])
}

// object returns the rule in an API version.
func (r *rule) object(version string) *resourcev1.DeviceTaintRule {
	object := &resourcev1.DeviceTaintRule{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kindRule},
		ObjectMeta: metav1.ObjectMeta{
			Name: r.name, Labels: map[string]string{v1alpha1.LabelPatch: string(r.patch.UID)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: kindPatch, Name: r.patch.Name, UID: r.patch.UID, Controller: new(true),
			}},
		},
		Spec: resourcev1.DeviceTaintRuleSpec{DeviceSelector: &r.selector, Taint: r.taint},
	}
	if r.native != r.taint.Effect {
		object.Annotations = map[string]string{v1alpha1.AnnotationPatchEffect: string(r.taint.Effect)}
		object.Spec.Taint.Effect = r.native
	}
	return object
}

// matches reports whether a tracked rule has the desired selector and taint.
func (r *rule) matches(tracked *tracker.Rule) bool {
	selector, _ := device.SelectorOf(&r.selector)
	return tracked.Patch == r.patch && tracked.Selects && tracked.Selector == selector &&
		tracked.Taint.Key == r.taint.Key && tracked.Taint.Value == r.taint.Value &&
		tracked.Taint.Effect == r.taint.Effect && tracked.NativeTaint().Effect == r.native &&
		tracked.Taint.TimeAdded.Equal(r.taint.TimeAdded)
}

// patchOf returns the patch of a rule. The label alone is no proof: any user who may label
// rules could otherwise have the rules of others deleted or overwritten.
func patchOf(rule *resourcev1.DeviceTaintRule) (tracker.PatchRef, bool) {
	tracked := tracker.RuleOf(rule)
	return tracked.Patch, tracked.Patch != tracker.PatchRef{}
}
