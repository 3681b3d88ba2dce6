package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// patches returns a client for ResourceSlicePatches.
func (s *site) patches(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	patches, err := client.New(s.plane.restConfig(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return patches
}

// patch creates a patch whose spec.devices is given in YAML, in which DRIVER stands for
// the driver of the site.
func (s *site) patch(t *testing.T, name, devices string) *v1alpha1.ResourceSlicePatch {
	t.Helper()
	patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name}}
	require.NoError(t, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(devices, "DRIVER", s.driver)), &patch.Spec.Devices))
	require.NoError(t, s.patches(t).Create(t.Context(), patch))
	return patch
}

func (s *site) editPatch(t *testing.T, patch *v1alpha1.ResourceSlicePatch, devices string) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := s.patches(t).Get(t.Context(), client.ObjectKeyFromObject(patch), patch); err != nil {
			return err
		}
		patch.Spec.Devices = v1alpha1.DevicePatch{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(strings.ReplaceAll(devices, "DRIVER", s.driver)), &patch.Spec.Devices))
		return s.patches(t).Update(t.Context(), patch)
	}))
}

// waitPatch waits until a condition of a patch says what it is to say, and returns the
// patch.
func (s *site) waitPatch(t *testing.T, patch *v1alpha1.ResourceSlicePatch, kind, prefix string) *v1alpha1.ResourceSlicePatch {
	t.Helper()
	found := &v1alpha1.ResourceSlicePatch{}
	eventually(t, kind+" of the patch is "+prefix, func(ctx context.Context) error {
		if err := s.patches(t).Get(ctx, client.ObjectKeyFromObject(patch), found); err != nil {
			return err
		}
		if said := patchCondition(found, kind); !strings.HasPrefix(said, prefix) {
			return fmt.Errorf("it is %q", said)
		}
		return nil
	})
	return found
}

// patchCondition returns a condition of a patch as "status reason: message", if it is of
// this generation.
func patchCondition(patch *v1alpha1.ResourceSlicePatch, kind string) string {
	for _, c := range patch.Status.Conditions {
		if c.Type == kind && c.ObservedGeneration == patch.Generation {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "absent"
}

// patchRules returns the rules that are written out for a patch, in words.
func (s *site) patchRules(ctx context.Context, t *testing.T, patch *v1alpha1.ResourceSlicePatch) ([]string, error) {
	t.Helper()
	list, err := s.rules(t).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelPatch + "=" + string(patch.UID)})
	if err != nil {
		return nil, err
	}
	words := []string{}
	for i := range list.Items {
		rule, err := decode(&list.Items[i])
		if err != nil {
			return nil, err
		}
		device := "*"
		if rule.Spec.DeviceSelector.Device != nil {
			device = *rule.Spec.DeviceSelector.Device
		}
		words = append(words, fmt.Sprintf("%s %s=%s:%s", device, rule.Spec.Taint.Key, rule.Spec.Taint.Value, rule.Spec.Taint.Effect))
	}
	slices.Sort(words)
	return words, nil
}

func (s *site) waitWritten(t *testing.T, patch *v1alpha1.ResourceSlicePatch, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, "rules of the patch", func(ctx context.Context) error {
		found, err := s.patchRules(ctx, t, patch)
		if err == nil && !slices.Equal(found, want) {
			err = fmt.Errorf("they are %q", found)
		}
		return err
	})
}

// ofModel is a device with a model.
func ofModel(name, model string) resourcev1.Device {
	device := dra.Device(name)
	device.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}
	return device
}

const selecting = `{filter: {driver: DRIVER, selectors: [{cel: {expression: 'device.attributes["DRIVER"].?model.orValue("") == "%s"'}}]}, `

func TestTaintsOfAPatchEvictFromTheDevicesThatItSelects(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	s.publish(t, "one", ofModel("a", "a100"), ofModel("b", "h100"), dra.Device("c"))
	s.publish(t, "two", ofModel("d", "a100"))
	pods := s.place(t,
		use{pod: "a", claim: "a", pool: "one", device: "a"}, use{pod: "b", claim: "b", pool: "one", device: "b"},
		use{pod: "c", claim: "c", pool: "one", device: "c"}, use{pod: "d", claim: "d", pool: "two", device: "d"},
		use{pod: "tolerates", claim: "tolerates", pool: "two", device: "d", tolerations: []resourcev1.DeviceToleration{dra.Tolerate(key)}},
	)
	patch := s.patch(t, "p", fmt.Sprintf(selecting, "a100")+`taints: [{key: `+key+`, effect: NoExecute}]}`)
	delete(pods, "a")
	delete(pods, "d")
	s.waitAlive(t, pods)
	s.waitWritten(t, patch, "a "+key+"=:NoExecute", "d "+key+"=:NoExecute")
	said := s.waitPatch(t, patch, v1alpha1.ConditionReady, "True InForce: 2 devices are selected.")
	require.Equal(t, int32(2), said.Status.DevicesMatched)
	require.Equal(t, []string{s.driver + "/one/a", s.driver + "/two/d"}, said.Status.Matched)
	require.Len(t, said.Status.Taints, 1)
	since := said.Status.Taints[0].TimeAdded
	s.requireCompleted(t, patchCondition(s.waitPatch(t, patch, inProgress, "False "), inProgress), 2)

	// What somebody does to the rules is put right.
	list, err := s.rules(t).List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelPatch + "=" + string(patch.UID)})
	require.NoError(t, err)
	s.deleteRule(t, list.Items[0].GetName())
	s.editRule(t, list.Items[1].GetName(), func(rule *resourcev1.DeviceTaintRule) {
		rule.Spec.Taint.Effect, rule.Spec.DeviceSelector.Device = resourcev1.DeviceTaintEffectNone, nil
	})
	s.waitWritten(t, patch, "a "+key+"=:NoExecute", "d "+key+"=:NoExecute")

	// Another value does not start the clock again; other devices are others' rules.
	s.editPatch(t, patch, fmt.Sprintf(selecting, "h100")+`taints: [{key: `+key+`, value: v, effect: NoExecute}]}`)
	delete(pods, "b")
	s.waitAlive(t, pods)
	s.waitWritten(t, patch, "b "+key+"=v:NoExecute")
	said = s.waitPatch(t, patch, v1alpha1.ConditionReady, "True InForce: 1 device is selected.")
	require.Equal(t, since, said.Status.Taints[0].TimeAdded)

	require.NoError(t, s.patches(t).Delete(t.Context(), patch))
	s.waitWritten(t, patch)
	s.waitAlive(t, pods)
}

func TestEffectNoneOfAPatchTellsWhatItWouldDo(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	s.publish(t, "one", ofModel("a", "a100"), ofModel("b", "a100"), dra.Device("c"))
	pods := s.place(t, use{pod: "a", claim: "a", pool: "one", device: "a"}, use{pod: "b", claim: "b", pool: "one", device: "b"}, use{pod: "c", claim: "c", pool: "one", device: "c"})
	s.waitForeseen(t, "one", len(pods))
	patch := s.patch(t, "p", fmt.Sprintf(selecting, "a100")+`taints: [{key: `+key+`, effect: None}]}`)
	s.waitPatch(t, patch, inProgress, "False NoEffect: 2 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace if the effect was NoExecute.")
	found := s.waitPatch(t, patch, preview, "True ")
	for _, name := range []string{"a", "b"} {
		require.Contains(t, found.Status.Conditions[slices.IndexFunc(found.Status.Conditions, func(c metav1.Condition) bool { return c.Type == preview })].Message, s.namespace+"/"+name)
	}
	s.waitAlive(t, pods)

	s.editPatch(t, patch, fmt.Sprintf(selecting, "a100")+`taints: [{key: `+key+`, effect: NoExecute}]}`)
	delete(pods, "a")
	delete(pods, "b")
	s.waitAlive(t, pods)
	s.requireCompleted(t, patchCondition(s.waitPatch(t, patch, inProgress, "False "), inProgress), 2)
}

func TestAPatchByNamesIsOneRule(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	pods := s.place(t, use{pod: "a", claim: "a", pool: "one", device: "a"})
	patch := s.patch(t, "p", `{filter: {driver: DRIVER, pool: one}, taints: [{key: `+key+`, effect: NoSchedule}, {key: other, value: v, effect: None}]}`)
	s.waitWritten(t, patch, "* "+key+"=:NoSchedule", "* other=v:None")
	s.waitPatch(t, patch, v1alpha1.ConditionReady, "True InForce: No device is selected.")
	s.waitAlive(t, pods)
	require.NoError(t, s.patches(t).Delete(t.Context(), patch))
	s.waitWritten(t, patch)
}

func TestAnExpressionThatFailsIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	s.publish(t, "one", ofModel("a", "a100"), dra.Device("b"))
	patch := s.patch(t, "p", `{filter: {driver: DRIVER, selectors: [{cel: {expression: 'device.attributes["DRIVER"].model == "a100"'}}]}, taints: [{key: `+key+`, effect: NoSchedule}]}`)
	said := s.waitPatch(t, patch, v1alpha1.ConditionReady, "False ExpressionFailed: an expression failed on 1 device, which the patch leaves alone, the first is "+s.driver+"/one/b: ")
	require.Equal(t, int32(1), said.Status.DevicesMatched)
	require.Equal(t, int32(1), said.Status.DevicesFailed)
	require.Equal(t, s.driver+"/one/b", said.Status.Failed[0].Device)
	s.waitWritten(t, patch, "a "+key+"=:NoSchedule")
	eventually(t, "an event says so", func(ctx context.Context) error {
		list, err := s.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + patch.Name})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Kind == "ResourceSlicePatch" && e.Reason == "ExpressionFailed" && strings.Contains(e.Message, "no such key: model")
		}) {
			return fmt.Errorf("none of %d", len(list.Items))
		}
		return nil
	})
}

func TestARuleThatWasWrittenSinceItWasReadIsAConflict(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	direct, err := dynamic.NewForConfig(s.plane.restConfig())
	require.NoError(t, err)
	rules := devicetaints.NewRuleClient(direct, func() (schema.GroupVersionResource, bool) {
		return resourcev1.SchemeGroupVersion.WithResource("devicetaintrules"), true
	})
	rule := s.rule(t, "r", "pool", resourcev1.DeviceTaintEffectNoSchedule)
	stored, err := rules.Get(t.Context(), rule.Name)
	require.NoError(t, err)
	build := func(string) *resourcev1.DeviceTaintRule {
		return s.poolRule("r", "other", resourcev1.DeviceTaintEffectNoSchedule)
	}

	s.editRule(t, rule.Name, func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Value = "changed" })
	err = rules.Update(t.Context(), stored, build)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	s.deleteRule(t, rule.Name)
	s.rule(t, "r", "pool", resourcev1.DeviceTaintEffectNoSchedule)
	err = rules.Update(t.Context(), stored, build)
	require.True(t, apierrors.IsConflict(err), "%v", err)

	// Tollgate writes the status meanwhile.
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if stored, err = rules.Get(t.Context(), rule.Name); err != nil {
			return err
		}
		return rules.Update(t.Context(), stored, build)
	}))
	found, err := s.getRule(t.Context(), t, rule.Name)
	require.NoError(t, err)
	require.Equal(t, "other", *found.Spec.DeviceSelector.Pool)
}

func TestNobodyElseMakesRulesOfPatches(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	rule := dra.Rule(s.namespace, s.driver, dra.Taint(key, "", noExecute))
	rule.Labels = map[string]string{v1alpha1.LabelPatch: "some"}
	object, err := s.encode(rule)
	require.NoError(t, err)
	_, err = s.rules(t).Create(t.Context(), object, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, v1alpha1.LabelPatch)
}
