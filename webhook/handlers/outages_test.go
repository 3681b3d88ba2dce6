package handlers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

// outageStart is when nodes begin to fail here.
var outageStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// failing is a node with a condition Ready that is some minutes old, tainted since some minutes
// later, unless that is negative.
func failing(uid types.UID, status corev1.ConditionStatus, at, tainted int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-" + string(uid), UID: uid}}
	minutes := func(n int) metav1.Time { return metav1.NewTime(outageStart.Add(time.Duration(n) * time.Minute)) }
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: minutes(at)}}
	if tainted >= 0 {
		since := minutes(tainted)
		node.Spec.Taints = []corev1.Taint{
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule, TimeAdded: new(minutes(0))},
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute, TimeAdded: &since},
		}
	}
	return node
}

func TestU6OutagesAreRememberedOverARestartOfTheNodeLifecycleController(t *testing.T) {
	t.Parallel()
	const no, unknown, yes = corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionTrue
	well := failing("other", yes, 0, -1)
	for name, tt := range map[string]struct {
		// nodes are what a node is, one after the other; all but the first are updates.
		nodes []*corev1.Node
		// more happens then.
		more func(o *Outages)
		// status and at are the condition with which it is tainted again.
		status corev1.ConditionStatus
		at     int
		// want is since when, in minutes; negative for not known.
		want int
	}{
		"the taint was taken off and comes back": {
			nodes: []*corev1.Node{failing("a", unknown, 1, 2), failing("a", unknown, 1, -1)}, status: unknown, at: 1, want: 2,
		},
		"it was tainted while Tollgate watched": {
			nodes: []*corev1.Node{failing("a", yes, 0, -1), failing("a", unknown, 1, -1), failing("a", unknown, 1, 2), failing("a", unknown, 1, -1)}, status: unknown, at: 1, want: 2,
		},
		"the removal has not been heard of yet": {
			nodes: []*corev1.Node{failing("a", no, 1, 2)}, status: no, at: 1, want: 2,
		},
		"it was never tainted": {
			nodes: []*corev1.Node{failing("a", no, 1, -1)}, status: no, at: 1, want: -1,
		},
		"nobody saw it tainted": {
			nodes: []*corev1.Node{failing("a", no, 1, -1), failing("a", no, 1, -1)}, status: no, at: 1, want: -1,
		},
		"it was ready in between": {
			nodes:  []*corev1.Node{failing("a", no, 1, 2), failing("a", yes, 3, -1), failing("a", no, 4, -1)},
			status: no, at: 4, want: -1,
		},
		"it may have been ready in between, unseen": {
			nodes: []*corev1.Node{failing("a", no, 1, 2), failing("a", no, 1, -1)}, status: no, at: 4, want: -1,
		},
		"it was not ready and is unreachable, so that it may have been ready in between": {
			nodes: []*corev1.Node{failing("a", no, 1, 2), failing("a", no, 1, -1)}, status: unknown, at: 4, want: -1,
		},
		"it became unreachable while it was tainted": {
			nodes: []*corev1.Node{failing("a", no, 1, 2), failing("a", unknown, 4, 2), failing("a", unknown, 4, -1)}, status: unknown, at: 4, want: 2,
		},
		"another node has its name": {
			nodes: []*corev1.Node{failing("before", no, 1, 2), failing("a", no, 1, -1)}, status: no, at: 1, want: -1,
		},
		"it was deleted": {
			nodes: []*corev1.Node{failing("a", no, 1, 2), failing("a", no, 1, -1)},
			more: func(o *Outages) {
				o.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: failing("a", no, 1, -1)})
				o.OnAdd(failing("a", no, 1, -1), false)
			},
			status: no, at: 1, want: -1,
		},
		"all nodes failed meanwhile": {
			nodes: []*corev1.Node{failing("a", no, 1, 2), failing("a", no, 1, -1)},
			more: func(o *Outages) {
				o.OnUpdate(well, failing("other", unknown, 3, -1))
				o.OnUpdate(failing("other", unknown, 3, -1), well)
			},
			status: no, at: 1, want: -1,
		},
		"all nodes had failed when the taint was taken off": {
			nodes: []*corev1.Node{failing("a", no, 1, 2)},
			more: func(o *Outages) {
				o.OnUpdate(well, failing("other", unknown, 3, -1))
				o.OnUpdate(failing("a", no, 1, 2), failing("a", no, 1, -1))
				o.OnUpdate(failing("other", unknown, 3, -1), well)
			},
			status: no, at: 1, want: -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewOutages()
			o.OnAdd(tt.nodes[0], true) // the first of all, as if all had failed
			o.OnAdd(well, true)
			for i := range tt.nodes[1:] {
				o.OnUpdate(tt.nodes[i], tt.nodes[i+1])
			}
			if tt.more != nil {
				tt.more(o)
			}
			if len(tt.nodes) == 1 && tt.more == nil {
				o.OnUpdate(tt.nodes[0], tt.nodes[0]) // a heartbeat
			}
			got := o.Since("a", validation.Ready{Status: tt.status, Since: outageStart.Add(time.Duration(tt.at) * time.Minute)})
			if tt.want < 0 {
				require.Zero(t, got)
				return
			}
			require.Equal(t, outageStart.Add(time.Duration(tt.want)*time.Minute), got)
		})
	}
}

func TestU6NobodyIsRememberedWhereAllNodesHaveFailed(t *testing.T) {
	t.Parallel()
	o := NewOutages()
	o.OnAdd(failing("a", corev1.ConditionFalse, 1, 2), true)
	require.Zero(t, o.Since("a", validation.Ready{Status: corev1.ConditionFalse, Since: outageStart.Add(time.Minute)}))
}
