package preview

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

var (
	patchResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "resourceslicepatches"}
	sliceResource = schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}
)

// carrier is an object with one device taint: a DeviceTaintRule, or a ResourceSlicePatch for
// targets with a class or expressions.
type carrier struct {
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
	// existing is the existing object with its name, nil for none.
	existing *unstructured.Unstructured
}

// versions are the served versions of rules and patches; empty for none.
type versions struct{ rule, patch string }

// of returns the carrier of a taint.
func (v versions) of(target *Target, taint Taint, author string) (*carrier, error) {
	meta := metav1.ObjectMeta{Name: taintNameOf(target, taint), Labels: map[string]string{v1alpha1.LabelMadeBy: v1alpha1.ProgramCommandLine}}
	if author != "" {
		meta.Annotations = map[string]string{v1alpha1.AnnotationAuthor: author}
	}
	effect := resourcev1.DeviceTaintEffect(taint.Effect)
	if !target.Conditional() {
		if v.rule == "" {
			return nil, errors.New("the API server does not serve DeviceTaintRules (switch on its feature gate DRADeviceTaintRules and API group resource.k8s.io)")
		}
		return carrierOf(informer.RuleResource.WithVersion(v.rule), "DeviceTaintRule", &resourcev1.DeviceTaintRule{
			ObjectMeta: meta,
			Spec: resourcev1.DeviceTaintRuleSpec{
				DeviceSelector: target.DeviceSelector(), Taint: resourcev1.DeviceTaint{Key: taint.Key, Value: taint.Value, Effect: effect},
			},
		})
	}
	if v.patch == "" {
		return nil, errors.New("--class and --selector need a ResourceSlicePatch, which the API server does not serve: install Tollgate, or name driver, pool and device")
	}
	return carrierOf(patchResource.WithVersion(v.patch), "ResourceSlicePatch", &v1alpha1.ResourceSlicePatch{
		ObjectMeta: meta,
		Spec: v1alpha1.ResourceSlicePatchSpec{Devices: v1alpha1.DevicePatch{
			Filter: target.Filter(), Taints: []v1alpha1.PatchedTaint{{Key: taint.Key, Value: taint.Value, Effect: effect}},
		}},
	})
}

func carrierOf(resource schema.GroupVersionResource, kind string, typed any) (*carrier, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", kind, err)
	}
	delete(fields, "status")
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	return &carrier{resource: resource, object: object}, nil
}

// String returns the name of the object as kubectl prints it.
func (c *carrier) String() string {
	return strings.ToLower(c.object.GetKind()) + "." + c.resource.Group + "/" + c.object.GetName()
}

// taintNameOf returns the object name for a target, a key and an effect: deterministic, so that
// there is at most one, with a readable prefix. The effect None has the name of NoExecute, which
// it becomes.
func taintNameOf(target *Target, taint Taint) string {
	effect, readableEffect := taint.Effect, "-"+taint.Effect
	if effect == none || effect == noExecute {
		effect, readableEffect = noExecute, ""
	}
	text, err := json.Marshal([]any{target, taint.Key, effect})
	if err != nil {
		panic(err) // Strings always marshal.
	}
	sum := sha256.Sum256(text)
	devices := cmp.Or(target.Device, target.Pool, target.Driver, target.Class, "devices")
	_, key, found := strings.Cut(taint.Key, "/")
	if !found {
		key = taint.Key
	}
	const most, digits = 60, 8
	readable := plain(devices + "-" + key + readableEffect)
	readable = strings.Trim(readable[:min(len(readable), most)], "-")
	return readable + "-" + hex.EncodeToString(sum[:])[:digits]
}

// plain removes the characters that names may not have.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
}

// isOurs reports whether taint device created an object.
func isOurs(object metav1.Object) bool {
	return object.GetLabels()[v1alpha1.LabelMadeBy] == v1alpha1.ProgramCommandLine
}

// merge merges the existing object with the name of the carrier. Other fields, such as timeAdded,
// are kept; a new effect counts from now. A taint with the effect None is not active yet, so its
// change needs no overwrite.
func (c *carrier) merge(existing *unstructured.Unstructured, taint Taint, overwrite bool) error {
	has := c.effectOf(existing)
	switch {
	case !isOurs(existing):
		return fmt.Errorf("%s exists, and taint device did not make it: delete it first", c)
	case !overwrite && (has != none || taint.Effect == none):
		return fmt.Errorf("%s gives them a taint with the key %s and the effect %s already, and --overwrite is not given", c, taint.Key, has)
	}
	made := c.object
	c.existing = existing
	c.object = existing.DeepCopy()
	changed := map[string]any{"value": taint.Value}
	if has != taint.Effect && (has == none || has == noExecute) {
		changed["effect"], changed["timeAdded"] = taint.Effect, nil
	}
	if err := c.retaint(changed); err != nil {
		return err
	}
	// Otherwise devices outside of the target would get the new value.
	if field := c.differs(made); field != "" {
		return fmt.Errorf("%s was changed: its %s is not the one that it was made with: delete it first", c, field)
	}
	return nil
}

// differs returns the first field that differs from the created object, except timeAdded; empty
// for none.
func (c *carrier) differs(made *unstructured.Unstructured) string {
	paths := [][]string{{"spec", "deviceSelector"}, {"spec", "taint", "key"}, {"spec", "taint", "effect"}}
	if c.resource.Resource == patchResource.Resource {
		paths = [][]string{{"spec", "devices", "filter"}}
		if taintOf(c.object) != taintOf(made) {
			return "spec.devices.taints[0]"
		}
	}
	for _, path := range paths {
		is, _, _ := unstructured.NestedFieldNoCopy(c.object.Object, path...)
		was, _, _ := unstructured.NestedFieldNoCopy(made.Object, path...)
		if !equality.Semantic.DeepEqual(is, was) {
			return strings.Join(path, ".")
		}
	}
	return ""
}

// taintOf returns the first taint of a ResourceSlicePatch in the form that untaint device reads.
func taintOf(patch *unstructured.Unstructured) Taint {
	all, err := ofPatch(patch)
	if err != nil || len(all) == 0 {
		return Taint{}
	}
	return Taint{Key: all[0].key, Effect: all[0].effect}
}

// The effects of a taint before and after activation.
const (
	none      = string(resourcev1.DeviceTaintEffectNone)
	noExecute = string(resourcev1.DeviceTaintEffectNoExecute)
)

// effectOf returns the effect of the taint of an object of the carrier's kind.
func (c *carrier) effectOf(object *unstructured.Unstructured) string {
	if c.resource.Resource == patchResource.Resource {
		return taintOf(object).Effect
	}
	effect, _, _ := unstructured.NestedString(object.Object, "spec", "taint", "effect")
	return effect
}

// retaint sets fields of the taint; nil removes one.
func (c *carrier) retaint(fields map[string]any) error {
	change := func(taint map[string]any) {
		for name, value := range fields {
			if taint[name] = value; value == nil {
				delete(taint, name)
			}
		}
	}
	if c.resource.Resource == patchResource.Resource {
		taints, _, err := unstructured.NestedSlice(c.object.Object, "spec", "devices", "taints")
		if err != nil || len(taints) != 1 {
			return fmt.Errorf("%s was changed: spec.devices.taints has %d taints, want the one that it was made with: delete it first", c, len(taints))
		}
		taint, ok := taints[0].(map[string]any)
		if !ok {
			return fmt.Errorf("%s: spec.devices.taints[0] is %T, want an object", c, taints[0])
		}
		change(taint)
		return unstructured.SetNestedSlice(c.object.Object, taints, "spec", "devices", "taints")
	}
	taint, _, err := unstructured.NestedMap(c.object.Object, "spec", "taint")
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	change(taint)
	return unstructured.SetNestedMap(c.object.Object, taint, "spec", "taint")
}
