package eviction

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func one(t *testing.T, p v1alpha1.EvictionPolicy) *Policy {
	t.Helper()
	set := Compile([]v1alpha1.EvictionPolicy{p})
	require.Equal(t, 1, set.Len())
	require.Same(t, set.All()[0], set.ByUID(p.UID))
	return set.All()[0]
}

func TestDefaultsAreFilledIn(t *testing.T) {
	t.Parallel()
	got := one(t, newPolicy("p", "a", limited(5, ""), paced(7, ""), prioritized(3), func(p *v1alpha1.EvictionPolicy) {
		p.Generation = 4
	}))
	require.Equal(t, "EvictionPolicy/p", got.Ref())
	require.EqualValues(t, "uid of p", got.UID)
	require.EqualValues(t, 4, got.Generation)
	require.Equal(t, v1alpha1.EvictionMethodDelete, got.Method)
	require.Nil(t, got.DeleteAfter)
	require.Equal(t, &Pace{PerSecond: 7, Burst: 7, Scope: decided}, got.Pace)
	require.Equal(t, &Breaker{MaxPods: new(int32(5)), Window: 10 * time.Minute, Scope: decided}, got.Breaker)
	require.False(t, got.Paused)
	require.Nil(t, got.WindowSeconds)
	require.Empty(t, got.Problems)
}

func TestWhatIsAskedForIsTaken(t *testing.T) {
	t.Parallel()
	got := one(t, newPolicy("p", "a", windowed(20), func(p *v1alpha1.EvictionPolicy) {
		p.Spec.Method = v1alpha1.EvictionMethodEvict
		p.Spec.DeleteAfter = &metav1.Duration{Duration: 0}
		p.Spec.Pace = &v1alpha1.EvictionPace{PodsPerSecond: 2, Burst: 9, Scope: selected}
		p.Spec.Breaker = &v1alpha1.EvictionBreaker{MaxPercent: new(int32(20)), Window: metav1.Duration{Duration: time.Hour}, Scope: selected}
		p.Spec.Paused = true
	}))
	require.Equal(t, v1alpha1.EvictionMethodEvict, got.Method)
	require.Equal(t, new(time.Duration(0)), got.DeleteAfter)
	require.Equal(t, &Pace{PerSecond: 2, Burst: 9, Scope: selected}, got.Pace)
	require.Equal(t, &Breaker{MaxPercent: new(int32(20)), Window: time.Hour, Scope: selected}, got.Breaker)
	require.True(t, got.Paused)
	require.Equal(t, new(int64(20)), got.WindowSeconds)
	require.Empty(t, got.Problems)
}

func TestNothingIsKeptOfWhatIsCompiled(t *testing.T) {
	t.Parallel()
	in := newPolicy("p", "a", limited(5, ""), windowed(20), protecting(nil, "class"), onPods(labelled("app", "web")))
	got := one(t, in)
	*in.Spec.Breaker.MaxPods, in.Spec.Inject.Seconds = 99, 99
	in.Spec.Protect.PriorityClassNames[0], in.Spec.PodSelector.MatchLabels["app"], in.Spec.Taints[0].Key = "other", "db", "b"
	require.EqualValues(t, 5, *got.Breaker.MaxPods)
	require.EqualValues(t, 20, *got.WindowSeconds)
	subject := web()
	subject.PriorityClassName = "class"
	require.True(t, got.protects.covers(subject))
	selects, err := got.selects(subject)
	require.NoError(t, err)
	require.True(t, selects)
	require.True(t, got.selectsTaint(nodeTaint("a")))
}

func TestD03EveryDoubtAboutAStoredPolicyCountsForThePod(t *testing.T) {
	t.Parallel()
	type check func(*testing.T, *Policy, Treatment)
	paused := func(t *testing.T, _ *Policy, treatment Treatment) {
		t.Helper()
		require.NotNil(t, treatment.Policy)
		require.True(t, treatment.Policy.Paused)
	}
	protected := func(t *testing.T, _ *Policy, treatment Treatment) {
		t.Helper()
		require.NotNil(t, treatment.Policy)
		require.True(t, treatment.Protected)
		require.False(t, treatment.Policy.Paused)
	}
	neverDeletes := func(t *testing.T, p *Policy, _ Treatment) {
		t.Helper()
		require.Nil(t, p.DeleteAfter)
	}
	limits := func(want Breaker) check {
		return func(t *testing.T, p *Policy, _ Treatment) {
			t.Helper()
			require.Equal(t, &want, p.Breaker)
		}
	}
	paces := func(want Pace) check {
		return func(t *testing.T, p *Policy, _ Treatment) {
			t.Helper()
			require.Equal(t, &want, p.Pace)
		}
	}
	spec := func(change func(*v1alpha1.EvictionPolicySpec)) func(*v1alpha1.EvictionPolicy) {
		return func(p *v1alpha1.EvictionPolicy) { change(&p.Spec) }
	}
	breaker := func(b v1alpha1.EvictionBreaker) func(*v1alpha1.EvictionPolicy) {
		return spec(func(s *v1alpha1.EvictionPolicySpec) { s.Breaker = &b })
	}
	minutes := metav1.Duration{Duration: time.Minute}
	tests := map[string]struct {
		change func(*v1alpha1.EvictionPolicy)
		want   check
	}{
		"pods that cannot be selected are held":       {onPods(unreadable()), paused},
		"namespaces that cannot be selected are held": {inNamespaces(unreadable()), paused},
		"taints by no pattern there is are held":      {func(p *v1alpha1.EvictionPolicy) { p.Spec.Taints[0].Key = "a*b" }, paused},
		"devices narrowed by class are held all": {func(p *v1alpha1.EvictionPolicy) {
			p.Spec.Taints = append(p.Spec.Taints, v1alpha1.TaintSelector{Target: v1alpha1.TaintTargetDevice, Key: "b", DeviceClasses: []string{"gpu"}})
		}, paused},
		"protection that cannot be read is of all":  {protecting(unreadable()), protected},
		"protection by an empty selector is of all": {protecting(&metav1.LabelSelector{}), protected},
		"a method that is not known asks budgets": {spec(func(s *v1alpha1.EvictionPolicySpec) { s.Method = "Ask" }), func(t *testing.T, p *Policy, _ Treatment) {
			t.Helper()
			require.Equal(t, v1alpha1.EvictionMethodEvict, p.Method)
		}},
		"a time that is negative never comes": {spec(func(s *v1alpha1.EvictionPolicySpec) {
			s.Method, s.DeleteAfter = v1alpha1.EvictionMethodEvict, &metav1.Duration{Duration: -1}
		}), neverDeletes},
		"a time for a method without budgets is none": {spec(func(s *v1alpha1.EvictionPolicySpec) { s.DeleteAfter = &minutes }), neverDeletes},
		"no pace is the slowest":                      {paced(0, decided), paces(Pace{PerSecond: 1, Burst: 1, Scope: decided})},
		"a negative pace is the slowest": {spec(func(s *v1alpha1.EvictionPolicySpec) {
			s.Pace = &v1alpha1.EvictionPace{PodsPerSecond: -5, Burst: -5}
		}), paces(Pace{PerSecond: 1, Burst: 1, Scope: decided})},
		"a pace beyond bounds is the fastest": {paced(1<<31-1, decided), paces(Pace{PerSecond: maxRate, Burst: maxRate, Scope: decided})},
		"a scope that is not known is the widest": {
			limited(5, "Some"), limits(Breaker{MaxPods: new(int32(5)), Window: defaultWindow, Scope: selected}),
		},
		"a breaker without a limit lets one go": {
			breaker(v1alpha1.EvictionBreaker{}), limits(Breaker{MaxPods: new(int32(1)), Window: defaultWindow, Scope: decided}),
		},
		"limits below one are one": {
			breaker(v1alpha1.EvictionBreaker{MaxPods: new(int32(0)), MaxPercent: new(int32(-3)), Window: minutes}),
			limits(Breaker{MaxPods: new(int32(1)), MaxPercent: new(int32(1)), Window: time.Minute, Scope: decided}),
		},
		"more than all is all": {
			breaker(v1alpha1.EvictionBreaker{MaxPercent: new(int32(101)), Window: metav1.Duration{Duration: 1<<63 - 1}}),
			limits(Breaker{MaxPercent: new(int32(100)), Window: maxWindow, Scope: decided}),
		},
		"a window that is too short is the shortest": {
			breaker(v1alpha1.EvictionBreaker{MaxPods: new(int32(3)), Window: metav1.Duration{Duration: time.Nanosecond}}),
			limits(Breaker{MaxPods: new(int32(3)), Window: minWindow, Scope: decided}),
		},
		"a window that is negative is the usual one": {
			breaker(v1alpha1.EvictionBreaker{MaxPods: new(int32(3)), Window: metav1.Duration{Duration: -time.Hour}}),
			limits(Breaker{MaxPods: new(int32(3)), Window: defaultWindow, Scope: decided}),
		},
		"time given for a pattern of keys is none": {func(p *v1alpha1.EvictionPolicy) {
			windowed(20)(p)
			p.Spec.Taints[0].Key = "*"
		}, func(t *testing.T, p *Policy, _ Treatment) {
			t.Helper()
			require.Nil(t, p.WindowSeconds)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := Compile([]v1alpha1.EvictionPolicy{newPolicy("p", "a", tt.change)})
			require.NotEmpty(t, set.Problems()["p"])
			require.Equal(t, set.Problems()["p"], set.All()[0].Problems)
			treatment, err := set.For(nodeTaint("a"), web())
			require.NoError(t, err)
			tt.want(t, set.All()[0], treatment)
		})
	}
}

func TestD03OnlyWhatABrokenPolicyMayMeanIsHeld(t *testing.T) {
	t.Parallel()
	broken := newPolicy("broken", "a", prioritized(9), inNamespaces(unreadable()), onPods(labelled("app", "db")))
	set := Compile([]v1alpha1.EvictionPolicy{broken, newPolicy("sound", "*")})
	for name, tt := range map[string]struct {
		key, app, want string
	}{
		"its taint and pods":          {"a", "db", "broken"},
		"not other pods":              {"a", "web", "sound"},
		"not because of other taints": {"b", "db", "sound"},
	} {
		subject := web()
		subject.Labels = labels.Set{"app": tt.app}
		got, err := set.For(nodeTaint(tt.key), subject)
		require.NoError(t, err, name)
		require.Equal(t, tt.want, got.Policy.Name, name)
		require.Equal(t, tt.want == "broken", got.Policy.Paused, name)
	}
}

func TestAPolicyThatWasStoredWithWindowGoesOnAsWithInject(t *testing.T) {
	in := newPolicy("p", "a")
	in.Spec.Window = &v1alpha1.EvictionInjection{Seconds: 20}
	got := one(t, in)
	require.Equal(t, new(int64(20)), got.WindowSeconds)
	require.Len(t, got.Problems, 1)
	require.ErrorContains(t, got.Problems[0], "spec.window: Forbidden: was renamed: write inject: {seconds: 20}")

	in.Spec.Inject = &v1alpha1.EvictionInjection{Seconds: 30}
	require.Equal(t, new(int64(30)), one(t, in).WindowSeconds, "inject wins")
}
