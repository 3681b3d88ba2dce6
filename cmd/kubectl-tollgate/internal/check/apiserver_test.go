package check

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// classes are RuntimeClasses and PriorityClasses by name.
type classes struct {
	runtime  map[string]nodev1.RuntimeClass
	priority map[string]schedulingv1.PriorityClass
}

func (c *classes) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch o := into.(type) {
	case *nodev1.RuntimeClass:
		if found, ok := c.runtime[key.Name]; ok {
			found.DeepCopyInto(o)
			return nil
		}
	case *schedulingv1.PriorityClass:
		if found, ok := c.priority[key.Name]; ok {
			found.DeepCopyInto(o)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c *classes) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	for _, class := range c.priority {
		into.(*schedulingv1.PriorityClassList).Items = append(into.(*schedulingv1.PriorityClassList).Items, class)
	}
	return nil
}

var builtinNow = time.Date(2026, 11, 22, 12, 0, 0, 999, time.UTC)

func server(c *classes) *APIServer {
	return &APIServer{Reader: c, Clock: clocktesting.NewFakePassiveClock(builtinNow), Admission: &configv1alpha1.AdmissionConfiguration{DefaultNotReadyTolerationSeconds: 300, DefaultUnreachableTolerationSeconds: 60}}
}

func decoded[T any](t *testing.T, text string) *T {
	t.Helper()
	object := new(T)
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), object))
	return object
}

// builtinTolerates returns the tolerations in a pod as YAML has them.
func builtinTolerates(t *testing.T, tolerations []corev1.Toleration) string {
	t.Helper()
	text, err := yaml.Marshal(tolerations)
	require.NoError(t, err)
	return string(text)
}

const byDefault = `
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}`

func TestTolerationsOfPlugins(t *testing.T) {
	t.Parallel()
	gpu := `containers: [{name: c, resources: {limits: {example.com/gpu: 1, cpu: 1}}}]`
	kata := map[string]nodev1.RuntimeClass{"kata": *decoded[nodev1.RuntimeClass](t, `
handler: kata
scheduling:
  nodeSelector: {runtime: kata}
  tolerations: [{key: kata, operator: Exists}, {key: own, operator: Exists}]`)}
	for sentence, c := range map[string]struct {
		spec  string
		setup func(*APIServer)
		want  string
	}{
		"TP-15 two for a pod without any": {`{}`, nil, byDefault},
		"TP-15 none for who tolerates all of it": {
			`tolerations: [{operator: Exists}]`, nil, "\n- {operator: Exists}",
		},
		"TP-15 the other for who has the one": {
			`tolerations: [{key: node.kubernetes.io/unreachable, value: x, effect: NoExecute}]`, nil,
			"\n- {key: node.kubernetes.io/unreachable, value: x, effect: NoExecute}\n- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}",
		},
		"TP-15 both for who has them with another effect": {
			`tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule}]`, nil,
			"\n- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule}" + byDefault,
		},
		"TP-16 not of requested resources": {gpu, nil, byDefault},
		"TP-16 of requested resources, where the plugin runs": {
			gpu, func(s *APIServer) { s.Admission.ExtendedResourceToleration = true }, byDefault + "\n- {key: example.com/gpu, operator: Exists, effect: NoSchedule}",
		},
		"TP-03 not of memory pressure": {gpu, nil, byDefault},
		"TP-03 of memory pressure, where the plugin runs": {
			gpu, func(s *APIServer) { s.Admission.PodTolerationRestriction = true },
			byDefault + "\n- {key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}",
		},
		"TP-03 not for the pod that asks for nothing": {
			`containers: [{name: c}]`, func(s *APIServer) { s.Admission.PodTolerationRestriction = true }, byDefault,
		},
		"TP-19 those of the runtime class": {
			`{runtimeClassName: kata, tolerations: [{key: own, operator: Exists}]}`, nil,
			"\n- {key: own, operator: Exists}" + byDefault + "\n- {key: kata, operator: Exists}",
		},
		"TP-19 none of a class that is not there": {`runtimeClassName: none`, nil, byDefault},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			s := server(&classes{runtime: kata})
			if c.setup != nil {
				c.setup(s)
			}
			pod := &corev1.Pod{Spec: *decoded[corev1.PodSpec](t, c.spec)}
			require.NoError(t, s.Admit(t.Context(), pod))
			require.YAMLEq(t, c.want, builtinTolerates(t, pod.Spec.Tolerations))
		})
	}
}

func TestPodsHaveWhatPodsAlwaysHave(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: *decoded[corev1.PodSpec](t, `{containers: [{name: c, image: "registry:5000/x", resources: {limits: {cpu: 1}}, ports: [{containerPort: 1}]}]}`)}
	require.NoError(t, server(&classes{}).Admit(t.Context(), pod))
	require.Equal(t, "default", pod.Spec.ServiceAccountName)
	require.Equal(t, corev1.RestartPolicyAlways, pod.Spec.RestartPolicy)
	require.Equal(t, corev1.PullAlways, pod.Spec.Containers[0].ImagePullPolicy)
	require.Equal(t, pod.Spec.Containers[0].Resources.Limits, pod.Spec.Containers[0].Resources.Requests)
	require.Equal(t, corev1.ProtocolTCP, pod.Spec.Containers[0].Ports[0].Protocol)
	require.Equal(t, int32(0), *pod.Spec.Priority)

	deployment := &appsv1.Deployment{}
	require.NoError(t, server(&classes{}).Admit(t.Context(), deployment))
	spec := deployment.Spec.Template.Spec
	require.Equal(t, corev1.DNSClusterFirst, spec.DNSPolicy)
	require.Empty(t, spec.ServiceAccountName, "no plugin looks at templates")
	require.Empty(t, spec.Tolerations)
}

func TestPriorities(t *testing.T) {
	t.Parallel()
	never := corev1.PreemptNever
	given := map[string]schedulingv1.PriorityClass{
		"high": *decoded[schedulingv1.PriorityClass](t, `{metadata: {name: high}, value: 7, preemptionPolicy: Never}`),
	}
	global := map[string]schedulingv1.PriorityClass{
		"usual": *decoded[schedulingv1.PriorityClass](t, `{metadata: {name: usual}, value: 3, globalDefault: true}`),
	}
	for sentence, c := range map[string]struct {
		class     string
		classes   map[string]schedulingv1.PriorityClass
		wantClass string
		want      *int32
	}{
		"zero without a class":                  {"", given, "", new(int32(0))},
		"that of the default":                   {"", global, "usual", new(int32(3))},
		"that of the class":                     {"high", given, "high", new(int32(7))},
		"those of the system are known":         {"system-node-critical", nil, "system-node-critical", new(int32(2_000_001_000))},
		"none of a class that is not there yet": {"low", given, "low", nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: c.class}}
			require.NoError(t, server(&classes{priority: c.classes}).Admit(t.Context(), pod))
			require.Equal(t, c.wantClass, pod.Spec.PriorityClassName)
			require.Equal(t, c.want, pod.Spec.Priority)
			require.Equal(t, c.class == "high", pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == never)
		})
	}
}

func TestTP17NewNodesAreNotReady(t *testing.T) {
	t.Parallel()
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	node := &corev1.Node{}
	require.NoError(t, server(&classes{}).Admit(t.Context(), node))
	require.Equal(t, []corev1.Taint{notReady}, node.Spec.Taints)
	require.NoError(t, server(&classes{}).Admit(t.Context(), node))
	require.Len(t, node.Spec.Taints, 1)
}

func TestDevices(t *testing.T) {
	t.Parallel()
	rule := &resourcev1.DeviceTaintRule{}
	slice := decoded[resourcev1.ResourceSlice](t, `{spec: {devices: [{name: a, taints: [{key: k, effect: NoSchedule}]}]}}`)
	claim := decoded[resourcev1.ResourceClaim](t, `
spec:
  devices:
    requests:
    - {name: a, exactly: {deviceClassName: c, tolerations: [{key: k}]}}
    - {name: b, firstAvailable: [{name: s, deviceClassName: c, allocationMode: All}]}`)
	s := server(&classes{})
	require.NoError(t, s.Admit(t.Context(), rule))
	require.NoError(t, s.Admit(t.Context(), slice))
	require.NoError(t, s.Admit(t.Context(), claim))
	require.Equal(t, builtinNow.Truncate(time.Second), rule.Spec.Taint.TimeAdded.Time)
	require.Equal(t, builtinNow.Truncate(time.Second), slice.Spec.Devices[0].Taints[0].TimeAdded.Time)
	exactly := claim.Spec.Devices.Requests[0].Exactly
	require.Equal(t, resourcev1.DeviceTolerationOpEqual, exactly.Tolerations[0].Operator)
	require.Equal(t, resourcev1.DeviceAllocationModeExactCount, exactly.AllocationMode)
	require.Equal(t, int64(1), exactly.Count)
	require.Zero(t, claim.Spec.Devices.Requests[1].FirstAvailable[0].Count)
}

func TestNamespacesHaveTheirNameAsALabel(t *testing.T) {
	t.Parallel()
	namespace := &corev1.Namespace{}
	namespace.Name = "a"
	require.NoError(t, server(&classes{}).Admit(t.Context(), namespace))
	require.Equal(t, map[string]string{corev1.LabelMetadataName: "a"}, namespace.Labels)
}

func TestTP04MergedTolerationsSayNothingTwice(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ have, more, want string }{
		"others are added":                      {`[{key: a}]`, `[{key: b}]`, `[{key: a}, {key: b}]`},
		"of the same one stays":                 {`[{key: a}]`, `[{key: a}]`, `[{key: a}]`},
		"what a wildcard says too goes":         {`[{key: a, operator: Exists}]`, `[{operator: Exists}]`, `[{operator: Exists}]`},
		"TP-05 for ever is more than a while":   {`[{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]`, `[{key: a, operator: Exists, effect: NoExecute}]`, `[{key: a, operator: Exists, effect: NoExecute}]`},
		"TP-05 and a while is not for ever":     {`[{key: a, operator: Exists, effect: NoExecute}]`, `[{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]`, `[{key: a, operator: Exists, effect: NoExecute}]`},
		"TP-05 Equal covers Equal of its value": {`[{key: a, operator: Equal, value: v, effect: NoSchedule}]`, `[{key: a, operator: Equal, value: v}]`, `[{key: a, operator: Equal, value: v}]`},
		"TP-06 but not an empty operator":       {`[{key: a, value: v, effect: NoSchedule}]`, `[{key: a, operator: Equal, value: v}]`, `[{key: a, value: v, effect: NoSchedule}, {key: a, operator: Equal, value: v}]`},
		"TP-06 Lt covers the same alone":        {`[{key: a, operator: Lt, value: "5", effect: NoSchedule}]`, `[{key: a, operator: Lt, value: "5"}]`, `[{key: a, operator: Lt, value: "5", effect: NoSchedule}, {key: a, operator: Lt, value: "5"}]`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			merged := merge(*decoded[[]corev1.Toleration](t, c.have), *decoded[[]corev1.Toleration](t, c.more))
			require.YAMLEq(t, c.want, builtinTolerates(t, merged))
		})
	}
}

func TestDaemonsTolerateNodesThatAreNotFit(t *testing.T) {
	t.Parallel()
	spec := &corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))}}}
	tolerateAsDaemon(spec)
	require.Len(t, spec.Tolerations, 6)
	require.Nil(t, spec.Tolerations[0].TolerationSeconds)
	tolerateAsDaemon(spec)
	require.Len(t, spec.Tolerations, 6)
	spec.HostNetwork = true
	tolerateAsDaemon(spec)
	require.Len(t, spec.Tolerations, 7)
}

func TestWorkloadsHaveOnePodUnlessTheySayHowMany(t *testing.T) {
	t.Parallel()
	one, four := int32(1), int32(4)
	deployment, recreated, job := &appsv1.Deployment{}, &appsv1.Deployment{}, &batchv1.Job{}
	recreated.Spec.Strategy.Type, recreated.Spec.Replicas = appsv1.RecreateDeploymentStrategyType, &four
	set, stateful, controller := &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &corev1.ReplicationController{}
	s := &APIServer{}
	require.NoError(t, s.Admit(t.Context(), deployment))
	require.NoError(t, s.Admit(t.Context(), recreated))
	require.NoError(t, s.Admit(t.Context(), job))
	require.NoError(t, s.Admit(t.Context(), set))
	require.NoError(t, s.Admit(t.Context(), stateful))
	controller.Spec.Template = &corev1.PodTemplateSpec{}
	require.NoError(t, s.Admit(t.Context(), controller))
	for _, count := range []*int32{deployment.Spec.Replicas, job.Spec.Parallelism, set.Spec.Replicas, stateful.Spec.Replicas, controller.Spec.Replicas} {
		require.Equal(t, &one, count)
	}
	require.Equal(t, intstr.FromString("25%"), *deployment.Spec.Strategy.RollingUpdate.MaxSurge)
	require.Equal(t, &four, recreated.Spec.Replicas)
	require.Nil(t, recreated.Spec.Strategy.RollingUpdate)
}
