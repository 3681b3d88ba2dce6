package evictor

import (
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/evictor/controller"
)

func faultStamp(w *world) {
	w.setNode("n")
	w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
	w.start()
	w.pass(700 * time.Millisecond)
	seen := time.Now().Truncate(time.Second)
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	other := bare
	other.Key, other.Effect = "maintenance", corev1.TaintEffectNoSchedule
	w.setNode("n", other, bare)
	require.True(w.t, w.api.node("n").Spec.Taints[1].TimeAdded.Time.Equal(seen))
	require.Nil(w.t, w.api.node("n").Spec.Taints[0].TimeAdded)
	require.InDelta(w.t, 1, w.value("tollgate_taints_stamped_total"), 0)
	w.pass(seconds(50))
	w.restart()
	w.pass(seconds(10))
	w.stays(podA)
	w.pass(seconds(1))
	w.leaves(podA)
	require.Equal(w.t, 1, matches(w.api.took(), "patch nodes"))
}

func faultStampLate(w *world) {
	w.setNode("n")
	w.start()
	w.api.setFaults(every(is("patch nodes"), errDown), nil)
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	seen := time.Now()
	w.setNode("n", bare)
	w.pass(10 * time.Minute)
	require.Nil(w.t, w.api.node("n").Spec.Taints[0].TimeAdded)
	w.api.setFaults(nil, nil)
	w.pass(controller.RetryMax)
	require.True(w.t, w.api.node("n").Spec.Taints[0].TimeAdded.Time.Equal(seen))
}

// A webhook may ask for any delay.
func faultStampDelayed(w *world) {
	w.setNode("n")
	w.start()
	w.api.setFaults(first(1, is("patch nodes"), apierrors.NewTooManyRequests("come back later", 3600)), nil)
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	w.setNode("n", bare)
	w.pass(controller.RetryMax)
	require.NotNil(w.t, w.api.node("n").Spec.Taints[0].TimeAdded)
}

func faultStampConflict(w *world) {
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	raced := false
	w.api.setFaults(func(req request) error {
		if is("patch nodes")(req) && !raced {
			raced = true
			n := w.api.node("n")
			n.Spec.Taints = append([]corev1.Taint{noExecute("disk")}, n.Spec.Taints...)
			w.api.store(n)
		}
		return nil
	}, nil)
	w.start()
	since := time.Now()
	w.setNode("n", bare)
	w.pass(seconds(1))
	taints := w.api.node("n").Spec.Taints
	require.Len(w.t, taints, 2)
	require.Equal(w.t, "gpu", taints[1].Key)
	require.True(w.t, taints[1].TimeAdded.Time.Equal(since))
	require.InDelta(w.t, 1, w.value("tollgate_taints_stamped_total"), 0)
	w.setNode("gone", bare)
	w.api.remove("gone")
	w.pass(time.Hour)
	require.Less(w.t, len(w.api.took()), 10)
}

func faultStampAnew(w *world) {
	w.start()
	begun, created := time.Now(), time.Time{}
	w.api.setFaults(func(req request) error {
		switch {
		case !is("patch nodes")(req) || !created.IsZero():
			return nil
		case time.Since(begun) < 10*time.Minute:
			return errDown
		}
		created = time.Now()
		n := w.api.node("n")
		w.api.remove("n")
		n.UID, n.ResourceVersion = "another", ""
		w.api.store(n)
		return nil
	}, nil)
	bare := noExecute("gpu")
	bare.TimeAdded = nil
	w.setNode("n", bare)
	w.pass(time.Hour)
	require.False(w.t, created.IsZero())
	require.True(w.t, w.api.node("n").Spec.Taints[0].TimeAdded.Time.Equal(created.Truncate(time.Second)), "%s", w.api.node("n").Spec.Taints[0].TimeAdded)
}

func faultOddTimes(w *world) {
	w.setNode("n")
	w.setNode("m")
	w.start()
	ahead, behind := noExecute("gpu"), noExecute("gpu")
	ahead.TimeAdded = new(metav1.NewTime(time.Now().Add(time.Hour)))
	behind.TimeAdded = new(metav1.NewTime(time.Now().Add(-time.Hour)))
	w.setNode("n", ahead)
	w.setNode("m", behind)
	w.setNode("n", ahead, noExecute("disk"))
	w.pass(time.Minute)
	require.Equal(w.t, []string{
		"Node n Warning TaintTimeOdd: Taint gpu:NoExecute appeared at 2000-01-01T00:00:00Z with a time in the future: 2000-01-01T01:00:00Z",
		"Node m Warning TaintTimeOdd: Taint gpu:NoExecute appeared at 2000-01-01T00:00:00Z with a time in the past: 1999-12-31T23:00:00Z",
	}, w.recorder.took())
	require.InDelta(w.t, 1, w.value("tollgate_taint_times_odd_total", "direction=future"), 0)
	require.InDelta(w.t, 1, w.value("tollgate_taint_times_odd_total", "direction=past"), 0)
	w.setNode("n")
	w.setNode("n", ahead)
	require.Len(w.t, w.recorder.took(), 1)
	w.restart()
	require.Len(w.t, w.recorder.took(), 1, "a taint that was there before may well be old, and is never from the future")
}

func faultOddRules(w *world) {
	ahead, behind := deviceTaint("gpu"), deviceTaint("gpu")
	ahead.TimeAdded = new(metav1.NewTime(time.Now().Add(time.Hour)))
	behind.TimeAdded = new(metav1.NewTime(time.Now().Add(-time.Hour)))
	w.set(newRule("there", "", behind))
	w.start()
	w.set(newRule("made", "", behind))
	w.set(newRule("n", "", ahead))
	changed := newRule("changed", "", behind)
	changed.Spec.Taint.Effect = "None"
	w.set(changed)
	changed.Spec.Taint = behind
	w.set(changed)
	changed.Labels = map[string]string{"a": "b"}
	w.set(changed)
	quiet := newRule("none", "", ahead)
	quiet.Spec.Taint.Effect = "None"
	w.set(quiet)
	w.pass(time.Minute)
	require.Equal(w.t, []string{
		"DeviceTaintRule n Warning TaintTimeOdd: Taint gpu:NoExecute appeared at 2000-01-01T00:00:00Z with a time in the future: 2000-01-01T01:00:00Z",
		"DeviceTaintRule changed Warning TaintTimeOdd: Taint gpu:NoExecute appeared at 2000-01-01T00:00:00Z with a time in the past: 1999-12-31T23:00:00Z",
	}, w.deviceRecorder.took())
	require.Equal(w.t, "n-rule-uid", string(w.deviceRecorder.refs[0].UID))
	require.InDelta(w.t, 1, w.value("tollgate_taint_times_odd_total", "direction=future"), 0)
	require.InDelta(w.t, 1, w.value("tollgate_taint_times_odd_total", "direction=past"), 0)
	anew := newRule("n", "", ahead)
	anew.UID = "another"
	w.set(anew)
	require.Len(w.t, w.deviceRecorder.took(), 1, "a rule created anew is another rule")
	w.drop(changed)
	w.drop(anew)
	require.Empty(w.t, w.evictor.odd.reported)
	w.set(newRule("n", "", ahead))
	require.Len(w.t, w.deviceRecorder.took(), 1)
	w.restart()
	require.Len(w.t, w.deviceRecorder.took(), 1, "one that was there before may well be old, and is never from the future")
}
