package eviction

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// draw makes up policies, taints and pods.
type draw struct{ *rand.Rand }

func pick[T any](d draw, from ...T) T { return from[d.IntN(len(from))] }

func (d draw) selector() *metav1.LabelSelector {
	return pick(d, nil, nil, nil, &metav1.LabelSelector{}, labelled("x", "1"), labelled("x", "2"), &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpDoesNotExist}},
	})
}

func (d draw) labels() labels.Labels {
	return pick[labels.Labels](d, nil, labels.Set{}, labels.Set{"x": "1"}, labels.Set{"x": "2"}, labels.Set{"y": "1"})
}

func (d draw) taintSelector() v1alpha1.TaintSelector {
	sel := v1alpha1.TaintSelector{
		Target: pick(d, "", v1alpha1.TaintTargetNode, v1alpha1.TaintTargetDevice),
		Key:    pick(d, "*", "a", "b", "example.com/*", "example.com/x", "node.kubernetes.io/*", corev1.TaintNodeNotReady),
		Values: pick(d, nil, nil, []string{"1"}, []string{"1", "2"}),
		Effects: pick(d, nil, nil, []corev1.TaintEffect{corev1.TaintEffectNoExecute},
			[]corev1.TaintEffect{corev1.TaintEffectNoSchedule}),
	}
	if sel.Target == v1alpha1.TaintTargetDevice {
		sel.Drivers = pick(d, nil, nil, []string{"gpu.example.com"})
	}
	return sel
}

func (d draw) policy(name string) v1alpha1.EvictionPolicy {
	p := newPolicy(name, "a", prioritized(int32(d.IntN(4)-2)), created(noon.Add(time.Duration(d.IntN(3))*time.Second)))
	p.Spec.Taints = nil
	for range 1 + d.IntN(3) {
		p.Spec.Taints = append(p.Spec.Taints, d.taintSelector())
	}
	p.Spec.PodSelector, p.Spec.NamespaceSelector = d.selector(), d.selector()
	scope := func() v1alpha1.LimitScope { return pick(d, "", decided, selected) }
	if d.IntN(2) == 0 {
		p.Spec.Pace = &v1alpha1.EvictionPace{PodsPerSecond: 1, Scope: scope()}
	}
	if d.IntN(2) == 0 {
		p.Spec.Breaker = &v1alpha1.EvictionBreaker{MaxPods: new(int32(1)), Scope: scope()}
	}
	if d.IntN(3) == 0 {
		p.Spec.Protect = &v1alpha1.EvictionProtection{
			PriorityClassNames: []string{"c"}, PodSelector: labelled("x", "1"),
			Namespaces: pick(d, nil, []string{"n"}, []string{"m"}, []string{"m", "n*"}, []string{"not*valid"}),
		}
	}
	if d.IntN(3) == 0 {
		p.Spec.Inject = &v1alpha1.EvictionInjection{Seconds: int64(1 + d.IntN(100))}
	}
	return p
}

func (d draw) taint() Taint {
	t := Taint{
		Target: pick(d, "", v1alpha1.TaintTargetNode, v1alpha1.TaintTargetDevice),
		Key:    pick(d, "a", "b", "c", "example.com/x", "example.com/y", corev1.TaintNodeNotReady),
		Value:  pick(d, "", "1", "2"),
		Effect: corev1.TaintEffectNoExecute,
	}
	if t.Target == v1alpha1.TaintTargetDevice {
		t.Driver = pick(d, "gpu.example.com", "nic.example.com")
	}
	return t
}

func (d draw) subject() Subject {
	s := Subject{Namespace: "n", NamespaceKnown: d.IntN(4) > 0, Labels: d.labels(), PriorityClassName: pick(d, "", "c", "d")}
	if s.NamespaceKnown {
		s.NamespaceLabels = d.labels()
	}
	return s
}

// oracle is For, written as the API says it and nothing else: it goes through all
// policies, and knows no index.
type oracle []v1alpha1.EvictionPolicy

// order returns the policies in the order in which they govern, by going again and
// again for the one that nobody beats.
func (o oracle) order() oracle {
	rest, sorted := slices.Clone(o), oracle{}
	for len(rest) > 0 {
		best := 0
		for i := range rest {
			a, b := &rest[i], &rest[best]
			switch {
			case a.Spec.Priority != b.Spec.Priority:
				if a.Spec.Priority > b.Spec.Priority {
					best = i
				}
			case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
				if a.CreationTimestamp.Before(&b.CreationTimestamp) {
					best = i
				}
			case a.Name < b.Name:
				best = i
			}
		}
		sorted = append(sorted, rest[best])
		rest = slices.Delete(rest, best, best+1)
	}
	return sorted
}

func selectsKey(sel *v1alpha1.TaintSelector, device bool, key string) bool {
	switch {
	case sel.Key == "*":
		return device || !strings.HasPrefix(key, "node.kubernetes.io/")
	case strings.HasSuffix(sel.Key, "/*"):
		return strings.HasPrefix(key, strings.TrimSuffix(sel.Key, "*"))
	default:
		return sel.Key == key
	}
}

func selectsTaint(p *v1alpha1.EvictionPolicy, t *Taint) bool {
	for i := range p.Spec.Taints {
		sel := &p.Spec.Taints[i]
		device := sel.Target == v1alpha1.TaintTargetDevice
		if device == (t.Target == v1alpha1.TaintTargetDevice) && selectsKey(sel, device, t.Key) &&
			(len(sel.Values) == 0 || slices.Contains(sel.Values, t.Value)) &&
			(len(sel.Effects) == 0 || slices.Contains(sel.Effects, t.Effect)) &&
			(len(sel.Drivers) == 0 || slices.Contains(sel.Drivers, t.Driver)) {
			return true
		}
	}
	return false
}

func matches(in *metav1.LabelSelector, of labels.Labels) bool {
	if in == nil {
		return true
	}
	set, _ := of.(labels.Set)
	for key, value := range in.MatchLabels {
		if set[key] != value {
			return false
		}
	}
	for _, e := range in.MatchExpressions { // only DoesNotExist is drawn
		if _, ok := set[e.Key]; ok {
			return false
		}
	}
	return true
}

func asksNamespace(p *v1alpha1.EvictionPolicy) bool {
	s := p.Spec.NamespaceSelector
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// treat describes the treatment; unknown when a policy that has a say
// asks for labels of the namespace in vain.
func (o oracle) treat(t *Taint, s *Subject) string {
	governing, protected := "", false
	var paces, breakers []string
	for _, p := range o.order() {
		paced := p.Spec.Pace != nil && (governing == "" || p.Spec.Pace.Scope == selected)
		broken := p.Spec.Breaker != nil && (governing == "" || p.Spec.Breaker.Scope == selected)
		hasSay := governing == "" || paced || broken
		if !hasSay || !selectsTaint(&p, t) || !matches(p.Spec.PodSelector, s.Labels) {
			continue
		}
		if asksNamespace(&p) && !s.NamespaceKnown {
			return "unknown to " + p.Name
		}
		if !matches(p.Spec.NamespaceSelector, s.NamespaceLabels) {
			continue
		}
		if governing == "" {
			governing = p.Name
			protect := p.Spec.Protect
			protected = protect != nil && !slices.Equal(protect.Namespaces, []string{"m"}) && (slices.Contains(protect.PriorityClassNames, s.PriorityClassName) || matches(protect.PodSelector, s.Labels))
		}
		if paced {
			paces = append(paces, p.Name)
		}
		if broken {
			breakers = append(breakers, p.Name)
		}
	}
	return describe(governing, paces, breakers, protected)
}

func describe(governing string, paces, breakers []string, protected bool) string {
	return fmt.Sprintf("by %q, paced by %q, limited by %q, protected %t", governing, paces, breakers, protected)
}

func described(t Treatment, err error) string {
	if asked, ok := err.(*NamespaceUnknownError); ok { //nolint:errorlint // For promises just this
		return "unknown to " + asked.Policy
	}
	governing := ""
	if t.Policy != nil {
		governing = t.Policy.Name
	}
	return describe(governing, names(t.Paces), names(t.Breakers), t.Protected)
}

func TestTheSetAgreesWithADumbOracle(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	d := draw{rand.New(rand.NewPCG(seed, 0))}
	seen := map[string]int{}
	for range 1_000 {
		list := make(oracle, d.IntN(8))
		for i := range list {
			list[i] = d.policy(fmt.Sprintf("p%d", i))
		}
		d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		set := Compile(list)
		for range 10 {
			taint, subject := d.taint(), d.subject()
			want, got := list.treat(&taint, &subject), described(set.For(&taint, &subject))
			require.Equal(t, want, got, "seed %d: %+v %+v %+v", seed, list, taint, subject)
			count(seen, got)
			windows(t, seed, list, set, taint.Target, &subject)
		}
	}
	for what, n := range seen {
		require.Greater(t, n, 150, "%s is drawn too seldom to say anything", what)
	}
	require.Len(t, seen, 5)
}

func count(seen map[string]int, got string) {
	for what, sign := range map[string]string{
		"nobody": `by ""`, "unknown": "unknown to", "protected": "protected true", "two breakers": `limited by ["`, "paced": `paced by ["`,
	} {
		if strings.Contains(got, sign) {
			seen[what]++
		}
	}
}

// windows holds what a pod or a claim is given to a look at each key.
func windows(t *testing.T, seed uint64, list oracle, set *Set, target v1alpha1.TaintTarget, s *Subject) {
	t.Helper()
	device := target == v1alpha1.TaintTargetDevice
	var want []v1alpha1.WindowToleration
	unknown := ""
	for _, key := range []string{"a", "b", "example.com/x", corev1.TaintNodeNotReady} {
		p, asked := list.windowOf(key, device, s)
		switch {
		case asked != "":
			unknown = asked
		case p != nil && p.Spec.Inject != nil && validWindow(p):
			want = append(want, v1alpha1.WindowToleration{Key: key, Seconds: p.Spec.Inject.Seconds})
		}
	}
	got, err := set.WindowsFor(target, s)
	if err != nil {
		require.NotEmpty(t, unknown, "seed %d: %v", seed, err)
		return
	}
	// A key that no policy has a window for is not asked about.
	if unknown == "" {
		require.Equal(t, want, got, "seed %d: %+v %+v", seed, list, s)
	}
}

func (o oracle) windowOf(key string, device bool, s *Subject) (governing *v1alpha1.EvictionPolicy, unknown string) {
	for _, p := range o.order() {
		covers := slices.ContainsFunc(p.Spec.Taints, func(sel v1alpha1.TaintSelector) bool {
			return device == (sel.Target == v1alpha1.TaintTargetDevice) && len(sel.Values)+len(sel.Drivers) == 0 &&
				selectsKey(&sel, device, key) && (len(sel.Effects) == 0 || slices.Contains(sel.Effects, corev1.TaintEffectNoExecute))
		})
		podSelector := p.Spec.PodSelector
		narrows := podSelector != nil && len(podSelector.MatchLabels)+len(podSelector.MatchExpressions) > 0
		if !covers || device && narrows || !device && !matches(podSelector, s.Labels) {
			continue
		}
		if asksNamespace(&p) && !s.NamespaceKnown {
			return nil, p.Name
		}
		if matches(p.Spec.NamespaceSelector, s.NamespaceLabels) {
			return &p, ""
		}
	}
	return nil, ""
}

func validWindow(p *v1alpha1.EvictionPolicy) bool {
	return !slices.ContainsFunc(p.Spec.Taints, func(sel v1alpha1.TaintSelector) bool {
		return strings.Contains(sel.Key, "*") || len(sel.Values)+len(sel.Drivers) > 0 ||
			sel.Target == v1alpha1.TaintTargetDevice && p.Spec.PodSelector != nil
	})
}
