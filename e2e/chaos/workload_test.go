package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const (
	// podCount is how many names of pods there are, and the most pods at one time.
	podCount    = 40
	deviceCount = 8
	ruleCount   = 3
	// pauseOfWorkload is how long the workload waits at most between two acts.
	pauseOfWorkload = 400 * time.Millisecond
)

func deviceName(i int) string { return fmt.Sprintf("device-%d", i) }

func podName(i int) string { return fmt.Sprintf("pod-%d", i) }

// addWorkload adds what users, drivers and monitors do.
func (s *schedule) addWorkload() {
	for i := range podCount * 2 / 3 {
		s.addPod(0, i)
	}
	for at := time.Second; at < s.length; at += s.between(0, pauseOfWorkload) {
		s.addChange(at)
	}
}

// addChange adds one thing that somebody does.
func (s *schedule) addChange(at time.Duration) {
	i := s.random.IntN(podCount)
	switch n := s.random.IntN(100); {
	case n < 30:
		s.addPod(at, i)
	case n < 50:
		s.addTaint(at)
	case n < 64:
		s.addUntaint(at)
	case n < 70:
		s.addRecreate(at, i)
	case n < 75:
		s.addTolerate(at, i)
	case n < 78:
		s.add(at, func(ctx context.Context, st *stage) error {
			return st.patchPod(ctx, podName(i), `{"status":{"phase":"Succeeded"}}`, "status")
		}, "pod-%d is over", i)
	case n < 82:
		s.add(at, func(ctx context.Context, st *stage) error {
			return st.patchPod(ctx, podName(i), fmt.Sprintf(`{"metadata":{"annotations":{"chaos":"%d"}}}`, n))
		}, "touch pod-%d", i)
	case n < 92:
		s.addRule(at)
	default:
		s.addDeviceTaint(at)
	}
}

// seconds are what is tolerated: negative is for ever.
func (s *schedule) seconds() *int64 {
	if s.chance(0.25) {
		return nil
	}
	return new(s.random.Int64N(9))
}

func (s *schedule) key() string { return prefix + pick(s, "a", "b", "c") }

func (s *schedule) tolerations() []corev1.Toleration {
	var tolerations []corev1.Toleration
	for range s.random.IntN(3) {
		t := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: s.seconds()}
		if !s.chance(0.15) {
			t.Key = s.key()
		}
		tolerations = append(tolerations, t)
	}
	return tolerations
}

// addPod adds a pod on some node, with a device or without.
func (s *schedule) addPod(at time.Duration, i int) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: map[string]string{"app": pick(s, "x", "y"), "chaos": "true"}},
		Spec: corev1.PodSpec{
			NodeName:                      controlplane.NodeName(1 + s.random.IntN(nodeCount)),
			Tolerations:                   s.tolerations(),
			TerminationGracePeriodSeconds: new(pick(s, int64(0), 1, 30)),
			Containers:                    []corev1.Container{{Name: "c", Image: "image"}},
		},
	}
	finalizer := s.chance(0.1)
	if finalizer {
		pod.Finalizers = []string{prefix + "hold"}
		s.add(at+s.between(time.Second, 6*time.Second), func(ctx context.Context, st *stage) error {
			return st.patchPod(ctx, podName(i), `{"metadata":{"finalizers":null}}`)
		}, "let pod-%d go", i)
	}
	device, tolerations := -1, []resourcev1.DeviceToleration(nil)
	if s.chance(0.4) {
		device = s.random.IntN(deviceCount)
		if s.chance(0.5) {
			tolerations = append(tolerations, resourcev1.DeviceToleration{
				Key: s.key(), Operator: resourcev1.DeviceTolerationOpExists,
				Effect: resourcev1.DeviceTaintEffectNoExecute, TolerationSeconds: s.seconds(),
			})
		}
	}
	claim := fmt.Sprintf("claim-%d-%d", i, s.random.IntN(1_000_000))
	s.add(at, func(ctx context.Context, st *stage) error {
		if device < 0 {
			_, err := st.client.CoreV1().Pods(st.namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		}
		return st.createWithDevice(ctx, pod, claim, device, tolerations)
	}, "create pod-%d on %s (device %d, finalizer %t, tolerations %s %v)", i, pod.Spec.NodeName, device, finalizer, tolerated(pod.Spec.Tolerations), tolerations)
}

func tolerated(tolerations []corev1.Toleration) string {
	var texts []string
	for _, t := range tolerations {
		text := strings.TrimPrefix(t.Key, prefix) + ":ever"
		if t.TolerationSeconds != nil {
			text = fmt.Sprintf("%s:%d", strings.TrimPrefix(t.Key, prefix), *t.TolerationSeconds)
		}
		texts = append(texts, text)
	}
	return fmt.Sprint(texts)
}

// createWithDevice creates a pod with a claim that is allocated at once.
func (st *stage) createWithDevice(ctx context.Context, pod *corev1.Pod, claimName string, device int, tolerations []resourcev1.DeviceToleration) error {
	pod = pod.DeepCopy()
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claimName}}
	created, err := st.client.CoreV1().Pods(st.namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claims := st.client.ResourceV1().ResourceClaims(st.namespace)
	claim := dra.Claim(claimName, st.driver, "", tolerations...)
	claim.Finalizers = []string{resourcev1.Finalizer}
	if claim, err = claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		return err
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{
			Request: "device", Driver: st.driver, Pool: "pool", Device: deviceName(device), Tolerations: tolerations,
		}},
	}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: created.UID}}
	_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// addRecreate adds that a pod is deleted and comes back under its name at once.
func (s *schedule) addRecreate(at time.Duration, i int) {
	s.add(at, func(ctx context.Context, st *stage) error {
		return st.client.CoreV1().Pods(st.namespace).Delete(ctx, podName(i), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}, "delete pod-%d", i)
	if s.chance(0.8) {
		s.addPod(at, i)
	}
}

// addTolerate adds that a pod gets a toleration, or more time by one.
func (s *schedule) addTolerate(at time.Duration, i int) {
	seconds, key := s.seconds(), s.key()
	s.add(at, func(ctx context.Context, st *stage) error {
		pods := st.client.CoreV1().Pods(st.namespace)
		pod, err := pods.Get(ctx, podName(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for j := range pod.Spec.Tolerations {
			if t := &pod.Spec.Tolerations[j]; t.Key == key {
				t.TolerationSeconds = seconds
				_, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
				return err
			}
		}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds,
		})
		_, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
		return err
	}, "pod-%d tolerates %s for %s", i, key, tolerated([]corev1.Toleration{{TolerationSeconds: seconds}}))
}

// when returns the time that a taint is given, relative to when it is: nil for none.
func (s *schedule) when() *time.Duration {
	switch s.random.IntN(6) {
	case 0, 1, 2:
		return nil
	case 3:
		return new(time.Duration(0))
	case 4:
		return new(-s.between(0, 20*time.Second))
	default:
		return new(s.between(0, 4*time.Second))
	}
}

func at(when *time.Duration) *metav1.Time {
	if when == nil {
		return nil
	}
	return new(metav1.NewTime(time.Now().Add(*when)))
}

func since(when *time.Duration) string {
	if when == nil {
		return "no time"
	}
	return when.Round(time.Second).String()
}

// addTaint adds a taint on a node, which may go again at once.
func (s *schedule) addTaint(now time.Duration) {
	node, key, when := controlplane.NodeName(1+s.random.IntN(nodeCount)), s.key(), s.when()
	s.add(now, func(ctx context.Context, st *stage) error {
		return st.editTaints(ctx, node, func(taints []corev1.Taint) []corev1.Taint {
			taints = without(taints, key)
			return append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: at(when)})
		})
	}, "taint %s with %s (%s)", node, key, since(when))
	if s.chance(0.5) {
		s.add(now+s.between(0, 3*time.Second), func(ctx context.Context, st *stage) error {
			return st.editTaints(ctx, node, func(taints []corev1.Taint) []corev1.Taint { return without(taints, key) })
		}, "untaint %s of %s, soon", node, key)
	}
}

func (s *schedule) addUntaint(now time.Duration) {
	node := controlplane.NodeName(1 + s.random.IntN(nodeCount))
	key := s.key()
	s.add(now, func(ctx context.Context, st *stage) error {
		return st.editTaints(ctx, node, func(taints []corev1.Taint) []corev1.Taint { return without(taints, key) })
	}, "untaint %s of %s", node, key)
}

func without(taints []corev1.Taint, key string) []corev1.Taint {
	return slices.DeleteFunc(taints, func(t corev1.Taint) bool { return t.Key == key })
}

func (st *stage) editTaints(ctx context.Context, name string, edit func([]corev1.Taint) []corev1.Taint) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := st.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = edit(node.Spec.Taints)
		_, err = st.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// untaint takes the taints of schedules from a node.
func (st *stage) untaint(ctx context.Context, name string) error {
	return st.editTaints(ctx, name, func(taints []corev1.Taint) []corev1.Taint {
		return slices.DeleteFunc(taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, prefix) })
	})
}

func (st *stage) patchPod(ctx context.Context, name, patch string, subresources ...string) error {
	_, err := st.client.CoreV1().Pods(st.namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

func (st *stage) ruleName(i int) string { return fmt.Sprintf("%s-rule-%d", st.namespace, i) }

// addRule adds that a rule is created, changed or deleted.
func (s *schedule) addRule(now time.Duration) {
	i, key, device, when := s.random.IntN(ruleCount), s.key(), s.random.IntN(deviceCount*2), s.when()
	effect := pick(s, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNone)
	if s.chance(0.4) {
		s.add(now, func(ctx context.Context, st *stage) error {
			return st.client.ResourceV1().DeviceTaintRules().Delete(ctx, st.ruleName(i), metav1.DeleteOptions{})
		}, "delete rule %d", i)
		return
	}
	s.add(now, func(ctx context.Context, st *stage) error {
		rules := st.client.ResourceV1().DeviceTaintRules()
		want := dra.Rule(st.ruleName(i), st.driver, resourcev1.DeviceTaint{Key: key, Effect: effect, TimeAdded: at(when)})
		if device < deviceCount {
			want.Spec.DeviceSelector.Device = new(deviceName(device))
		}
		existing, err := rules.Get(ctx, want.Name, metav1.GetOptions{})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err != nil {
			_, err = rules.Create(ctx, want, metav1.CreateOptions{})
			return err
		}
		existing.Spec.Taint = want.Spec.Taint
		_, err = rules.Update(ctx, existing, metav1.UpdateOptions{})
		return err
	}, "rule %d is %s %s (%s) of device %d", i, key, effect, since(when), device)
}

// addDeviceTaint adds that a driver taints one of its devices, or takes the taint away.
func (s *schedule) addDeviceTaint(now time.Duration) {
	i, key, when, taints := s.random.IntN(deviceCount), s.key(), s.when(), s.chance(0.5)
	s.add(now, func(ctx context.Context, st *stage) error {
		slices := st.client.ResourceV1().ResourceSlices()
		slice, err := slices.Get(ctx, dra.Slice(st.driver, "pool").Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		slice.Spec.Devices[i].Taints = nil
		if taints {
			slice.Spec.Devices[i].Taints = []resourcev1.DeviceTaint{{Key: key, Effect: resourcev1.DeviceTaintEffectNoExecute, TimeAdded: at(when)}}
		}
		_, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
		return err
	}, "device %d has taints: %t, %s (%s)", i, taints, key, since(when))
}

// sweep removes the rules of the schedule, and its policies.
func (st *stage) sweep(ctx context.Context) error {
	for i := range ruleCount {
		err := st.client.ResourceV1().DeviceTaintRules().Delete(ctx, st.ruleName(i), metav1.DeleteOptions{})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete rule: %w", err)
		}
	}
	return st.sweepPolicies(ctx)
}
