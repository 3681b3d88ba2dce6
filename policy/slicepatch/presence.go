package slicepatch

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// PresenceNamespace is where the Lease is.
	PresenceNamespace = metav1.NamespaceSystem
	// Name is that of the Lease.
	Name = "tollgate-patched-scheduler"
	// AnnotationProfiles has the names of the profiles that obey patches, sorted and
	// separated by commas: pods with one of them as schedulerName get devices as
	// patches make them.
	AnnotationProfiles = "tollgate.dev/patched-profiles"

	// RenewInterval is how often the Lease is renewed.
	RenewInterval = 10 * time.Second
	// Duration is how long a Lease is good that is not renewed any more: four renewals may
	// fail, or two if the clocks of two machines are 20 s apart.
	Duration = 5 * RenewInterval
)

// Scheduler is one that obeys patches.
type Scheduler struct {
	// Holder tells its processes apart.
	Holder string
	// Profiles are those that obey patches, sorted.
	Profiles []string
}

// SchedulerOf returns the scheduler that obeys patches now, or false if none does as far as the
// Lease says. The Lease is nil if there is none.
func SchedulerOf(lease *coordinationv1.Lease, now time.Time) (Scheduler, bool) {
	until, held := PresentUntil(lease)
	if !held || !now.Before(until) {
		return Scheduler{}, false
	}
	profiles := strings.FieldsFunc(lease.Annotations[AnnotationProfiles], func(r rune) bool { return r == ',' })
	return Scheduler{Holder: *lease.Spec.HolderIdentity, Profiles: slices.Sorted(slices.Values(profiles))}, true
}

// PresentUntil returns the time from which SchedulerOf returns false if the Lease is not
// renewed, or false if no scheduler holds the Lease.
func PresentUntil(lease *coordinationv1.Lease) (time.Time, bool) {
	if lease == nil || ptr.Deref(lease.Spec.HolderIdentity, "") == "" || lease.Spec.RenewTime == nil {
		return time.Time{}, false
	}
	seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, int32(Duration/time.Second))
	return lease.Spec.RenewTime.Add(time.Duration(seconds) * time.Second), true
}

// ClaimPresence returns the Lease by which a scheduler says that it obeys patches. Was is the one
// that there is, nil for none. Another scheduler's is taken over: which one schedules is
// decided elsewhere.
func ClaimPresence(was *coordinationv1.Lease, s Scheduler, now time.Time) *coordinationv1.Lease {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: PresenceNamespace, Name: Name}}
	if was != nil {
		next = was.DeepCopy()
	}
	if ptr.Deref(next.Spec.HolderIdentity, "") != s.Holder {
		next.Spec.AcquireTime = new(metav1.NewMicroTime(now))
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[AnnotationProfiles] = strings.Join(slices.Sorted(slices.Values(s.Profiles)), ",")
	next.Spec.HolderIdentity = &s.Holder
	next.Spec.LeaseDurationSeconds = new(int32(Duration / time.Second))
	next.Spec.RenewTime = new(metav1.NewMicroTime(now))
	return next
}

// ReleasePresence returns the Lease of a scheduler that ends, or false if it is not its own.
func ReleasePresence(was *coordinationv1.Lease, holder string, now time.Time) (*coordinationv1.Lease, bool) {
	if was == nil || ptr.Deref(was.Spec.HolderIdentity, "") != holder {
		return nil, false
	}
	next := was.DeepCopy()
	next.Spec.HolderIdentity = new("")
	next.Spec.RenewTime = new(metav1.NewMicroTime(now))
	return next, true
}
