package preview

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func yes() bool { return true }
func no() bool  { return false }

// exampleTaint returns a NoExecute taint of a node with a time, in seconds from noon.
func exampleTaint(key string, seconds int) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(at(seconds)))}
}

func node(name string, taints ...corev1.Taint) tracker.Node {
	return tracker.Node{Name: name, UID: types.UID(name), Taints: taints}
}

// tolerate returns a toleration; it is without end when seconds is negative.
func tolerate(key string, seconds int64) corev1.Toleration {
	toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if seconds >= 0 {
		toleration.TolerationSeconds = &seconds
	}
	return toleration
}

// pod returns a pod of a ReplicaSet that came to its node an hour before noon.
func pod(name, node string, tolerations ...corev1.Toleration) tracker.Pod {
	return tracker.Pod{
		Key: tracker.Key{Namespace: "ns", Name: name, UID: types.UID(name)}, NodeName: node, Bound: at(-3600),
		Tolerations: tolerations, Origin: &tracker.Origin{OwnerKind: "ReplicaSet"},
	}
}

func budget(namespace, name string, labels map[string]string) tracker.Budget {
	return tracker.BudgetOf(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	})
}

// userOf returns a pod that uses a device of driver d by a claim, and the claim.
func userOf(name, dev string, tolerations ...resourcev1.DeviceToleration) (tracker.Pod, tracker.Claim) {
	p := pod(name, "n")
	p.Claims = []tracker.PodClaim{{Name: name}}
	return p, tracker.Claim{
		ClaimName: tracker.ClaimName{Namespace: "ns", Name: name}, UID: types.UID(name), Allocated: true,
		Devices:   []tracker.AllocatedDevice{{ID: device.ID{Driver: "d", Pool: "p", Name: dev}, Tolerations: tolerations}},
		Consumers: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", UID: p.UID}},
	}
}

func deviceTaint(key string, seconds int) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: new(metav1.NewTime(at(seconds)))}
}

func rule(name string, selector *resourcev1.DeviceTaintSelector, taint resourcev1.DeviceTaint) tracker.Rule {
	return tracker.RuleOf(&resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: taint},
	})
}

func newView(t *tracker.Tracker) *View {
	return &View{Tracker: t, PodsKnown: yes, NodesKnown: yes, DevicesKnown: yes, BudgetsKnown: yes}
}

// foretold returns the forecast of the write of a node that stands as the tracker
// has it.
func foretold(t *testing.T, v *View, old, written tracker.Node, now time.Time) Forecast {
	t.Helper()
	changes, err := v.Node(old, written, now)
	require.NoError(t, err)
	return v.Forecast(now, changes)
}

// random is a source of clusters.
type random struct{ *rand.Rand }

func (r random) pick(from ...string) string { return from[r.IntN(len(from))] }

func (r random) seconds() *int64 {
	if r.IntN(3) == 0 {
		return nil
	}
	return new([]int64{-1, 0, 1, 30, 300, 300, 4000}[r.IntN(7)])
}

func (r random) taints() []corev1.Taint {
	var taints []corev1.Taint
	for _, key := range []string{"a", "b"} {
		if r.IntN(2) == 0 {
			effect := []corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule}[r.IntN(3)]
			one := corev1.Taint{Key: key, Value: r.pick("", "v"), Effect: effect}
			if r.IntN(4) > 0 {
				one.TimeAdded = new(metav1.NewTime(at(r.IntN(900) - 800)))
			}
			taints = append(taints, one)
		}
	}
	return taints
}

func (r random) deviceTaint() resourcev1.DeviceTaint {
	one := deviceTaint(r.pick("a", "b"), r.IntN(900)-800)
	one.Value = r.pick("", "v")
	one.Effect = []resourcev1.DeviceTaintEffect{
		resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoExecute,
		resourcev1.DeviceTaintEffectNoSchedule, resourcev1.DeviceTaintEffectNone,
	}[r.IntN(4)]
	return one
}

func (r random) rule() tracker.Rule {
	selector := &resourcev1.DeviceTaintSelector{}
	if r.IntN(2) == 0 {
		selector.Device = new(r.pick("x0", "x1"))
	}
	if r.IntN(2) == 0 {
		selector.Driver = new(r.pick("d", "e"))
	}
	return rule(r.pick("r0", "r1"), selector, r.deviceTaint())
}

func (r random) slice() tracker.Slice {
	s := tracker.Slice{Name: "s", UID: "s", Driver: "d", Pool: "p"}
	for _, name := range []string{"x0", "x1", "x2"} {
		d := tracker.Device{Name: name}
		for range r.IntN(3) {
			d.Taints = append(d.Taints, r.deviceTaint())
		}
		s.Devices = append(s.Devices, d)
	}
	return s
}

// fill makes a cluster of pods on two nodes, some of which use devices.
func (r random) fill(t *tracker.Tracker) []tracker.Key {
	var keys []tracker.Key
	t.SetDevicesKnown(true)
	for i := range 12 {
		var tolerations []resourcev1.DeviceToleration
		if seconds := r.seconds(); r.IntN(2) == 0 {
			tolerations = append(tolerations, resourcev1.DeviceToleration{
				Key: r.pick("a", "b"), Operator: resourcev1.DeviceTolerationOpExists, TolerationSeconds: seconds,
				Effect: resourcev1.DeviceTaintEffectNoExecute,
			})
		}
		p, claim := userOf("pod-"+strconv.Itoa(i), r.pick("x0", "x1", "x2"), tolerations...)
		p.Namespace = "ns-" + strconv.Itoa(i%3)
		claim.Namespace = p.Namespace
		p.NodeName = r.pick("m", "n")
		p.Finished, p.Terminating = r.IntN(8) == 0, r.IntN(8) == 0
		p.Bound = at(r.IntN(1000) - 900)
		p.Origin = &tracker.Origin{OwnerKind: r.pick("", "ReplicaSet"), Labels: tracker.LabelsOf(map[string]string{"app": r.pick("web", "db")})}
		for range r.IntN(3) {
			p.Tolerations = append(p.Tolerations, corev1.Toleration{
				Key: r.pick("a", "b", "b"), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: r.seconds(),
			})
		}
		if r.IntN(2) == 0 {
			p.Claims = nil
		} else {
			t.SetClaim(claim)
		}
		t.SetPod(p)
		keys = append(keys, p.Key)
	}
	for _, namespace := range []string{"ns-0", "ns-1"} {
		if r.IntN(2) == 0 {
			t.SetBudget(budget(namespace, "b", map[string]string{"app": "web"}))
		}
	}
	return keys
}

// describe writes a forecast so that two can be compared.
func describe(f *Forecast) string {
	return fmt.Sprintf("%s %v", f.String(), f.Pods)
}
