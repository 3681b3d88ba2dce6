package evictor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker"
)

// What events say is read by people and by commands, so neither may change without the
// other.
func TestWhatEventsTellOfHoldsIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	for _, reason := range holdReasons() {
		for _, policy := range []string{"", "gentle"} {
			of := toldOf{episode: episode{carrier: tracker.Source{}, reason: reason}, pods: 2, policy: policy, taint: "a/b=c:NoExecute"}
			begun, ok := ReadHeldNotice(heldReason, heldMessage(&of))
			require.True(t, ok, heldMessage(&of))
			require.Equal(t, "a/b=c:NoExecute", begun.Taint)
			require.Equal(t, reason, begun.Reason)
			over, ok := ReadHeldNotice(releasedReason, releasedMessage(&of))
			require.True(t, ok, releasedMessage(&of))
			require.Equal(t, HeldNotice{Taint: "a/b=c:NoExecute", Reason: reason, Policy: policy, Over: true}, over)
			if named := reason.Explain("x") != reason.Explain(""); named {
				require.Equal(t, policy, begun.Policy)
			}
		}
	}
	require.Equal(t, []string{"EvictionHeld", "EvictionReleased"}, EventReasonsHeld())
	require.Equal(t, []string{"TaintManagerEvictionHeldUp", "DeviceTaintManagerEvictionHeldUp"}, EventReasonsHeldUp())
}

func TestOtherEventsTellNothingOfHolds(t *testing.T) {
	t.Parallel()
	for _, event := range [][2]string{
		{"TaintManagerEviction", "Evicted 3 pods because of a NoExecute taint"},
		{heldReason, "Holding 1 pod that has to leave because of taint a:NoExecute: it is late"},
		{heldReason, "Holding"},
		{releasedReason, "No pod that has to leave because of taint a:NoExecute"},
	} {
		_, ok := ReadHeldNotice(event[0], event[1])
		require.False(t, ok, event[1])
	}
}
