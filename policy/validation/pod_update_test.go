package validation_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

const (
	required  = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	preferred = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
)

// found is what a test expects of an error: its kind and its field.
type found struct {
	kind field.ErrorType
	path string
}

func requireErrors(t *testing.T, errs field.ErrorList, want ...found) {
	t.Helper()
	got := make([]found, 0, len(errs))
	for _, err := range errs {
		got = append(got, found{err.Type, err.Field})
		require.NotEmpty(t, err.Detail+string(err.Type), "an error without an explanation")
	}
	require.ElementsMatch(t, want, got, "%v", errs.ToAggregate())
}

// updateCase is an update of a pod whose scheduling gates are gates.
type updateCase struct {
	gates    []string
	old, pod corev1.PodSpec
	want     []found
}

func runUpdates(t *testing.T, cases map[string]updateCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			old, pod := &corev1.Pod{Spec: tc.old}, &corev1.Pod{Spec: tc.pod}
			old.Spec.SchedulingGates = gates(tc.gates...)
			if pod.Spec.SchedulingGates == nil {
				pod.Spec.SchedulingGates = gates(tc.gates...)
			}
			requireErrors(t, validation.ValidatePodUpdate(&pod.Spec, &old.Spec), tc.want...)
			require.Empty(t, validation.ValidatePodUpdate(&old.Spec, &old.Spec), "a pod that does not change")
		})
	}
}

func gates(names ...string) []corev1.PodSchedulingGate {
	list := []corev1.PodSchedulingGate{}
	for _, name := range names {
		list = append(list, corev1.PodSchedulingGate{Name: name})
	}
	return list
}

func TestSchedulingGatesCanOnlyBeRemoved(t *testing.T) {
	t.Parallel()
	path := func(i string) string { return "spec.schedulingGates[" + i + "]" }
	runUpdates(t, map[string]updateCase{
		"SD-02 one of two gates goes": {gates: []string{"a", "b"}, pod: corev1.PodSpec{SchedulingGates: gates("b")}},
		"SD-02 all gates go":          {gates: []string{"a", "b"}, pod: corev1.PodSpec{SchedulingGates: gates()}},
		"SD-02 the order changes":     {gates: []string{"a", "b"}, pod: corev1.PodSpec{SchedulingGates: gates("b", "a")}},
		"SD-02 a gate comes": {
			gates: []string{"a"}, pod: corev1.PodSpec{SchedulingGates: gates("a", "b")},
			want: []found{{field.ErrorTypeForbidden, path("1") + ".name"}},
		},
		"SD-02 a gate comes to a pod without one": {
			pod:  corev1.PodSpec{SchedulingGates: gates("a")},
			want: []found{{field.ErrorTypeForbidden, path("0") + ".name"}},
		},
		"SD-02 a gate comes while another goes": {
			gates: []string{"a", "b"}, pod: corev1.PodSpec{SchedulingGates: gates("c", "b")},
			want: []found{{field.ErrorTypeForbidden, path("0") + ".name"}},
		},
		"SD-02 a new gate twice is reported where it stands last": {
			gates: []string{"a"}, pod: corev1.PodSpec{SchedulingGates: gates("c", "c")},
			want: []found{{field.ErrorTypeForbidden, path("1") + ".name"}, {field.ErrorTypeDuplicate, path("1")}},
		},
		"SD-01 an old gate twice": {
			gates: []string{"a"}, pod: corev1.PodSpec{SchedulingGates: gates("a", "a")},
			want: []found{{field.ErrorTypeDuplicate, path("1")}},
		},
		"SD-01 a new gate without a qualified name": {
			gates: []string{"a"}, pod: corev1.PodSpec{SchedulingGates: gates("a", "x/y/z")},
			want: []found{{field.ErrorTypeInvalid, path("1")}, {field.ErrorTypeForbidden, path("1") + ".name"}},
		},
	})
}

func TestNodeSelectorCanOnlyBeNarrowedBehindAGate(t *testing.T) {
	t.Parallel()
	selector := func(pairs ...string) corev1.PodSpec {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return corev1.PodSpec{NodeSelector: m}
	}
	held := []string{"hold"}
	invalid := []found{{field.ErrorTypeInvalid, "spec.nodeSelector"}}
	forbidden := []found{{field.ErrorTypeForbidden, "spec"}}
	opened := selector("a", "1", "b", "2")
	opened.SchedulingGates = gates()

	runUpdates(t, map[string]updateCase{
		"SD-06 a key comes":                             {gates: held, old: selector("a", "1"), pod: selector("a", "1", "b", "2")},
		"SD-06 the first key comes":                     {gates: held, pod: selector("a", "1")},
		"SD-06 an empty selector for none":              {gates: held, pod: selector()},
		"SD-06 a key goes":                              {gates: held, old: selector("a", "1"), pod: selector(), want: invalid},
		"SD-06 a value changes":                         {gates: held, old: selector("a", "1"), pod: selector("a", "2"), want: invalid},
		"SD-06 a key is replaced":                       {gates: held, old: selector("a", "1"), pod: selector("b", "1"), want: invalid},
		"SD-06 an empty value is a value":               {gates: held, old: selector("a", ""), pod: selector("b", "1"), want: invalid},
		"SD-04 the last gate goes and a key comes":      {gates: held, old: selector("a", "1"), pod: opened},
		"SD-05 a key comes to a pod that is not held":   {old: selector("a", "1"), pod: selector("a", "1", "b", "2"), want: forbidden},
		"SD-05 a key goes from a pod that is not held":  {old: selector("a", "1"), pod: selector(), want: forbidden},
		"SD-05 an empty selector for none is no change": {pod: selector()},
		"SD-13 a new key that is no label name":         {gates: held, pod: selector("no key", "1"), want: invalid},
		"SD-13 a new value that is no label value":      {gates: held, pod: selector("a", "no value"), want: invalid},
	})
}

func TestOtherDirectivesStand(t *testing.T) {
	t.Parallel()
	held := []string{"hold"}
	podTerms := []corev1.PodAffinityTerm{{TopologyKey: "zone"}}
	podAffinity := func(terms []corev1.PodAffinityTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms},
		}}
	}
	podAntiAffinity := func(terms []corev1.PodAffinityTerm) corev1.PodSpec {
		return corev1.PodSpec{Affinity: &corev1.Affinity{
			NodeAffinity:    &corev1.NodeAffinity{},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms},
		}}
	}
	spread := corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone"}}}
	forbidden := []found{{field.ErrorTypeForbidden, "spec"}}

	runUpdates(t, map[string]updateCase{
		"SD-12 pod affinity comes":                   {gates: held, pod: podAffinity(podTerms), want: forbidden},
		"SD-12 pod affinity goes":                    {gates: held, old: podAffinity(podTerms), want: forbidden},
		"SD-12 pod affinity changes":                 {gates: held, old: podAffinity(podTerms), pod: podAffinity(nil), want: forbidden},
		"SD-12 pod anti-affinity comes":              {gates: held, pod: podAntiAffinity(podTerms), want: forbidden},
		"SD-12 pod anti-affinity goes":               {gates: held, old: podAntiAffinity(podTerms), want: forbidden},
		"SD-12 pod anti-affinity changes":            {gates: held, old: podAntiAffinity(podTerms), pod: podAntiAffinity(nil), want: forbidden},
		"SD-12 pod affinity becomes anti-affinity":   {gates: held, old: podAffinity(podTerms), pod: podAntiAffinity(podTerms), want: forbidden},
		"SD-12 pod affinity changes with a node's":   {gates: held, old: podAffinity(podTerms), pod: withRequired(podAffinity(nil), in("zone", "a")), want: forbidden},
		"SD-12 a spread constraint comes":            {gates: held, pod: spread, want: forbidden},
		"SD-12 a spread constraint goes":             {gates: held, old: spread, want: forbidden},
		"SD-12 another scheduler":                    {gates: held, old: corev1.PodSpec{SchedulerName: "a"}, pod: corev1.PodSpec{SchedulerName: "b"}, want: forbidden},
		"SD-12 another priority":                     {gates: held, old: corev1.PodSpec{Priority: new(int32(0))}, pod: corev1.PodSpec{Priority: new(int32(1))}, want: forbidden},
		"SD-12 the priority goes":                    {gates: held, old: corev1.PodSpec{Priority: new(int32(0))}, want: forbidden},
		"SD-12 a scheduling group comes":             {gates: held, pod: corev1.PodSpec{SchedulingGroup: group("g")}, want: forbidden},
		"SD-12 another scheduling group":             {gates: held, old: corev1.PodSpec{SchedulingGroup: group("g")}, pod: corev1.PodSpec{SchedulingGroup: group("h")}, want: forbidden},
		"SD-12 the same scheduling group":            {gates: held, old: corev1.PodSpec{SchedulingGroup: group("g")}, pod: corev1.PodSpec{SchedulingGroup: group("g")}},
		"SD-12 several changes are one error":        {old: spread, pod: corev1.PodSpec{SchedulerName: "b", NodeSelector: map[string]string{"a": "b"}}, want: forbidden},
		"SD-12 a node affinity beside a pod's stays": {gates: held, old: podAntiAffinity(podTerms), pod: withRequired(podAntiAffinity(podTerms), in("zone", "a"))},
		"other fields are none of its business": {
			old: corev1.PodSpec{NodeName: "a", Hostname: "a", PriorityClassName: "low"},
			pod: corev1.PodSpec{NodeName: "b", Tolerations: []corev1.Toleration{{Operator: "No"}}},
		},
	})
}

func group(name string) *corev1.PodSchedulingGroup {
	return &corev1.PodSchedulingGroup{PodGroupName: new(name)}
}

func TestTheFieldsThatStandAreNamed(t *testing.T) {
	t.Parallel()
	old := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "a"}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "b", NodeSelector: map[string]string{"zone": "a"}}}
	errs := validation.ValidatePodUpdate(&pod.Spec, &old.Spec)
	require.Len(t, errs, 1)
	require.Equal(t, "nodeSelector, schedulerName may not change once the pod is created: "+
		"node selector and node affinity only while a scheduling gate holds it", errs[0].Detail)
	old.Spec.SchedulingGates = gates("hold")
	pod.Spec.SchedulingGates = gates("hold")
	errs = validation.ValidatePodUpdate(&pod.Spec, &old.Spec)
	require.Len(t, errs, 1)
	require.Equal(t, "schedulerName may not change once the pod is created", errs[0].Detail)
}

// directedPods returns a pod held by a gate, with directives of every kind, and updates of it: one
// narrows it, the others break a rule each.
func directedPods() (old *corev1.Pod, updates []*corev1.Pod) {
	spec := requires(term(in("zone", "a", "b")))
	spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone"}}}
	spec.SchedulingGates = gates("example.com/hold", "example.com/quota")
	spec.NodeSelector = map[string]string{"disk": "ssd"}
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
	old = &corev1.Pod{Spec: spec}
	for _, change := range []func(spec *corev1.PodSpec){
		func(spec *corev1.PodSpec) {
			spec.SchedulingGates = spec.SchedulingGates[1:]
			spec.NodeSelector["example.com/rack"] = "c"
			*spec = withRequired(*spec, in("zone", "a", "b"), in("kubernetes.io/arch", "amd64"))
		},
		func(spec *corev1.PodSpec) { spec.SchedulingGates = nil },
		func(spec *corev1.PodSpec) { spec.SchedulingGates[0].Name = "-late" },
		func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"bad key": "-no label value-"} },
		func(spec *corev1.PodSpec) { spec.Affinity = nil },
		func(spec *corev1.PodSpec) { *spec = withRequired(*spec, in("zone")) },
		func(spec *corev1.PodSpec) { spec.TopologySpreadConstraints = nil },
	} {
		pod := old.DeepCopy()
		change(&pod.Spec)
		updates = append(updates, pod)
	}
	return old, updates
}

func FuzzValidateUpdate(f *testing.F) {
	old, updates := directedPods()
	oldJSON, err := json.Marshal(old)
	require.NoError(f, err)
	for _, pod := range updates {
		podJSON, err := json.Marshal(pod)
		require.NoError(f, err)
		f.Add(oldJSON, podJSON)
	}
	f.Fuzz(func(t *testing.T, oldJSON, podJSON []byte) {
		var old, pod corev1.Pod
		if json.Unmarshal(oldJSON, &old) != nil || json.Unmarshal(podJSON, &pod) != nil {
			return
		}
		before := pod.DeepCopy()
		errs := validation.ValidatePodUpdate(&pod.Spec, &old.Spec)
		require.Equal(t, before, &pod, "the pod was altered")
		for _, err := range errs {
			require.True(t, strings.HasPrefix(err.Field, "spec"), err.Field)
		}
		if pod.Spec.NodeName == "" && len(validation.ValidatePodCreate(&pod.Spec)) == 0 {
			require.Empty(t, validation.ValidatePodUpdate(&pod.Spec, &pod.Spec), "a proper pod that does not change")
		}
	})
}

func BenchmarkValidateUpdate(b *testing.B) {
	manyGates := &corev1.Pod{}
	for i := range 10_000 {
		manyGates.Spec.SchedulingGates = append(manyGates.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: strconv.Itoa(i)})
	}
	directed, updates := directedPods()
	for _, bench := range []struct {
		name     string
		old, pod *corev1.Pod
	}{
		{"a plain pod", &corev1.Pod{}, &corev1.Pod{}},
		{"a pod with 10,000 gates", manyGates, manyGates},
		{"a pod with directives", directed, updates[0]},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				validation.ValidatePodUpdate(&bench.pod.Spec, &bench.old.Spec)
			}
		})
	}
}
