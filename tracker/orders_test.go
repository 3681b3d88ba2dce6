package tracker_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestEveryOrderOfDeviceEventsGivesTheSameI08(t *testing.T) {
	t.Parallel()
	tainted := tracker.Device{Name: "x", Taints: []resourcev1.DeviceTaint{noExecute("k")}}
	everywhere, inPool := &resourcev1.DeviceTaintSelector{}, &resourcev1.DeviceTaintSelector{Pool: new("p")}
	events := []event{
		{name: "old slice", apply: func(tr *tracker.Tracker) { tr.SetSlice(sliceOf("old", 1, 1, tainted, tainted), start) }},
		{name: "new slice", apply: func(tr *tracker.Tracker) {
			tr.SetSlice(sliceOf("new", 2, 2, tracker.Device{Name: "y"}, tainted), start)
		}},
		{name: "rule v1", apply: func(tr *tracker.Tracker) { tr.SetRule(rule("r", 1, everywhere, noExecute("m")), start) }},
		{name: "rule v2", apply: func(tr *tracker.Tracker) { tr.SetRule(rule("r", 2, inPool, noExecute("l")), start) }},
		{name: "claim v1", apply: func(tr *tracker.Tracker) { tr.SetClaim(claimFor("c", 1, nil, gpu("z"))) }},
		{name: "claim v2", apply: func(tr *tracker.Tracker) { tr.SetClaim(claimFor("c", 2, []string{"a", "b"}, gpu("x"), gpu("y"))) }},
		{name: "pod a", apply: func(tr *tracker.Tracker) { tr.SetPod(user("a", 1, tracker.PodClaim{Name: "c"})) }},
		{name: "all listed", apply: func(tr *tracker.Tracker) { tr.SetDevicesKnown(true) }},
	}
	want := []string{"x k:NoExecute new", "x l:NoExecute r", "y l:NoExecute r"}
	permute(events, func(order []event) {
		tr := tracker.New()
		for _, e := range order {
			e.apply(tr)
		}
		require.Equal(t, want, held(tr, "a"))
		require.Equal(t, keysOf("a"), tr.Exposed())
	})
}
