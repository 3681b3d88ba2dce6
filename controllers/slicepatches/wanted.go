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
	// hashBytes is how much of a hash is in a name.
	hashBytes = 8
	// keptName is how much of the name of a patch is in those of its rules.
	keptName = 200
)

// rule is a DeviceTaintRule as it is to be.
type rule struct {
	name     string
	patch    tracker.PatchRef
	selector resourcev1.DeviceTaintSelector
	// taint is as the patch has it, with a time, and native the effect that the rule has.
	taint  resourcev1.DeviceTaint
	native resourcev1.DeviceTaintEffect
}

// rulesOf returns the rules of a patch for devices, nil for those that it selects by
// names alone. Taints are those of the patch, each with a time. Shared says that
// Kubernetes evicts as well.
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
		twins := map[[2]string]int{}
		for _, taint := range taints {
			kind := [2]string{taint.Key, string(taint.Effect)}
			rules = append(rules, rule{
				name:  nameOf(patch.Name, &selectors[i], kind, twins[kind]),
				patch: tracker.PatchRef{Name: patch.Name, UID: patch.UID}, selector: selectors[i],
				taint: taint, native: nativeEffect(taint.Effect, shared),
			})
			twins[kind]++
		}
	}
	return rules
}

// nativeEffect returns the effect that a rule has for those who do not know patches.
func nativeEffect(effect resourcev1.DeviceTaintEffect, shared bool) resourcev1.DeviceTaintEffect {
	if shared && effect == resourcev1.DeviceTaintEffectNoExecute {
		return resourcev1.DeviceTaintEffectNoSchedule
	}
	return effect
}

// nameOf returns the name of a rule. The value and the time of the taint are left out:
// they change in the rule that is there.
func nameOf(patch string, s *resourcev1.DeviceTaintSelector, kind [2]string, twin int) string {
	parts := make([]string, 0, 7)
	parts = append(parts, patch)
	for _, name := range []*string{s.Driver, s.Pool, s.Device} {
		part := "*" // No driver, pool or device has that name.
		if name != nil {
			part = *name
		}
		parts = append(parts, part)
	}
	parts = append(parts, kind[0], kind[1], strconv.Itoa(twin))
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	// A name that is cut may end with what a name cannot have in its middle.
	return strings.TrimRight(patch[:min(keptName, len(patch))], ".-") + "-" + hex.EncodeToString(sum[:hashBytes])
}

// object returns the rule. Version is that of the API it is written in.
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

// same reports whether a rule that is known does what this one is to do.
func (r *rule) same(known *tracker.Rule) bool {
	selector, _ := device.SelectorOf(&r.selector)
	return known.Patch == r.patch && known.Selects && known.Selector == selector &&
		known.Taint.Key == r.taint.Key && known.Taint.Value == r.taint.Value &&
		known.Taint.Effect == r.taint.Effect && known.NativeTaint().Effect == r.native &&
		known.Taint.TimeAdded.Equal(r.taint.TimeAdded)
}

// madeFor returns the patch that a rule was written out for. The label alone does not say
// so: whoever may label rules would have those of others deleted, or overwritten.
func madeFor(rule *resourcev1.DeviceTaintRule) (tracker.PatchRef, bool) {
	known := tracker.RuleOf(rule)
	return known.Patch, known.Patch != tracker.PatchRef{}
}
