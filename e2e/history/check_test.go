package history

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

type stories = map[string]struct {
	tell func(*story)
	want []string
}

func TestINV1WhoIsEvictedIsNamed(t *testing.T) {
	p := pod("p")
	// remove lets a story evict with a body of its own.
	remove := func(body any) func(*story) {
		return func(s *story) {
			p := p.DeepCopy()
			plain(s, p)
			s.remove(1, "a", p)
			var err error
			s.Writes[len(s.Writes)-1].Body, err = json.Marshal(body)
			require.NoError(t, err)
		}
	}
	named := func(preconditions metav1.Preconditions) *metav1.DeleteOptions {
		o := options(p)
		o.Preconditions = &preconditions
		return o
	}
	check(t, stories{
		"by UID and version": {tell: func(s *story) { p := p.DeepCopy(); plain(s, p); s.remove(1, "a", p) }},
		"by the Eviction API": {tell: func(s *story) {
			p := p.DeepCopy()
			s.put(-9, policy(byEviction))
			plain(s, p)
			s.evict(1, "a", p)
		}},
		"G01 by nothing":          {remove(named(metav1.Preconditions{})), []string{"INV-1"}},
		"G01 by the version only": {remove(named(metav1.Preconditions{ResourceVersion: new("101")})), []string{"INV-1"}},
		"by the UID only":         {remove(named(metav1.Preconditions{UID: &p.UID})), []string{"INV-1"}},
		"without options":         {remove(&metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}), []string{"INV-1"}},
		"by what cannot be read":  {remove("nonsense"), []string{"INV-1"}},
		"by another UID":          {remove(named(metav1.Preconditions{UID: new(p.UID + "x"), ResourceVersion: new("101")})), []string{"INV-1"}},
		"by a version that never was": {
			remove(named(metav1.Preconditions{UID: &p.UID, ResourceVersion: new("99")})),
			[]string{"INV-1"},
		},
		"many at once": {func(s *story) {
			plain(s)
			s.write(1, faultproxy.Write{Replica: "a", Verb: "deletecollection", Resource: "pods", Namespace: "ns", Status: 200}, nil)
		}, []string{"INV-1"}},
		"a request that never arrived": {func(s *story) {
			plain(s)
			s.write(1, faultproxy.Write{Replica: "a", Verb: "delete", Resource: "pods", Namespace: "ns", Name: "p"}, nil)
		}, []string{"INV-1"}},
		"an eviction without options": {func(s *story) {
			plain(s)
			s.write(1, faultproxy.Write{Replica: "a", Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "ns", Name: "p"},
				map[string]string{"apiVersion": "policy/v1", "kind": "Eviction"})
		}, []string{"INV-1"}},
		"other writes of pods": {tell: func(s *story) {
			plain(s)
			s.write(1, faultproxy.Write{Replica: "a", Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "ns", Name: "p", Status: 200}, nil)
		}},
	})
}

func TestPreconditionsAreReadAsClientsSendThem(t *testing.T) {
	p := pod("p")
	p.ResourceVersion = "7"
	body, err := runtime.Encode(scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), schema.GroupVersion{Version: "v1"}), options(p))
	require.NoError(t, err)
	uid, version, err := preconditions(&faultproxy.Write{Verb: "delete", Resource: "pods", Body: body})
	require.NoError(t, err)
	require.Equal(t, []string{"uid-p", "7"}, []string{uid, version})
}

func TestINV2NobodyIsEvictedBeforeItsTime(t *testing.T) {
	tolerated := func(seconds int64, then func(*story, *corev1.Pod)) func(*story) {
		return func(s *story) {
			p := pod("p", tolerate(seconds))
			plain(s, p)
			then(s, p)
		}
	}
	leave := func(seconds float64) func(*story, *corev1.Pod) {
		return func(s *story, p *corev1.Pod) {
			s.lease(seconds-1, "a", "a")
			s.remove(seconds, "a", p)
		}
	}
	device := func(seconds float64) func(*story) {
		return func(s *story) {
			p := pod("p")
			s.lease(seconds-1, "a", "a")
			s.put(-1, claimed(p, tolerateDevice(60)))
			s.put(-1, p)
			s.put(0, rule(resourcev1.DeviceTaintEffectNoExecute))
			s.remove(seconds, "a", p)
		}
	}
	untimed := func(seconds float64) func(*story) {
		return func(s *story) {
			p := pod("p", tolerate(10))
			s.lease(seconds-1, "a", "a")
			s.put(-1, p)
			n := node(0)
			n.Spec.Taints[0].TimeAdded = nil
			s.put(-1, node())
			s.put(5, n)
			s.put(6, n)
			s.remove(seconds, "a", p)
		}
	}
	check(t, stories{
		"after it":                                {tell: tolerated(60, leave(60.1))},
		"H07 within the tolerance":                {tell: tolerated(60, leave(59.1))},
		"two seconds before":                      {tolerated(60, leave(58)), []string{"INV-2"}},
		"H06 with no seconds at once":             {tell: tolerated(0, leave(0.1))},
		"device, after it":                        {tell: device(61)},
		"device, before":                          {device(50), []string{"INV-2"}},
		"H03 ten seconds after it was first seen": {tell: untimed(15)},
		"H03 six seconds after it was first seen": {untimed(11), []string{"INV-2"}},
		"the clock was set forward":               {tell: tolerated(60, func(s *story, p *corev1.Pod) { s.Steps = []Step{{at(10), 30 * time.Second}}; leave(31)(s, p) })},
		"the clock was set back":                  {tolerated(60, func(s *story, p *corev1.Pod) { s.Steps = []Step{{at(10), -30 * time.Second}}; leave(61)(s, p) }), []string{"INV-2"}},
		"H04 the clock was just set back":         {tell: tolerated(60, func(s *story, p *corev1.Pod) { s.Steps = []Step{{at(59), -30 * time.Second}}; leave(61)(s, p) })},
		"H01 the taint is from the future":        {func(s *story) { p := pod("p"); plain(s, p); s.put(0, node(30)); s.remove(6, "a", p) }, []string{"INV-2"}},
		"H01 the future has come":                 {tell: func(s *story) { p := pod("p"); plain(s, p); s.put(0, node(6)); s.remove(6, "a", p) }},
		"it came after the taint, and has its time": {func(s *story) {
			p := pod("p", tolerate(60))
			p.CreationTimestamp = metav1.NewTime(at(0))
			s.put(-100, node(-100))
			s.put(0, p)
			s.lease(0, "a", "a")
			s.remove(1, "a", p)
		}, []string{"INV-2"}},
		"G09 it was bound later than it was created": {func(s *story) {
			p := pod("p", tolerate(60))
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(0))}}
			s.put(-100, node(-100))
			s.put(0, p)
			s.lease(0, "a", "a")
			s.remove(1, "a", p)
		}, []string{"INV-2"}},
	})
}

func TestINV3NobodyIsEvictedWhoNeedNotLeave(t *testing.T) {
	// untainted has the taint gone at a time, and the pod at another.
	untainted := func(gone, left float64) func(*story) {
		return func(s *story) {
			p := pod("p")
			plain(s, p)
			s.put(gone, node())
			s.lease(left-1, "a", "a")
			s.remove(left, "a", p)
		}
	}
	one := func(edit func(*corev1.Pod)) func(*story) {
		return func(s *story) {
			p := pod("p")
			edit(p)
			plain(s, p)
			s.remove(1, "a", p)
		}
	}
	device := func(edit func(*story, *corev1.Pod, *resourcev1.ResourceClaim)) func(*story) {
		return func(s *story) {
			p := pod("p")
			claim := claimed(p)
			s.lease(0, "a", "a")
			edit(s, p, claim)
			s.put(-1, claim)
			s.put(-1, p)
			s.remove(1, "a", p)
		}
	}
	check(t, stories{
		"the taint is there":            {tell: one(func(*corev1.Pod) {})},
		"G03 the taint went 7 s before": {untainted(3, 10), []string{"INV-3"}},
		"the taint went 4 s before":     {tell: untainted(6, 10)},
		"the taint came after": {func(s *story) {
			p := pod("p")
			s.lease(0, "a", "a")
			s.put(0, p)
			s.remove(1, "a", p)
			s.put(1.1, node(0))
		}, []string{"INV-3"}},
		"tolerated for ever":         {one(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{tolerate(-1)} }), []string{"INV-3"}},
		"tolerated with every other": {one(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }), []string{"INV-3"}},
		"another taint is tolerated": {tell: one(func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{tolerate(-1)}
			p.Spec.Tolerations[0].Key = "other"
		})},
		"on another node":  {one(func(p *corev1.Pod) { p.Spec.NodeName = "other" }), []string{"INV-3"}},
		"G08 on no node":   {one(func(p *corev1.Pod) { p.Spec.NodeName = "" }), []string{"INV-3"}},
		"G08 it is over":   {one(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), []string{"INV-3"}},
		"G08 a mirror pod": {one(func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }), []string{"INV-3"}},
		"G15 the node has gone": {func(s *story) {
			p := pod("p")
			plain(s, p)
			s.gone(1, node(0))
			s.lease(9, "a", "a")
			s.remove(10, "a", p)
		}, []string{"INV-3"}},
		"the taint is of another effect": {func(s *story) {
			p := pod("p")
			n := node(0)
			n.Spec.Taints[0].Effect = corev1.TaintEffectNoSchedule
			s.lease(0, "a", "a")
			s.put(0, p)
			s.put(0, n)
			s.remove(1, "a", p)
		}, []string{"INV-3"}},
		"a rule taints its device": {tell: device(func(s *story, _ *corev1.Pod, _ *resourcev1.ResourceClaim) {
			s.put(0, rule(resourcev1.DeviceTaintEffectNoExecute))
		})},
		"a slice taints its device": {tell: device(func(s *story, _ *corev1.Pod, _ *resourcev1.ResourceClaim) { s.put(0, slice(true)) })},
		"its device has no taint":   {device(func(s *story, _ *corev1.Pod, _ *resourcev1.ResourceClaim) { s.put(0, slice(false)) }), []string{"INV-3"}},
		"G20 a rule of effect None": {device(func(s *story, _ *corev1.Pod, _ *resourcev1.ResourceClaim) {
			s.put(0, rule(resourcev1.DeviceTaintEffectNone))
		}), []string{"INV-3"}},
		"a rule without a selector": {device(func(s *story, _ *corev1.Pod, _ *resourcev1.ResourceClaim) {
			r := rule(resourcev1.DeviceTaintEffectNoExecute)
			r.Spec.DeviceSelector = nil
			s.put(0, r)
		}), []string{"INV-3"}},
		"a rule of another pool": {device(func(s *story, _ *corev1.Pod, _ *resourcev1.ResourceClaim) {
			r := rule(resourcev1.DeviceTaintEffectNoExecute)
			r.Spec.DeviceSelector.Pool = new("other")
			s.put(0, r)
		}), []string{"INV-3"}},
		"G10 its claim is another pod's": {device(func(s *story, _ *corev1.Pod, claim *resourcev1.ResourceClaim) {
			claim.Status.ReservedFor[0].UID = "other"
			s.put(0, slice(true))
		}), []string{"INV-3"}},
		"G10 its claim is not allocated": {device(func(s *story, _ *corev1.Pod, claim *resourcev1.ResourceClaim) {
			claim.Status.Allocation = nil
			s.put(0, slice(true))
		}), []string{"INV-3"}},
		"its claim tolerates without end": {device(func(s *story, _ *corev1.Pod, claim *resourcev1.ResourceClaim) {
			claim.Status.Allocation.Devices.Results[0].Tolerations = []resourcev1.DeviceToleration{tolerateDevice(0), {Operator: resourcev1.DeviceTolerationOpExists}}
			s.put(0, slice(true))
		}), []string{"INV-3"}},
	})
}

func TestINV3NobodyIsEvictedAgainstAPolicy(t *testing.T) {
	under := func(p *v1alpha1.EvictionPolicy, from, left float64, evict bool) func(*story) {
		return func(s *story) {
			victim := pod("p")
			plain(s, victim)
			s.put(from, p.DeepCopy())
			s.lease(left-1, "a", "a")
			if evict {
				s.evict(left, "a", victim)
			} else {
				s.remove(left, "a", victim)
			}
		}
	}
	protecting := policy(func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Protect = &v1alpha1.EvictionProtection{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}
	})
	lenient := policy()
	lenient.Name, lenient.UID, lenient.Spec.Priority = "lenient", "uid-lenient", 1
	other := policy(paused, func(spec *v1alpha1.EvictionPolicySpec) { spec.Taints[0].Key = "other.example.com/*" })
	elsewhere := policy(paused, func(spec *v1alpha1.EvictionPolicySpec) {
		spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "y"}}
	})
	devices := policy(paused, func(spec *v1alpha1.EvictionPolicySpec) { spec.Taints[0].Target = v1alpha1.TaintTargetDevice })
	wide := policy(paused, func(spec *v1alpha1.EvictionPolicySpec) { spec.Taints[0].Key = "*" })
	late := policy(byEviction, func(spec *v1alpha1.EvictionPolicySpec) {
		spec.DeleteAfter = &metav1.Duration{Duration: 30 * time.Second}
	})
	check(t, stories{
		"that deletes":                                {tell: under(policy(), 0, 10, false)},
		"that is paused":                              {under(policy(paused), 0, 10, false), []string{"INV-3"}},
		"that is paused, of every key":                {under(wide, 0, 10, false), []string{"INV-3"}},
		"that was paused 3 s before":                  {tell: under(policy(paused), 7, 10, false)},
		"that protects it":                            {under(protecting, 0, 10, false), []string{"INV-3"}},
		"that is paused for other taints":             {tell: under(other, 0, 10, false)},
		"that is paused for other pods":               {tell: under(elsewhere, 0, 10, false)},
		"that is paused for devices":                  {tell: under(devices, 0, 10, false)},
		"that another one takes precedence":           {tell: func(s *story) { s.put(-9, lenient); under(policy(paused), 0, 10, false)(s) }},
		"that evicts, by deletion":                    {under(policy(byEviction), 0, 10, false), []string{"INV-3"}},
		"that evicts, by eviction":                    {tell: under(policy(byEviction), 0, 10, true)},
		"whose mark is by eviction":                   {tell: under(policy(markedByEviction), 0, 10, true)},
		"whose mark is by eviction, and that deletes": {tell: under(policy(markedByEviction), 0, 10, false)},
		"that deletes, by eviction":                   {under(policy(), 0, 10, true), []string{"INV-3"}},
		"G18 by deletion, but not yet":                {under(late, 0, 10, false), []string{"INV-3"}},
		"G18 by deletion, after a while":              {tell: under(late, 0, 40, false)},
	})
}

func TestINV4InTheEndNobodyIsLeft(t *testing.T) {
	left := func(ended float64, tell func(*story)) func(*story) {
		return func(s *story) {
			plain(s, pod("p"))
			s.Ended = at(ended)
			if tell != nil {
				tell(s)
			}
		}
	}
	shown := func(s *story, reason string, n int) { s.Shown.Held = map[string]int{reason: n} }
	check(t, stories{
		"who has to leave":         {left(60, nil), []string{"INV-4"}},
		"not even at once":         {tell: left(9, nil)},
		"who tolerates":            {tell: func(s *story) { plain(s, pod("p", tolerate(-1))); s.Ended = at(60) }},
		"who tolerates for longer": {tell: func(s *story) { plain(s, pod("p", tolerate(55))); s.Ended = at(60) }},
		"who tolerated":            {func(s *story) { plain(s, pod("p", tolerate(45))); s.Ended = at(60) }, []string{"INV-4"}},
		"who came to its node in what is the future, by a clock set back": {tell: func(s *story) {
			s.Steps = []Step{{at(1), -30 * time.Second}}
			p := pod("p")
			p.CreationTimestamp = metav1.NewTime(at(25))
			s.put(0, node(0))
			s.put(25, p)
			s.Ended = at(60)
		}},
		"the clock was set back":              {tell: left(60, func(s *story) { s.Steps = []Step{{at(1), -time.Hour}} })},
		"G17 who is on its way out":           {tell: left(60, func(s *story) { p := pod("p"); p.DeletionTimestamp = new(metav1.NewTime(at(1))); s.put(1, p) })},
		"who has gone":                        {tell: left(60, func(s *story) { s.gone(1, pod("p")) })},
		"who has gone and come again":         {left(60, func(s *story) { s.gone(1, pod("p")); s.put(2, pod("p")) }), []string{"INV-4"}},
		"whom a policy keeps":                 {tell: left(60, func(s *story) { s.put(1, holding(policy(paused), 1)); shown(s, "paused", 1) })},
		"whom a policy keeps, not in metrics": {left(60, func(s *story) { s.put(1, holding(policy(paused), 1)) }), []string{"INV-4"}},
		"whom a policy keeps, not in status":  {left(60, func(s *story) { s.put(1, policy(paused)); shown(s, "paused", 1) }), []string{"INV-4"}},
		"whom a breaker keeps":                {tell: left(60, func(s *story) { s.put(1, holding(policy(breaker(1)), 1)); shown(s, "breaker_tripped", 1) })},
		"whom a breaker does not keep":        {left(60, func(s *story) { s.put(1, policy(breaker(1))); shown(s, "breaker_tripped", 1) }), []string{"INV-4"}},
		"G18 whom a budget keeps":             {tell: left(60, func(s *story) { s.put(1, policy(byEviction)); s.put(1, budget("b", 0)); shown(s, "budget", 1) })},
		"G18 whom two budgets keep": {tell: left(60, func(s *story) {
			s.put(1, policy(byEviction))
			s.put(1, budget("b", 1))
			s.put(1, budget("c", 1))
			shown(s, "budget", 1)
		})},
		"whom a budget does not keep":        {left(60, func(s *story) { s.put(1, policy(byEviction)); s.put(1, budget("b", 1)); shown(s, "budget", 1) }), []string{"INV-4"}},
		"whom a budget kept, not in metrics": {left(60, func(s *story) { s.put(1, policy(byEviction)); s.put(1, budget("b", 0)) }), []string{"INV-4"}},
		"whom a budget need not keep":        {left(60, func(s *story) { s.put(1, budget("b", 0)); shown(s, "budget", 1) }), []string{"INV-4"}},
	})
}

func TestINV5NoMorePodsLeaveThanABreakerAllows(t *testing.T) {
	// leaving has pods leave at these seconds under a policy.
	leaving := func(p *v1alpha1.EvictionPolicy, seconds ...float64) func(*story) {
		return func(s *story) {
			s.put(-60, p)
			var pods []*corev1.Pod
			for i := range seconds {
				pods = append(pods, pod(string(rune('a'+i))))
			}
			plain(s, pods...)
			for i, sec := range seconds {
				s.lease(sec, "a", "a")
				s.remove(sec, "a", pods[i])
			}
			s.Ended = at(0)
		}
	}
	selected := policy(breaker(2), func(spec *v1alpha1.EvictionPolicySpec) { spec.Breaker.Scope = v1alpha1.LimitScopeSelected })
	higher := policy()
	higher.Name, higher.UID, higher.Spec.Priority = "higher", "uid-higher", 1
	percent := policy(func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Breaker = &v1alpha1.EvictionBreaker{MaxPercent: new(int32(50)), Window: metav1.Duration{Duration: time.Minute}}
	})
	anew := func(s *story) {
		s.put(1, pod("c"))
		s.put(12, policy(breaker(2)))
		s.lease(20, "a", "a")
		victim := pod("c")
		victim.ResourceVersion = s.Versions[len(s.Versions)-2].Object.GetResourceVersion()
		s.remove(20, "a", victim)
	}
	approval := &v1alpha1.EvictionApproval{ObjectMeta: metav1.ObjectMeta{Name: "approval"}, Status: v1alpha1.EvictionApprovalStatus{Released: 1}}
	check(t, stories{
		"as many as allowed":                  {tell: leaving(policy(breaker(2)), 10, 11)},
		"one more":                            {leaving(policy(breaker(2)), 10, 11, 12), []string{"INV-5"}},
		"one more, in another window":         {tell: leaving(policy(breaker(2)), 10, 11, 71)},
		"J01 one more, at the end of it":      {leaving(policy(breaker(2)), 10, 11, 65), []string{"INV-5"}},
		"one more, that was approved":         {tell: func(s *story) { s.put(-1, approval); leaving(policy(breaker(2)), 10, 11, 12)(s) }},
		"two more, one that was approved":     {func(s *story) { s.put(-1, approval); leaving(policy(breaker(2)), 10, 11, 12, 13)(s) }, []string{"INV-5"}},
		"one more, where another one decides": {tell: func(s *story) { s.put(-60, higher); leaving(policy(breaker(2)), 10, 11, 12)(s) }},
		"one more of all that is selected":    {func(s *story) { s.put(-60, higher); leaving(selected, 10, 11, 12)(s) }, []string{"INV-5"}},
		"half of four": {tell: func(s *story) {
			s.put(-1, pod("y", tolerate(-1)))
			s.put(-1, pod("z", tolerate(-1)))
			leaving(percent, 10, 11)(s)
		}},
		"more than half of four":              {func(s *story) { s.put(-1, pod("z", tolerate(-1))); leaving(percent, 10, 11, 12)(s) }, []string{"INV-5"}},
		"one of one":                          {tell: leaving(percent, 10)},
		"one more, the clock was set forward": {tell: func(s *story) { s.Steps = []Step{{at(11.5), time.Hour}}; leaving(policy(breaker(2)), 10, 11, 12)(s) }},
		"H05 one more, the clock was set back": {func(s *story) {
			s.Steps = []Step{{at(11.5), -20 * time.Second}}
			leaving(policy(breaker(2)), 10, 11, 65)(s)
		}, []string{"INV-5"}},
		"H05 one more, the clock was set back, in another window": {tell: func(s *story) {
			s.Steps = []Step{{at(11.5), -20 * time.Second}}
			leaving(policy(breaker(2)), 10, 11, 75)(s)
		}},
		"H05 one more, the clock was set forward by less than a window, and back": {func(s *story) {
			s.Steps = []Step{{at(11.5), 20 * time.Second}, {at(11.6), 0}}
			leaving(policy(breaker(2)), 10, 11, 45)(s)
		}, []string{"INV-5"}},
		"H05 one more, the clock was set back and forward again": {tell: func(s *story) {
			s.Steps = []Step{{at(11.5), -20 * time.Second}, {at(11.6), 0}}
			leaving(policy(breaker(2)), 10, 11, 55)(s)
		}},
		"one more, under a policy made anew": {tell: func(s *story) { leaving(policy(breaker(2)), 10, 11)(s); s.gone(12, policy(breaker(2))); anew(s) }},
		"under a policy that has no breaker": {tell: leaving(policy(), 10, 11, 12)},
		"one more, where it was changed lately": {tell: func(s *story) {
			leaving(policy(breaker(2)), 10, 11)(s)
			s.put(12, withGeneration(policy(breaker(2)), 2))
			s.put(12, pod("c"))
			s.remove(13, "a", s.latestPod())
		}},
	})
}

func withGeneration(p *v1alpha1.EvictionPolicy, generation int64) *v1alpha1.EvictionPolicy {
	p.Generation = generation
	return p
}

// latestPod returns the pod that was put last.
func (s *story) latestPod() *corev1.Pod {
	for _, v := range slices.Backward(s.Versions) {
		if p, ok := v.Object.(*corev1.Pod); ok {
			return p.DeepCopy()
		}
	}
	return nil
}

func TestINV6OnlyTheHolderOfTheLeaseActs(t *testing.T) {
	// by has the pod leave at second 10 by a, after leases as they are told.
	by := func(leases func(*story)) func(*story) {
		return func(s *story) {
			p := pod("p")
			s.put(-1, p)
			s.put(0, node(0))
			leases(s)
			s.remove(10, "a", p)
		}
	}
	takes := func(w *faultproxy.Write, seconds float64) {
		w.Answered = w.Forwarded.Add(time.Duration(seconds * float64(time.Second)))
	}
	check(t, stories{
		"who holds it":                   {tell: by(func(s *story) { s.lease(0, "a", "a") })},
		"before anyone did":              {by(func(*story) {}), []string{"INV-6"}},
		"J06 while another one does":     {by(func(s *story) { s.lease(0, "a", "a"); s.lease(9, "b", "b") }), []string{"INV-6"}},
		"J08 after it expired":           {by(func(s *story) { s.lease(-6, "a", "a") }), []string{"INV-6"}},
		"after it was given back":        {by(func(s *story) { s.lease(0, "a", "a"); s.lease(9, "a", "") }), []string{"INV-6"}},
		"after another one gave it back": {by(func(s *story) { s.lease(0, "b", "b"); s.lease(9, "b", "") }), []string{"INV-6"}},
		"who took it from another one":   {tell: by(func(s *story) { s.lease(0, "b", "b"); s.lease(9, "a", "a") })},
		"while another one is about to":  {tell: by(func(s *story) { s.lease(0, "a", "a"); takes(s.lease(9.9, "b", "b"), 1) })},
		"who is about to take it":        {tell: by(func(s *story) { s.lease(0, "b", "b"); takes(s.lease(9.9, "a", "a"), 1) })},
		"who was refused it":             {by(func(s *story) { s.lease(0, "b", "b"); s.lease(9, "a", "a").Status = 409 }), []string{"INV-6"}},
		"a status that another one writes": {func(s *story) {
			s.lease(0, "a", "a")
			s.write(1, faultproxy.Write{Replica: "b", Verb: "patch", Resource: "devicetaintrules", Subresource: "status", Status: 200}, nil)
		}, []string{"INV-6"}},
		"a status that one writes that was frozen past its lease": {func(s *story) {
			s.lease(0, "a", "a")
			s.lease(9, "b", "b")
			s.write(10, faultproxy.Write{Replica: "a", Verb: "patch", Resource: "evictionpolicies", Subresource: "status", Status: 200}, nil)
		}, []string{"INV-6"}},
		"an event that another one writes": {tell: func(s *story) {
			s.lease(0, "a", "a")
			s.write(1, faultproxy.Write{Replica: "b", Verb: "create", Resource: "events", Status: 201}, nil)
		}},
		"a lease that cannot be read": {func(s *story) { s.lease(0, "a", "a").Body = []byte("nonsense") }, []string{"INV-6"}},
	})
}

func TestINV6NobodyIsEvictedTwice(t *testing.T) {
	again := func(first, second string) func(*story) {
		return func(s *story) {
			p := pod("p")
			plain(s, p)
			going := p.DeepCopy()
			s.write(1, faultproxy.Write{Replica: first, Verb: "delete", Resource: "pods", Namespace: "ns", Name: "p", Status: 200}, options(p))
			going.DeletionTimestamp = new(metav1.NewTime(at(31)))
			s.put(1, going)
			if first != second {
				s.lease(2, second, second)
			}
			s.write(3, faultproxy.Write{Replica: second, Verb: "delete", Resource: "pods", Namespace: "ns", Name: "p", Status: 200}, options(p))
		}
	}
	check(t, stories{
		"by one": {again("a", "a"), []string{"INV-6"}},
		"by two": {again("a", "b"), []string{"INV-6"}},
		"I04 the second is refused": {tell: func(s *story) {
			again("a", "b")(s)
			s.Writes[len(s.Writes)-1].Status = 409
		}},
		"a successor of the same name": {tell: func(s *story) {
			p := pod("p")
			plain(s, p)
			s.remove(1, "a", p)
			p.UID = "uid-successor"
			s.put(2, p)
			s.remove(3, "a", p)
		}},
	})
}

func TestPolicedAreTheEvictionsUnderPoliciesThatAreCertain(t *testing.T) {
	s := newStory(t)
	victims := []*corev1.Pod{pod("a"), pod("b"), pod("c")}
	plain(s, victims...)
	s.remove(1, "a", victims[0])
	s.put(2, policy())
	s.remove(3, "a", victims[1])
	s.remove(9, "a", victims[2])
	require.Equal(t, 1, Policed(&s.History))
}
