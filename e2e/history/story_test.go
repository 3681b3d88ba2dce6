package history

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// start is when histories begin.
var start = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)

const key = "example.com/drain"

// story is a history that is written by hand. Times are in seconds from its start.
type story struct {
	History

	t        *testing.T
	revision int64
}

func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, revision: 100}
	s.Limits = Limits{Staleness: 5 * time.Second, Policies: 5 * time.Second, Tolerance: time.Second, Lease: 15 * time.Second, Settle: 10 * time.Second}
	s.Ended = at(1)
	return s
}

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// put adds a version of an object, as it is from then on. It may be changed after.
func (s *story) put(seconds float64, object client.Object) {
	s.t.Helper()
	s.version(seconds, object, false)
}

// gone adds that an object was removed.
func (s *story) gone(seconds float64, object client.Object) {
	s.t.Helper()
	s.version(seconds, object, true)
}

func (s *story) version(seconds float64, object client.Object, gone bool) {
	s.t.Helper()
	s.revision++
	object.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	copied, ok := object.DeepCopyObject().(client.Object)
	require.True(s.t, ok)
	s.Versions = append(s.Versions, Version{Seen: at(seconds), Revision: s.revision, Gone: gone, Object: copied})
}

// write adds what a replica asked for, which took no time.
func (s *story) write(seconds float64, w faultproxy.Write, body any) *faultproxy.Write {
	s.t.Helper()
	if body != nil {
		var err error
		w.Body, err = json.Marshal(body)
		require.NoError(s.t, err)
	}
	w.Sent = at(seconds)
	if w.Status != 0 {
		w.Forwarded, w.Answered, w.Given = w.Sent, w.Sent, w.Status
	}
	s.Writes = append(s.Writes, w)
	return &s.Writes[len(s.Writes)-1]
}

// lease adds that a replica takes or renews the lease; without a name it gives it back.
func (s *story) lease(seconds float64, replica, identity string) *faultproxy.Write {
	s.t.Helper()
	body := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
	body.Spec.HolderIdentity = &identity
	return s.write(seconds, faultproxy.Write{
		Replica: replica, Verb: "update", Resource: "leases", Namespace: "tollgate-system", Name: "tollgate", Status: 200,
	}, body)
}

// options are the preconditions of a pod.
func options(pod *corev1.Pod) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: new(pod.ResourceVersion)},
	}
}

// remove adds that a replica deletes a pod, which is then gone.
func (s *story) remove(seconds float64, replica string, pod *corev1.Pod) *faultproxy.Write {
	s.t.Helper()
	w := s.write(seconds, faultproxy.Write{
		Replica: replica, Method: "DELETE", Path: "/" + pod.Name, Verb: "delete", Resource: "pods", Namespace: pod.Namespace, Name: pod.Name, Status: 200,
	}, options(pod))
	s.gone(seconds, pod)
	return w
}

// evict adds that a replica evicts a pod by the Eviction API, which is then gone.
func (s *story) evict(seconds float64, replica string, pod *corev1.Pod) *faultproxy.Write {
	s.t.Helper()
	w := s.write(seconds, faultproxy.Write{
		Replica: replica, Method: "POST", Path: "/" + pod.Name + "/eviction", Verb: "create", Resource: "pods", Subresource: "eviction",
		Namespace: pod.Namespace, Name: pod.Name, Status: 201,
	}, &policyv1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"}, DeleteOptions: options(pod)})
	s.gone(seconds, pod)
	return w
}

// pod is a pod on a node, created long before the start.
func pod(name string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(at(-1000)),
			Labels: map[string]string{"app": "x"},
		},
		Spec: corev1.PodSpec{NodeName: "node", Tolerations: tolerations},
	}
}

// node is one with taints of the key, added at these seconds.
func node(added ...float64) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "uid-node"}}
	for _, seconds := range added {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(at(seconds))),
		})
	}
	return n
}

// tolerate tolerates the key for some seconds, or for ever when negative.
func tolerate(seconds int64) corev1.Toleration {
	toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if seconds >= 0 {
		toleration.TolerationSeconds = &seconds
	}
	return toleration
}

// claimed gives a pod a claim of a device, and returns the claim.
func claimed(p *corev1.Pod, tolerations ...resourcev1.DeviceToleration) *resourcev1.ResourceClaim {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: new("claim")}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "claim", UID: "uid-claim"}}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Driver: "driver", Pool: "pool", Device: "device", Tolerations: tolerations}},
	}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: p.Name, UID: p.UID}}
	return claim
}

func tolerateDevice(seconds int64) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{
		Key: key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: &seconds,
	}
}

// rule taints the device.
func rule(effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "rule", UID: "uid-rule"},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Driver: new("driver"), Device: new("device")},
			Taint:          resourcev1.DeviceTaint{Key: key, Effect: effect, TimeAdded: new(metav1.NewTime(at(0)))},
		},
	}
}

// slice is one with the device, tainted or not.
func slice(tainted bool) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice", UID: "uid-slice"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: "driver", Pool: resourcev1.ResourcePool{Name: "pool"}, Devices: []resourcev1.Device{{Name: "device"}},
		},
	}
	if tainted {
		s.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{rule(resourcev1.DeviceTaintEffectNoExecute).Spec.Taint}
	}
	return s
}

// policy is one about the key on nodes.
func policy(edit ...func(*v1alpha1.EvictionPolicySpec)) *v1alpha1.EvictionPolicy {
	p := &v1alpha1.EvictionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: "uid-policy", Generation: 1, CreationTimestamp: metav1.NewTime(at(-1000))},
		Spec:       v1alpha1.EvictionPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: key}}},
	}
	for _, e := range edit {
		e(&p.Spec)
	}
	return p
}

func paused(spec *v1alpha1.EvictionPolicySpec) { spec.Paused = true }

func markedByEviction(spec *v1alpha1.EvictionPolicySpec) {
	spec.Mark = v1alpha1.EvictionMarkByEvictionAPI
}

func byEviction(spec *v1alpha1.EvictionPolicySpec) { spec.Method = v1alpha1.EvictionMethodEvict }

// breaker allows so many pods in a minute.
func breaker(pods int32) func(*v1alpha1.EvictionPolicySpec) {
	return func(spec *v1alpha1.EvictionPolicySpec) {
		spec.Breaker = &v1alpha1.EvictionBreaker{MaxPods: &pods, Window: metav1.Duration{Duration: time.Minute}}
	}
}

// holding is a policy whose status says that it holds pods.
func holding(p *v1alpha1.EvictionPolicy, pods int32) *v1alpha1.EvictionPolicy {
	p.Status.Held = pods
	p.Status.Conditions = []metav1.Condition{{Type: "Held", Status: metav1.ConditionTrue}}
	if p.Spec.Breaker != nil {
		p.Status.Breaker = &v1alpha1.EvictionBreakerStatus{Tripped: new(metav1.NewMicroTime(at(0)))}
	}
	return p
}

// budget lets so many pods go.
func budget(name string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

// found are the invariants that a story violates, each once, in their order.
func (s *story) found() []string {
	var names []string
	for _, v := range Check(&s.History) {
		if len(names) == 0 || names[len(names)-1] != v.Invariant {
			names = append(names, v.Invariant)
		}
	}
	return names
}

// plain begins a story in which the leader is a, and a node is tainted.
func plain(s *story, pods ...*corev1.Pod) {
	s.lease(-1, "a", "a")
	for _, p := range pods {
		s.put(-1, p)
	}
	s.put(0, node(0))
}

// check runs stories and compares what they violate.
func check(t *testing.T, stories map[string]struct {
	tell func(*story)
	want []string
},
) {
	t.Helper()
	for name, test := range stories {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			test.tell(s)
			require.Equal(t, test.want, s.found(), "%v", Check(&s.History))
		})
	}
}
