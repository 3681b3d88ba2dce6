package presence_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy/patching/presence"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestOf(t *testing.T) {
	t.Parallel()
	one := presence.Scheduler{Holder: "one", Profiles: []string{"a", "b"}}
	claimed := presence.Claim(nil, presence.Scheduler{Holder: "one", Profiles: []string{"b", "a"}}, start)
	released, ok := presence.Release(claimed, "one", start.Add(time.Second))
	require.True(t, ok)
	with := func(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
		lease := claimed.DeepCopy()
		change(lease)
		return lease
	}
	tests := map[string]struct {
		lease *coordinationv1.Lease
		after time.Duration
		want  presence.Scheduler
		there bool
	}{
		"there is no lease":                     {},
		"it was claimed just now":               {lease: claimed, want: one, there: true},
		"it was claimed by a clock ahead":       {lease: claimed, after: -time.Minute, want: one, there: true},
		"it is about to end":                    {lease: claimed, after: presence.Duration - time.Second, want: one, there: true},
		"it ended":                              {lease: claimed, after: presence.Duration},
		"it was released":                       {lease: released, after: time.Second},
		"it was claimed anew":                   {lease: presence.Claim(released, one, start.Add(time.Hour)), after: time.Hour, want: one, there: true},
		"it was never renewed":                  {lease: with(func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil })},
		"nobody holds it":                       {lease: with(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })},
		"it does not say how long":              {lease: with(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }), after: presence.Duration - 1, want: one, there: true},
		"it says no profiles":                   {lease: with(func(l *coordinationv1.Lease) { l.Annotations = nil }), want: presence.Scheduler{Holder: "one"}, there: true},
		"its profiles are not as we write them": {lease: with(func(l *coordinationv1.Lease) { l.Annotations[presence.AnnotationProfiles] = "b,,a" }), want: one, there: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, there := presence.Of(test.lease, start.Add(test.after))
			require.Equal(t, test.there, there)
			require.Equal(t, test.want, got)
			until, held := presence.Until(test.lease)
			require.Equal(t, test.there, held && start.Add(test.after).Before(until))
		})
	}
}

func TestClaim(t *testing.T) {
	t.Parallel()
	one, two := presence.Scheduler{Holder: "one", Profiles: []string{"a"}}, presence.Scheduler{Holder: "two"}
	first := presence.Claim(nil, one, start)
	require.Equal(t, presence.Name, first.Name)
	require.Equal(t, presence.Namespace, first.Namespace)
	first.Labels, first.ResourceVersion = map[string]string{"x": "y"}, "7"
	before := first.DeepCopy()

	renewed := presence.Claim(first, one, start.Add(time.Minute))
	require.Equal(t, metav1.NewMicroTime(start), *renewed.Spec.AcquireTime, "it held it all the time")
	require.Equal(t, metav1.NewMicroTime(start.Add(time.Minute)), *renewed.Spec.RenewTime)
	require.Equal(t, "7", renewed.ResourceVersion)
	require.Equal(t, first.Labels, renewed.Labels)

	taken := presence.Claim(first, two, start.Add(time.Minute))
	require.Equal(t, "two", *taken.Spec.HolderIdentity)
	require.Equal(t, metav1.NewMicroTime(start.Add(time.Minute)), *taken.Spec.AcquireTime)
	require.Empty(t, taken.Annotations[presence.AnnotationProfiles])
	_, ok := presence.Release(taken, "one", start)
	require.False(t, ok, "it is somebody else's")
	_, ok = presence.Release(nil, "one", start)
	require.False(t, ok)
	require.Equal(t, before, first, "what was given was changed")
}
