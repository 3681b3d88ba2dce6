package eviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// newPolicy returns a policy over the taints of nodes with a key, changed as asked.
func newPolicy(name, key string, changes ...func(*v1alpha1.EvictionPolicy)) v1alpha1.EvictionPolicy {
	p := v1alpha1.EvictionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), Generation: 1, CreationTimestamp: metav1.NewTime(noon)},
		Spec:       v1alpha1.EvictionPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: key}}},
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func prioritized(n int32) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) { p.Spec.Priority = n }
}

func created(at time.Time) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) { p.CreationTimestamp = metav1.NewTime(at) }
}

func ofDevices(drivers ...string) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) {
		p.Spec.Taints[0].Target, p.Spec.Taints[0].Drivers = v1alpha1.TaintTargetDevice, drivers
	}
}

func inNamespaces(selector *metav1.LabelSelector) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) { p.Spec.NamespaceSelector = selector }
}

func onPods(selector *metav1.LabelSelector) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) { p.Spec.PodSelector = selector }
}

func paced(perSecond int32, scope v1alpha1.LimitScope) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) {
		p.Spec.Pace = &v1alpha1.EvictionPace{PodsPerSecond: perSecond, Scope: scope}
	}
}

func limited(maxPods int32, scope v1alpha1.LimitScope) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) {
		p.Spec.Breaker = &v1alpha1.EvictionBreaker{MaxPods: &maxPods, Scope: scope}
	}
}

func protecting(selector *metav1.LabelSelector, classes ...string) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) {
		p.Spec.Protect = &v1alpha1.EvictionProtection{PodSelector: selector, PriorityClassNames: classes}
	}
}

func windowed(seconds int64) func(*v1alpha1.EvictionPolicy) {
	return func(p *v1alpha1.EvictionPolicy) { p.Spec.Inject = &v1alpha1.EvictionInjection{Seconds: seconds} }
}

func labelled(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// unreadable is a selector that the schema lets pass.
func unreadable() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
}

func nodeTaint(key string) *Taint { return &Taint{Key: key, Effect: corev1.TaintEffectNoExecute} }

func deviceTaint(driver, key string) *Taint {
	return &Taint{Target: v1alpha1.TaintTargetDevice, Driver: driver, Key: key, Effect: corev1.TaintEffectNoExecute}
}

// web is a pod that the tests are about.
func web() *Subject {
	return &Subject{
		Namespace: "shop", NamespaceKnown: true, NamespaceLabels: labels.Set{"team": "shop"}, Labels: labels.Set{"app": "web"},
	}
}

func names(list []*Policy) []string {
	out := make([]string, 0, len(list))
	for _, p := range list {
		out = append(out, p.Name)
	}
	return out
}
