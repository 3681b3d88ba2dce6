package policies

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/policy"
)

const (
	// grace is how long the patient pods of these tests tolerate a taint.
	grace = 20 * time.Second
	// withinGrace are the seconds that a preview may say for that: those since the taint got
	// its time are taken off, which is in another call.
	withinGrace = "(20|1[5-9])"
	// parallel is how many requests a test makes at once.
	parallel = 16
)

// createPods creates pods in a namespace, count of them, each by its number.
func createPods(t *testing.T, namespace string, count int, numbered func(i int) *corev1.Pod) {
	t.Helper()
	pods := admin(t).CoreV1().Pods(namespace)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(parallel)
	for i := range count {
		group.Go(func() error {
			_, err := pods.Create(ctx, numbered(i), metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(t, group.Wait())
}

// populate puts 500 pods on two nodes: 400 on the first, of which 300 tolerate
// nothing, 60 the taint for a while, and 40 for ever.
func populate(t *testing.T, first, second, key string) {
	t.Helper()
	for i := range 5 {
		namespace := fmt.Sprintf("preview-%d", i)
		namespaces(t, namespace)
		createPods(t, namespace, 40, func(i int) *corev1.Pod { return onNode(podNamed(fmt.Sprintf("now-%d", i)), first) })
	}
	createPods(t, "preview-0", 60, func(i int) *corev1.Pod {
		return onNode(podNamed(fmt.Sprintf("patient-%d", i), forSeconds(key, int64(grace.Seconds()))), first)
	})
	createPods(t, "preview-2", 40, func(i int) *corev1.Pod { return onNode(podNamed(fmt.Sprintf("stays-%d", i), exists(key, "")), first) })
	createPods(t, "preview-3", 100, func(i int) *corev1.Pod { return onNode(podNamed(fmt.Sprintf("elsewhere-%d", i)), second) })
	deployment := deploymentOf("owned")
	deployment.Spec.Replicas = new(int32(100))
	deployment.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: first}
	_, err := admin(t).AppsV1().Deployments("preview-1").Create(t.Context(), deployment, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin(t).PolicyV1().PodDisruptionBudgets("preview-1").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "budget"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selecting("owned"), MaxUnavailable: new(intstr.FromInt32(1))},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	waitReplicas(t, "preview-1", "owned", 100)
}

// departures are the pods of a node that have been told to go, and when that was seen.
type departures struct {
	mu    sync.Mutex
	times map[string]time.Time
}

// watchDepartures watches the pods of a node for the length of the test.
func watchDepartures(t *testing.T, node string) *departures {
	t.Helper()
	pods := admin(t).CoreV1().Pods(metav1.NamespaceAll)
	selector := "spec.nodeName=" + node
	list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
	require.NoError(t, err)
	// One that begins anew where it was: the API server ends those that fall behind.
	events, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return pods.Watch(ctx, options)
		},
	})
	require.NoError(t, err)
	d := &departures{times: map[string]time.Time{}}
	var group sync.WaitGroup
	group.Go(func() {
		for event := range events.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && (event.Type == watch.Deleted || pod.DeletionTimestamp != nil) {
				d.see(pod.Namespace + "/" + pod.Name)
			}
		}
	})
	t.Cleanup(func() {
		events.Stop()
		group.Wait()
	})
	return d
}

func (d *departures) see(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.times[name]; !ok {
		d.times[name] = time.Now()
	}
}

// gone returns who has been told to go so far.
func (d *departures) gone() map[string]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.times)
}

func TestThePreviewOfATaintIsWhatThenHappens(t *testing.T) {
	const first, second, key = "preview-first", "preview-second", "preview.example.com/broken"
	node(t, first, nil)
	node(t, second, nil)
	populate(t, first, second, key)
	foretold := regexp.MustCompile(`evicts 360 pods in 5 namespaces: 300 now, 60 within ` + withinGrace + `s; ` +
		`100 guarded by a PodDisruptionBudget, 260 without a controller`)
	alice := tenant(t, "alice")
	eventually(t, "Tollgate knows all pods", func(ctx context.Context) error {
		_, err := alice.CoreV1().Nodes().Patch(ctx, first, types.MergePatchType, patchOf(t, noExecute(key, "")), metav1.PatchOptions{DryRun: dryRun})
		if err != nil {
			return err
		}
		if heard := alice.heard.take(); len(heard) != 1 || !foretold.MatchString(heard[0]) {
			return fmt.Errorf("warned of %q", heard)
		}
		return nil
	})
	doomed := names(t, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == first && !tolerated(pod, key) })
	require.Len(t, doomed, 360)
	stay := names(t, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == first && tolerated(pod, key) })
	require.Len(t, stay, 40)
	t.Run("kubectl shows it, and a dry run changes nothing", func(t *testing.T) {
		out, err := alice.kubectl(t, "taint", "node", first, key+"=:NoExecute", "--dry-run=server")
		require.NoError(t, err, out)
		require.Regexp(t, "Warning: "+foretold.String(), out)
		require.Empty(t, nodeNow(t, first).Spec.Taints)
	})
	t.Run("a taint that does not evict has none", func(t *testing.T) {
		require.NoError(t, alice.taintNode(t, second, noSchedule("preview.example.com/other", "")))
		require.Empty(t, alice.heard.take())
	})

	leaving := watchDepartures(t, first)
	out, err := alice.kubectl(t, "taint", "node", first, key+"=:NoExecute")
	require.NoError(t, err, out)
	require.Regexp(t, "Warning: "+foretold.String(), out)
	added := taintOf(nodeNow(t, first), key, corev1.TaintEffectNoExecute).TimeAdded.Time
	becomes(t, "360 pods go", func() error {
		gone := leaving.gone()
		maps.DeleteFunc(gone, func(name string, _ time.Time) bool { return !doomed[name] })
		if len(gone) < len(doomed) {
			return fmt.Errorf("%d are gone", len(gone))
		}
		return nil
	})
	early := 0
	for name, at := range leaving.gone() {
		require.NotContains(t, stay, name, "nobody else goes")
		if !doomed[name] { // It came in the place of one that left, before the scheduler had heard of the taint.
			continue
		}
		if patient := containsAll(name, []string{"patient"}); patient {
			require.False(t, at.Before(added.Add(grace)), "%s left %s after the taint", name, at.Sub(added))
			continue
		}
		early++
		require.Less(t, at.Sub(added), grace, "%s did not leave at once", name)
	}
	require.Equal(t, 300, early)
	t.Run("taking it off evicts nobody", func(t *testing.T) {
		_, err := alice.kubectl(t, "taint", "node", first, key+"-")
		require.NoError(t, err)
	})
}

// foretells repeats a dry run until it is answered with a warning that has all of the
// parts: what Tollgate knows of pods and devices comes through watches.
func foretells(t *testing.T, who *person, dry func() error, parts ...string) {
	t.Helper()
	becomes(t, fmt.Sprintf("a preview with %q", parts), func() error {
		who.heard.take()
		if err := dry(); err != nil {
			return err
		}
		heard := who.heard.take()
		if !slices.ContainsFunc(heard, func(text string) bool { return containsAll(text, parts) }) {
			return fmt.Errorf("warned of %q", heard)
		}
		return nil
	})
}

// waitForetold returns when the preview of one more taint of a node has all of the parts.
func waitForetold(t *testing.T, who *person, node string, taint corev1.Taint, parts ...string) {
	t.Helper()
	foretells(t, who, func() error {
		patch := patchOf(t, append(nodeNow(t, node).Spec.Taints, taint)...)
		_, err := who.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun})
		return err
	}, parts...)
}

func patchOf(t *testing.T, taints ...corev1.Taint) []byte {
	t.Helper()
	return encode(t, specTaints(taints))
}

// names returns the pods of all namespaces that are as wanted, by namespace and name.
func names(t *testing.T, wanted func(*corev1.Pod) bool) map[string]bool {
	t.Helper()
	list, err := admin(t).CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	found := map[string]bool{}
	for i := range list.Items {
		if wanted(&list.Items[i]) {
			found[list.Items[i].Namespace+"/"+list.Items[i].Name] = true
		}
	}
	return found
}

// tolerated reports whether a pod tolerates a key for ever.
func tolerated(pod *corev1.Pod, key string) bool {
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == key && toleration.TolerationSeconds == nil {
			return true
		}
	}
	return false
}

func TestThePreviewOfARuleIsWhatThenHappens(t *testing.T) {
	const driver, key, count = "preview-gpu.example.com", "preview.example.com/overheating", 20
	namespaces(t, "preview-devices")
	var devices []resourcev1.Device
	for i := range count {
		devices = append(devices, dra.Device(fmt.Sprintf("d%d", i)))
	}
	deviceClass(t, driver, devices...)
	alice := tenant(t, "alice")
	for name, tolerations := range map[string][]resourcev1.DeviceToleration{
		"none": nil, "patient": {dra.TolerateFor(key, int64(grace.Seconds()))}, "stays": {dra.Tolerate(key)},
	} {
		_, err := alice.ResourceV1().ResourceClaimTemplates("preview-devices").Create(t.Context(), dra.Template(name, driver, "", tolerations...), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for i := range count {
		template := []string{"none", "none", "patient", "stays"}[i%4]
		alice.createPod(t, "preview-devices", dra.FromTemplate(podNamed(fmt.Sprintf("%s-%d", template, i)), template))
	}
	for i := range count {
		waitRuns(t, "preview-devices", fmt.Sprintf("%s-%d", []string{"none", "none", "patient", "stays"}[i%4], i))
	}
	require.NoError(t, alice.createRule(t, ruleObject("preview-devices", driver, key, resourcev1.DeviceTaintEffectNone)))
	alice.heard.take()
	foretold := regexp.MustCompile(`^evicts 15 pods in 1 namespace: 10 now, 5 within ` + withinGrace + `s; 15 without a controller$`)
	write := func(options metav1.PatchOptions) error {
		return alice.patchRule(t, "preview-devices", `{"spec":{"taint":{"effect":"NoExecute"}}}`, options)
	}
	foretells(t, alice, func() error { return write(metav1.PatchOptions{DryRun: dryRun}) }, "evicts 15 pods in 1 namespace")
	for _, options := range []metav1.PatchOptions{{DryRun: dryRun}, {}} {
		becomes(t, "the rule is written", func() error { return write(options) })
		heard := alice.heard.take()
		require.True(t, slices.ContainsFunc(heard, foretold.MatchString), "%q", heard)
	}
	for i := range count {
		name := []string{"none", "none", "patient", "stays"}[i%4]
		if name != "stays" {
			waitGone(t, "preview-devices", fmt.Sprintf("%s-%d", name, i))
			continue
		}
		require.Nil(t, podNow(t, "preview-devices", fmt.Sprintf("stays-%d", i)).DeletionTimestamp)
	}
}

func TestALimitIsPassedOnceByAnApproval(t *testing.T) {
	const first, second, third, key = "limit-first", "limit-second", "limit-third", "limit.example.com/broken"
	namespaces(t, "limit")
	for name, count := range map[string]int{first: 6, second: 3, third: 3} {
		node(t, name, nil)
		createPods(t, "limit", count, func(i int) *corev1.Pod { return onNode(podNamed(fmt.Sprintf("%s-%d", name, i)), name) })
		for i := range count {
			waitRuns(t, "limit", fmt.Sprintf("%s-%d", name, i))
		}
	}
	enforce(t, `
kind: TaintPolicy
metadata: {name: limit}
spec:
  taints: [{key: limit.example.com/*}]
  setters: [{subjects: [{kind: Group, name: "system:authenticated"}]}]
  limits: {maxAffectedPods: 5, window: 10m}
`)
	alice := tenant(t, "alice")
	write := func(who *person, options metav1.PatchOptions) error {
		_, err := who.CoreV1().Nodes().Patch(t.Context(), first, types.MergePatchType, patchOf(t, noExecute(key, "")), options)
		return err
	}
	becomes(t, "Tollgate knows all pods", func() error { // as a dry run: a write that is let in evicts
		err := write(alice, metav1.PatchOptions{DryRun: dryRun})
		if err == nil || !containsAll(err.Error(), []string{"6 pods"}) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	for name, options := range map[string]metav1.PatchOptions{"a write": {}, "a dry run": {DryRun: dryRun}} {
		t.Run(name+" above the limit is refused, with the count and the way past it", func(t *testing.T) {
			requireRefused(t, write(alice, options), policy.TooManyAffected, "TaintPolicy/limit", "5", "EvictionApproval", first, key)
		})
	}
	used := approvalsUsed(t)
	approval := objects(t, `
kind: EvictionApproval
metadata: {name: limit-first}
spec: {node: limit-first, taint: {key: limit.example.com/broken, effect: NoExecute}, maxPods: 6}
`)[0]
	require.NoError(t, admin(t).write(t, approval))
	t.Cleanup(func() {
		require.NoError(t, admin(t).resource(t, ofTollgate("EvictionApproval"), "").Delete(afterwards(t), "limit-first", metav1.DeleteOptions{}))
	})
	t.Run("an approval lets it pass", func(t *testing.T) {
		alice.heard.take()
		becomes(t, "the approval has reached Tollgate", func() error { return write(alice, metav1.PatchOptions{}) })
		requireWarned(t, alice.heard.take(), "evicts 6 pods in 1 namespace: 6 now")
		for i := range 6 {
			waitGone(t, "limit", fmt.Sprintf("%s-%d", first, i))
		}
	})
	t.Run("it is counted, and says so itself", func(t *testing.T) {
		eventually(t, "it is used", func(ctx context.Context) error {
			stored, err := admin(t).resource(t, ofTollgate("EvictionApproval"), "").Get(ctx, "limit-first", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if text := string(encode(t, stored.Object["status"])); !containsAll(text, []string{`"reason":"Used"`, `"evicted":6`}) {
				return fmt.Errorf("status %s", text)
			}
			return nil
		})
		becomes(t, "it is counted", func() error {
			if now := approvalsUsed(t); int(now) != int(used)+1 {
				return fmt.Errorf("%v are, and %v were", now, used)
			}
			return nil
		})
	})
	t.Run("what was approved does not count, all else within the window does, node by node", func(t *testing.T) {
		_, err := alice.CoreV1().Nodes().Patch(t.Context(), second, types.MergePatchType, patchOf(t, noExecute(key, "")), metav1.PatchOptions{})
		require.NoError(t, err)
		for i := range 3 {
			waitGone(t, "limit", fmt.Sprintf("%s-%d", second, i))
		}
		_, err = alice.CoreV1().Nodes().Patch(t.Context(), third, types.MergePatchType, patchOf(t, noExecute(key, "")), metav1.PatchOptions{})
		requireRefused(t, err, policy.TooManyAffected, "TaintPolicy/limit", "3 pods")
	})
	t.Run("and an approval is used once", func(t *testing.T) {
		_, err := alice.kubectl(t, "taint", "node", first, key+"-")
		require.NoError(t, err)
		createPods(t, "limit", 6, func(i int) *corev1.Pod { return onNode(podNamed(fmt.Sprintf("again-%d", i)), first) })
		becomes(t, "Tollgate knows all pods", func() error {
			err := write(alice, metav1.PatchOptions{DryRun: dryRun})
			if err == nil {
				return errStill
			}
			return nil
		})
		requireRefused(t, write(alice, metav1.PatchOptions{}), policy.TooManyAffected)
	})
}

// approvalsUsed returns how many approvals Tollgate has counted as used. There is no
// metric before the first.
func approvalsUsed(t *testing.T) float64 {
	t.Helper()
	used, err := metric(t.Context(), "tollgate_eviction_approvals_used_total")
	if err != nil {
		require.ErrorContains(t, err, "no metric")
	}
	return used
}
