package policies

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/policy"
)

// ruleObject is a rule over all devices of a driver.
func ruleObject(name, driver, key string, effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
	return dra.Rule(name, driver, dra.Taint(key, "", effect))
}

// deleteRuleAfter deletes a rule when the test is over, if it is still there: as
// Tollgate itself, which no policy holds up.
func deleteRuleAfter(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		itself := newPerson(t, shared.As("system:serviceaccount:tollgate-system:tollgate", "system:serviceaccounts"))
		err := itself.ResourceV1().DeviceTaintRules().Delete(afterwards(t), name, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	})
}

// createRule creates a rule as somebody; it goes when the test is over.
func (p *person) createRule(t *testing.T, rule *resourcev1.DeviceTaintRule) error {
	t.Helper()
	_, err := p.ResourceV1().DeviceTaintRules().Create(t.Context(), rule, metav1.CreateOptions{})
	if err == nil {
		deleteRuleAfter(t, rule.Name)
	}
	return err
}

// patchRule writes a merge patch of a rule as somebody.
func (p *person) patchRule(t *testing.T, name, patch string, options metav1.PatchOptions) error {
	t.Helper()
	_, err := p.ResourceV1().DeviceTaintRules().Patch(t.Context(), name, types.MergePatchType, []byte(patch), options)
	return err
}

// inVersion is a rule as another version of the API has it, which is alike.
func inVersion(t *testing.T, rule *resourcev1.DeviceTaintRule, version string) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rule)
	require.NoError(t, err)
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion("resource.k8s.io/" + version)
	object.SetKind("DeviceTaintRule")
	return object
}

func TestTaintsOfDevicesAreGovernedHoweverARuleIsWritten(t *testing.T) {
	const driver, key = "governed.example.com", "governed.example.com/x"
	enforce(t, `
kind: TaintPolicy
metadata: {name: governed}
spec:
  taints: [{target: Device, key: governed.example.com/*, drivers: [governed.example.com]}]
  setters:
  - subjects: [{kind: Group, name: sre}]
  - subjects: [{kind: User, name: adam}]
    operations: [Add]
`)
	sre, alice, adam := tenant(t, "sally", "sre"), tenant(t, "alice"), tenant(t, "adam")
	require.NoError(t, sre.createRule(t, ruleObject("governed", driver, key, resourcev1.DeviceTaintEffectNone)))
	for _, version := range []string{"v1", "v1beta2", "v1alpha3"} {
		t.Run("C08 created in "+version, func(t *testing.T) {
			gvr := resourcev1.SchemeGroupVersion.WithResource("devicetaintrules")
			gvr.Version = version
			rules := alice.resource(t, gvr, "")
			_, err := rules.Create(t.Context(), inVersion(t, ruleObject("governed-new", driver, key, "NoSchedule"), version), metav1.CreateOptions{})
			requireRefused(t, err, policy.TaintNotGranted, "TaintPolicy/governed", "spec.taint", key)
			_, err = rules.Patch(t.Context(), "governed", types.MergePatchType, []byte(`{"spec":{"taint":{"effect":"NoSchedule"}}}`), metav1.PatchOptions{})
			requireRefused(t, err, policy.TaintNotGranted, "TaintPolicy/governed")
			err = rules.Delete(t.Context(), "governed", metav1.DeleteOptions{})
			requireRefused(t, err, policy.TaintNotGranted, "TaintPolicy/governed")
		})
	}
	writes := map[string]func() error{
		"by a rule over every driver": func() error {
			rule := ruleObject("governed-all", driver, key, "NoSchedule")
			rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
			return alice.createRule(t, rule)
		},
		"by server-side apply": func() error {
			object := inVersion(t, ruleObject("governed", driver, key, "NoSchedule"), "v1")
			delete(object.Object, "status")
			content, err := json.Marshal(object)
			require.NoError(t, err)
			_, err = alice.ResourceV1().DeviceTaintRules().Patch(t.Context(), "governed", types.ApplyPatchType, content,
				metav1.PatchOptions{FieldManager: "alice", Force: new(true)})
			return err
		},
		"by pointing it elsewhere": func() error {
			return alice.patchRule(t, "governed", `{"spec":{"deviceSelector":{"pool":"p"}}}`, metav1.PatchOptions{})
		},
		"by calling it another name": func() error {
			return alice.patchRule(t, "governed", `{"spec":{"taint":{"key":"free.example.com/x"}}}`, metav1.PatchOptions{})
		},
		"by a time in the past": func() error {
			return alice.patchRule(t, "governed", `{"spec":{"taint":{"timeAdded":"2020-01-01T00:00:00Z"}}}`, metav1.PatchOptions{})
		},
		"by a dry run": func() error {
			return alice.patchRule(t, "governed", `{"spec":{"taint":{"effect":"NoExecute"}}}`, metav1.PatchOptions{DryRun: dryRun})
		},
	}
	for how, write := range writes {
		t.Run("an outsider is refused "+how, func(t *testing.T) {
			requireRefused(t, write(), policy.TaintNotGranted, "TaintPolicy/governed")
		})
	}
	t.Run("labels of a rule are nobody's matter", func(t *testing.T) {
		require.NoError(t, alice.patchRule(t, "governed", `{"metadata":{"labels":{"a":"b"}}}`, metav1.PatchOptions{}))
	})
	t.Run("nor is a rule over another driver", func(t *testing.T) {
		require.NoError(t, alice.createRule(t, ruleObject("governed-not", "other.example.com", key, "NoSchedule")))
	})
	t.Run("who may only add can add, and no more", func(t *testing.T) {
		require.NoError(t, adam.createRule(t, ruleObject("governed-added", driver, key, "NoSchedule")))
		requireRefused(t, adam.patchRule(t, "governed-added", `{"spec":{"taint":{"value":"v"}}}`, metav1.PatchOptions{}), policy.TaintNotGranted)
		err := adam.ResourceV1().DeviceTaintRules().Delete(t.Context(), "governed-added", metav1.DeleteOptions{})
		requireRefused(t, err, policy.TaintNotGranted)
	})
	t.Run("who may do all does", func(t *testing.T) {
		require.NoError(t, sre.patchRule(t, "governed", `{"spec":{"taint":{"effect":"NoSchedule"}}}`, metav1.PatchOptions{}))
		require.NoError(t, sre.ResourceV1().DeviceTaintRules().Delete(t.Context(), "governed", metav1.DeleteOptions{}))
	})
}

func TestC25ARuleOverEveryDeviceIsToldFromOneOverNone(t *testing.T) {
	enforce(t, `
kind: TaintPolicy
metadata: {name: every-device}
spec:
  taints: [{target: Device, key: every.example.com/*}]
  setters: [{subjects: [{kind: User, name: alice}]}]
  limits: {requireSelector: true}
`)
	alice := tenant(t, "alice")
	selectors := map[string]*resourcev1.DeviceTaintSelector{
		"none":  nil,
		"pool":  {Pool: new("p")},
		"every": {},
	}
	for name, selector := range selectors {
		t.Run(name, func(t *testing.T) {
			rule := ruleObject("every-"+name, "", "every.example.com/x", "NoExecute")
			rule.Spec.DeviceSelector = selector
			err := alice.createRule(t, rule)
			if name != "every" {
				require.NoError(t, err)
				return
			}
			requireRefused(t, err, policy.SelectorRequired, "TaintPolicy/every-device", "spec.deviceSelector")
		})
	}
	t.Run("nor by taking the selector away later", func(t *testing.T) {
		require.NoError(t, alice.createRule(t, ruleObject("every-later", "driver.example.com", "every.example.com/x", "NoSchedule")))
		err := alice.patchRule(t, "every-later", `{"spec":{"deviceSelector":{"driver":null}}}`, metav1.PatchOptions{})
		requireRefused(t, err, policy.SelectorRequired)
	})
}

func TestARuleHasToStandAtNoneBeforeItEvicts(t *testing.T) {
	enforce(t, `
kind: TaintPolicy
metadata: {name: preview-first}
spec:
  taints: [{target: Device, key: previewed.example.com/x}]
  setters: [{subjects: [{kind: User, name: alice}]}]
  limits: {requirePreview: true, maxTimeAddedSkew: 60s}
`)
	alice := tenant(t, "alice")
	const driver, key = "previewed.example.com", "previewed.example.com/x"
	requireRefused(t, alice.createRule(t, ruleObject("preview", driver, key, "NoExecute")), policy.PreviewRequired, "TaintPolicy/preview-first", "spec.taint.effect", "None")
	require.NoError(t, alice.createRule(t, ruleObject("preview", driver, key, "None")))
	requireRefused(t, alice.patchRule(t, "preview", `{"spec":{"deviceSelector":{"driver":"wider.example.com"},"taint":{"effect":"NoExecute"}}}`, metav1.PatchOptions{}),
		policy.PreviewRequired)
	requireRefused(t, alice.patchRule(t, "preview", `{"spec":{"taint":{"timeAdded":"2020-01-01T00:00:00Z"}}}`, metav1.PatchOptions{}),
		policy.TimeAddedSkewed, "spec.taint", "1m0s")
	ahead := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	requireRefused(t, alice.patchRule(t, "preview", `{"spec":{"taint":{"timeAdded":"`+ahead+`"}}}`, metav1.PatchOptions{}), policy.TimeAddedSkewed)
	require.NoError(t, alice.patchRule(t, "preview", `{"spec":{"taint":{"effect":"NoExecute"}}}`, metav1.PatchOptions{}))
}

func TestDriversTaintTheirOwnDevices(t *testing.T) {
	const driver, key = "own.example.com", "own.example.com/x"
	namespaces(t, "own-driver")
	node(t, "own-node", nil)
	enforce(t, `
kind: TaintPolicy
metadata: {name: own}
spec:
  taints: [{target: Device, key: own.example.com/*}]
`)
	plugin, alice := serviceAccount(t, "own-driver", "plugin"), tenant(t, "alice")
	slice := func(taints ...resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
		return dra.Slice(driver, "pool", dra.Device("d", taints...))
	}
	create := func(who *person, slice *resourcev1.ResourceSlice) error {
		_, err := who.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{})
		if err == nil {
			t.Cleanup(func() {
				require.NoError(t, admin(t).ResourceV1().ResourceSlices().Delete(afterwards(t), slice.Name, metav1.DeleteOptions{}))
			})
		}
		return err
	}
	taint := dra.Taint(key, "", resourcev1.DeviceTaintEffectNoSchedule)
	requireRefused(t, create(alice, slice(taint)), policy.TaintNotGranted, "TaintPolicy/own", key)
	require.NoError(t, create(plugin, slice(taint)))
	patch := []byte(`[{"op":"remove","path":"/spec/devices/0/taints"}]`)
	_, err := alice.ResourceV1().ResourceSlices().Patch(t.Context(), slice().Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	requireRefused(t, err, policy.TaintNotGranted, "TaintPolicy/own")
	_, err = plugin.ResourceV1().ResourceSlices().Patch(t.Context(), slice().Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

func TestTheTwinOfAGovernedRuleGoesWithIt(t *testing.T) {
	const driver, key = "twin.example.com", "twin.example.com/x"
	enforce(t, `
kind: PlacementPolicy
metadata: {name: twin}
spec:
  match: {deviceClasses: [twin.example.com]}
  claim: {tolerations: [{key: twin.example.com/x, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}
---
kind: TaintPolicy
metadata: {name: twin}
spec:
  taints: [{target: Device, key: twin.example.com/*}]
  setters: [{subjects: [{kind: Group, name: sre}]}]
`)
	sre, alice := tenant(t, "sally", "sre"), tenant(t, "alice")
	require.NoError(t, sre.createRule(t, ruleObject("twin", driver, key, "NoExecute")))
	exists := func(ctx context.Context) (bool, error) {
		_, err := sre.ResourceV1().DeviceTaintRules().Get(ctx, "twin-noschedule", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}
	is := func(wanted bool) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			there, err := exists(ctx)
			if err == nil && there != wanted {
				err = errStill
			}
			return err
		}
	}
	eventually(t, "the twin is there", is(true))
	requireRefused(t, alice.ResourceV1().DeviceTaintRules().Delete(t.Context(), "twin-noschedule", metav1.DeleteOptions{}), policy.TaintNotGranted)
	require.NoError(t, sre.ResourceV1().DeviceTaintRules().Delete(t.Context(), "twin", metav1.DeleteOptions{}))
	eventually(t, "the twin is gone", is(false))
}
