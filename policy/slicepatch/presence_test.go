package slicepatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestOf(t *testing.T) {
	t.Parallel()
	one := slicepatch.Scheduler{Holder: "one", Profiles: []string{"a", "b"}}
	claimed := slicepatch.ClaimPresence(nil, slicepatch.Scheduler{Holder: "one", Profiles: []string{"b", "a"}}, start)
	released, ok := slicepatch.ReleasePresence(claimed, "one", start.Add(time.Second))
	require.True(t, ok)
	with := func(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
		lease := claimed.DeepCopy()
		change(lease)
		return lease
	}
	tests := map[string]struct {
		lease *coordinationv1.Lease
		after time.Duration
		want  slicepatch.Scheduler
		there bool
	}{
		"there is no lease":                     {},
		"it was claimed just now":               {lease: claimed, want: one, there: true},
		"it was claimed by a clock ahead":       {lease: claimed, after: -time.Minute, want: one, there: true},
		"it is about to end":                    {lease: claimed, after: slicepatch.Duration - time.Second, want: one, there: true},
		"it ended":                              {lease: claimed, after: slicepatch.Duration},
		"it was released":                       {lease: released, after: time.Second},
		"it was claimed anew":                   {lease: slicepatch.ClaimPresence(released, one, start.Add(time.Hour)), after: time.Hour, want: one, there: true},
		"it was never renewed":                  {lease: with(func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil })},
		"nobody holds it":                       {lease: with(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil })},
		"it does not say how long":              {lease: with(func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }), after: slicepatch.Duration - 1, want: one, there: true},
		"it says no profiles":                   {lease: with(func(l *coordinationv1.Lease) { l.Annotations = nil }), want: slicepatch.Scheduler{Holder: "one"}, there: true},
		"its profiles are not as we write them": {lease: with(func(l *coordinationv1.Lease) { l.Annotations[slicepatch.AnnotationProfiles] = "b,,a" }), want: one, there: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, there := slicepatch.SchedulerOf(test.lease, start.Add(test.after))
			require.Equal(t, test.there, there)
			require.Equal(t, test.want, got)
			until, held := slicepatch.PresentUntil(test.lease)
			require.Equal(t, test.there, held && start.Add(test.after).Before(until))
		})
	}
}

func TestClaim(t *testing.T) {
	t.Parallel()
	one, two := slicepatch.Scheduler{Holder: "one", Profiles: []string{"a"}}, slicepatch.Scheduler{Holder: "two"}
	first := slicepatch.ClaimPresence(nil, one, start)
	require.Equal(t, slicepatch.Name, first.Name)
	require.Equal(t, slicepatch.PresenceNamespace, first.Namespace)
	first.Labels, first.ResourceVersion = map[string]string{"x": "y"}, "7"
	before := first.DeepCopy()

	renewed := slicepatch.ClaimPresence(first, one, start.Add(time.Minute))
	require.Equal(t, metav1.NewMicroTime(start), *renewed.Spec.AcquireTime, "it held it all the time")
	require.Equal(t, metav1.NewMicroTime(start.Add(time.Minute)), *renewed.Spec.RenewTime)
	require.Equal(t, "7", renewed.ResourceVersion)
	require.Equal(t, first.Labels, renewed.Labels)

	taken := slicepatch.ClaimPresence(first, two, start.Add(time.Minute))
	require.Equal(t, "two", *taken.Spec.HolderIdentity)
	require.Equal(t, metav1.NewMicroTime(start.Add(time.Minute)), *taken.Spec.AcquireTime)
	require.Empty(t, taken.Annotations[slicepatch.AnnotationProfiles])
	_, ok := slicepatch.ReleasePresence(taken, "one", start)
	require.False(t, ok, "it is somebody else's")
	_, ok = slicepatch.ReleasePresence(nil, "one", start)
	require.False(t, ok)
	require.Equal(t, before, first, "what was given was changed")
}
