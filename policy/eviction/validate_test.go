package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestD03ValidatePolicy(t *testing.T) {
	t.Parallel()
	const evict = v1alpha1.EvictionMethodEvict
	device := v1alpha1.TaintTargetDevice
	seconds := func(n int64) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }
	classes := make([]string, maxClasses+1)
	for i := range classes {
		classes[i] = fmt.Sprintf("class-%d", i)
	}
	type change = func(*v1alpha1.EvictionPolicySpec)
	tests := map[string]struct {
		change change
		want   []string
	}{
		"as it should be": {func(*v1alpha1.EvictionPolicySpec) {}, nil},
		"all of it": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Taints = []v1alpha1.TaintSelector{{Key: "*", Effects: []corev1.TaintEffect{"NoSchedule", "NoExecute"}}, {Target: device, Key: "example.com/*", Drivers: []string{"gpu.example.com"}}}
			s.NamespaceSelector, s.PodSelector = labelled("team", "shop"), &metav1.LabelSelector{}
			s.Method, s.DeleteAfter = evict, &metav1.Duration{}
			s.Pace = &v1alpha1.EvictionPace{PodsPerSecond: maxRate, Burst: 1, Scope: selected}
			s.Breaker = &v1alpha1.EvictionBreaker{MaxPods: new(int32(1)), MaxPercent: new(int32(100)), Window: seconds(10), Scope: decided}
			s.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: []string{"system-node-critical"}, PodSelector: labelled("app", "db"), Namespaces: []string{"kube-system", "infra-*"}}
			s.Paused = true
		}, nil},
		"a window":               {func(s *v1alpha1.EvictionPolicySpec) { s.Inject = &v1alpha1.EvictionInjection{Seconds: 86400} }, nil},
		"no taints":              {func(s *v1alpha1.EvictionPolicySpec) { s.Taints = nil }, []string{"spec.taints"}},
		"a key that is none":     {func(s *v1alpha1.EvictionPolicySpec) { s.Taints[0].Key = "a b" }, []string{"spec.taints[0].key"}},
		"a pattern that is none": {func(s *v1alpha1.EvictionPolicySpec) { s.Taints[0].Key = "a*" }, []string{"spec.taints[0].key"}},
		"effects that evict nobody": {
			func(s *v1alpha1.EvictionPolicySpec) { s.Taints[0].Effects = []corev1.TaintEffect{"NoSchedule"} }, []string{"spec.taints[0].effects"},
		},
		"an effect None, which is a preview": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Taints[0].Target, s.Taints[0].Effects = device, []corev1.TaintEffect{"None"}
		}, []string{"spec.taints[0].effects"}},
		"drivers of nodes": {func(s *v1alpha1.EvictionPolicySpec) { s.Taints[0].Drivers = []string{"a"} }, []string{"spec.taints[0].drivers"}},
		"device classes, which taints do not name": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Taints[0].Target, s.Taints[0].DeviceClasses = device, []string{"a"}
		}, []string{"spec.taints[0].deviceClasses"}},
		"namespaces that cannot be selected": {func(s *v1alpha1.EvictionPolicySpec) { s.NamespaceSelector = unreadable() }, []string{"spec.namespaceSelector.matchExpressions[0].operator"}},
		"pods that cannot be selected":       {func(s *v1alpha1.EvictionPolicySpec) { s.PodSelector = unreadable() }, []string{"spec.podSelector.matchExpressions[0].operator"}},
		"a label that is none":               {func(s *v1alpha1.EvictionPolicySpec) { s.PodSelector = labelled("a b", "") }, []string{"spec.podSelector.matchLabels"}},
		"a method that is not known":         {func(s *v1alpha1.EvictionPolicySpec) { s.Method = "Ask" }, []string{"spec.method"}},
		"a mark that is not known":           {func(s *v1alpha1.EvictionPolicySpec) { s.Mark = "Later" }, []string{"spec.mark"}},
		"a mark beside that of the Eviction API": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Method, s.Mark = evict, v1alpha1.EvictionMarkWhileTerminating
		}, []string{"spec.mark"}},
		"a negative time":         {func(s *v1alpha1.EvictionPolicySpec) { s.Method, s.DeleteAfter = evict, new(seconds(-1)) }, []string{"spec.deleteAfter"}},
		"a time without a budget": {func(s *v1alpha1.EvictionPolicySpec) { s.DeleteAfter = new(seconds(1)) }, []string{"spec.deleteAfter"}},
		"no pace":                 {func(s *v1alpha1.EvictionPolicySpec) { s.Pace = &v1alpha1.EvictionPace{} }, []string{"spec.pace.podsPerSecond"}},
		"a pace out of bounds": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Pace = &v1alpha1.EvictionPace{PodsPerSecond: maxRate + 1, Burst: maxRate + 1, Scope: "Some"}
		}, []string{"spec.pace.podsPerSecond", "spec.pace.burst", "spec.pace.scope"}},
		"a negative burst":          {func(s *v1alpha1.EvictionPolicySpec) { s.Pace = &v1alpha1.EvictionPace{PodsPerSecond: 1, Burst: -1} }, []string{"spec.pace.burst"}},
		"a breaker without a limit": {func(s *v1alpha1.EvictionPolicySpec) { s.Breaker = &v1alpha1.EvictionBreaker{} }, []string{"spec.breaker"}},
		"a breaker out of bounds": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Breaker = &v1alpha1.EvictionBreaker{MaxPods: new(int32(0)), MaxPercent: new(int32(0)), Window: seconds(9), Scope: "Some"}
		}, []string{"spec.breaker.maxPods", "spec.breaker.maxPercent", "spec.breaker.window", "spec.breaker.scope"}},
		"a breaker out of the other bounds": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Breaker = &v1alpha1.EvictionBreaker{MaxPercent: new(int32(101)), Window: seconds(86_401)}
		}, []string{"spec.breaker.maxPercent", "spec.breaker.window"}},
		"a negative window of a breaker": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Breaker = &v1alpha1.EvictionBreaker{MaxPods: new(int32(1)), Window: seconds(-60)}
		}, []string{"spec.breaker.window"}},
		"protection of nobody": {func(s *v1alpha1.EvictionPolicySpec) { s.Protect = &v1alpha1.EvictionProtection{} }, []string{"spec.protect"}},
		"protection of all": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Protect = &v1alpha1.EvictionProtection{PodSelector: &metav1.LabelSelector{}}
		}, []string{"spec.protect.podSelector"}},
		"protection of whom nobody knows": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Protect = &v1alpha1.EvictionProtection{PodSelector: unreadable()}
		}, []string{"spec.protect.podSelector.matchExpressions[0].operator"}},
		"classes that are none": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: []string{"a", "", "a", strings.Repeat("x", maxClassName+1)}}
		}, []string{"spec.protect.priorityClassNames[2]", "spec.protect.priorityClassNames[1]", "spec.protect.priorityClassNames[3]"}},
		"too many classes (D06)": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: classes}
		}, []string{"spec.protect.priorityClassNames"}},
		"protection in namespaces that are none": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: []string{"a"}, Namespaces: []string{"a", "a", "*", "A", "a-*-b"}}
		}, []string{"spec.protect.namespaces[1]", "spec.protect.namespaces[2]", "spec.protect.namespaces[3]", "spec.protect.namespaces[4]"}},
		"protection in namespaces of nobody": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Protect = &v1alpha1.EvictionProtection{Namespaces: []string{"a"}}
		}, []string{"spec.protect"}},
		"a window by the former name of inject": {func(s *v1alpha1.EvictionPolicySpec) { s.Window = &v1alpha1.EvictionInjection{Seconds: 1} }, []string{"spec.window"}},
		"a window of no time":                   {func(s *v1alpha1.EvictionPolicySpec) { s.Inject = &v1alpha1.EvictionInjection{} }, []string{"spec.inject.seconds"}},
		"a window of two days":                  {func(s *v1alpha1.EvictionPolicySpec) { s.Inject = &v1alpha1.EvictionInjection{Seconds: 172_800} }, []string{"spec.inject.seconds"}},
		"a window for a pattern of keys": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Inject, s.Taints = &v1alpha1.EvictionInjection{Seconds: 1}, []v1alpha1.TaintSelector{{Key: "a"}, {Key: "*"}, {Key: "example.com/*"}}
		}, []string{"spec.taints[1].key", "spec.taints[2].key"}},
		"a window for some values": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Inject, s.Taints[0].Values = &v1alpha1.EvictionInjection{Seconds: 1}, []string{"v"}
		}, []string{"spec.taints[0].values"}},
		"a window for some drivers": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Inject, s.Taints[0].Target, s.Taints[0].Drivers = &v1alpha1.EvictionInjection{Seconds: 1}, device, []string{"gpu.example.com"}
		}, []string{"spec.taints[0].drivers"}},
		"a window for the claims of some pods": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Inject, s.Taints[0].Target, s.PodSelector = &v1alpha1.EvictionInjection{Seconds: 1}, device, labelled("app", "web")
		}, []string{"spec.podSelector"}},
		"a window for some pods of a node": {func(s *v1alpha1.EvictionPolicySpec) {
			s.Inject, s.PodSelector = &v1alpha1.EvictionInjection{Seconds: 1}, labelled("app", "web")
		}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPolicy("p", "a")
			tt.change(&p.Spec)
			errs := ValidatePolicy(&p)
			require.Equal(t, tt.want, fields(errs), "%v", errs)
			for _, err := range errs {
				require.NotEmpty(t, err.ErrorBody())
			}
			require.Equal(t, len(tt.want) > 0, len(Compile([]v1alpha1.EvictionPolicy{p}).Problems()) > 0)
		})
	}
}

func fields(errs field.ErrorList) []string {
	var paths []string
	for _, err := range errs {
		paths = append(paths, err.Field)
	}
	return paths
}

func TestAnErrorSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	p := newPolicy("p", "*", windowed(20), protecting(&metav1.LabelSelector{}))
	text := ValidatePolicy(&p).ToAggregate().Error()
	require.Contains(t, text, `spec.taints[0].key: Invalid value: "*": the policy injects a toleration of one key: give the key in full`)
	require.Contains(t, text, "set paused to hold all evictions")
}
