package tightening

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

const (
	defaultPairs = 1_000
	// As storing a pod costs far more than a dry run does, pairs share one.
	updatesPerPod = 20
	// One pod of so many has what only an older API server stored.
	agedEvery = 8
	workers   = 4
)

// verdict is what a judge finds wrong with an update: kinds and fields, sorted.
// There is none when the update is allowed.
type verdict []string

func verdictOf(errs field.ErrorList) verdict {
	var v verdict
	for _, err := range errs {
		v = append(v, string(err.Type)+" "+err.Field)
	}
	slices.Sort(v)
	return v
}

// verdictOfServer reads the verdict from the API server's answer. An answer that is
// not about fields is an error.
func verdictOfServer(answer error) (verdict, error) {
	if answer == nil {
		return nil, nil
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(answer) || !errors.As(answer, &status) || status.Status().Details == nil {
		return nil, answer
	}
	var v verdict
	for _, cause := range status.Status().Details.Causes {
		v = append(v, string(cause.Type)+" "+cause.Field)
	}
	slices.Sort(v)
	return v, nil
}

func numberFrom(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	value, ok := os.LookupEnv(variable)
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(value, 10, 64)
	require.NoError(t, err, variable)
	return n
}

// tally counts what workers find.
type tally struct {
	mu               sync.Mutex
	allowed, refused int
	disagreements    []string
}

func (c *tally) add(old, pod *corev1.Pod, want, got verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(want) == 0 {
		c.allowed++
	} else {
		c.refused++
	}
	if !slices.Equal(want, got) {
		c.disagreements = append(c.disagreements, fmt.Sprintf(
			"the API server finds %v, we find %v\nold:\n%s\nnew:\n%s", want, got, asYAML(old), asYAML(pod)))
	}
}

func asYAML(pod *corev1.Pod) string {
	content, err := yaml.Marshal(pod.Spec)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

func TestUpdatesGetTheVerdictOfTheAPIServer(t *testing.T) {
	pairs := int(numberFrom(t, "TOLLGATE_TIGHTENING_PAIRS", defaultPairs))
	seed := numberFrom(t, "TOLLGATE_TIGHTENING_SEED", rand.Uint64())
	t.Logf("%d pairs, TOLLGATE_TIGHTENING_SEED=%d", pairs, seed)
	pods := clientOf(t).CoreV1().Pods(namespaceOf(t))
	etcd := etcdClient(t)

	var counts tally
	var group sync.WaitGroup
	failures := make([]error, workers)
	stored := (pairs + updatesPerPod - 1) / updatesPerPod
	for w := range workers {
		group.Go(func() {
			for i := w; i < stored && failures[w] == nil; i += workers {
				// Each pod has randomness of its own, so that workers do not mix.
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				failures[w] = judge(t.Context(), r, pods, etcd, i%agedEvery == 0, min(updatesPerPod, pairs-i*updatesPerPod), &counts)
			}
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(failures...), "seed %d", seed)
	disagreed := len(counts.disagreements)
	for _, disagreement := range counts.disagreements[:min(3, disagreed)] {
		t.Log(disagreement)
	}
	require.Zero(t, disagreed, "of %d pairs, seed %d", pairs, seed)
	require.Equal(t, pairs, counts.allowed+counts.refused)
	t.Logf("%d updates of %d pods judged alike: %d allowed, %d refused", pairs, stored, counts.allowed, counts.refused)
	if pairs >= defaultPairs {
		require.Greater(t, counts.allowed, pairs*3/10, "too few are allowed to tell much, seed %d", seed)
		require.Greater(t, counts.refused, pairs*3/10, "too few are refused to tell much, seed %d", seed)
	}
}

// judge stores a pod and compares the verdicts on n updates of it.
func judge(
	ctx context.Context, r *rand.Rand, pods typedcorev1.PodInterface, etcd *clientv3.Client, aged bool, n int, counts *tally,
) error {
	old, err := storedPod(ctx, r, pods, etcd, aged)
	if err != nil {
		return err
	}
	for range n {
		pod := changePod(r, old)
		want, err := askServer(ctx, pods, pod)
		if err != nil {
			return fmt.Errorf("update pod %s: %w", asYAML(pod), err)
		}
		counts.add(old, pod, want, verdictOf(validation.ValidatePodUpdate(&pod.Spec, &old.Spec)))
	}
	return nil
}

// storedPod returns a pod as the API server has it.
func storedPod(
	ctx context.Context, r *rand.Rand, pods typedcorev1.PodInterface, etcd *clientv3.Client, aged bool,
) (*corev1.Pod, error) {
	pod, err := pods.Create(ctx, generatePod(r), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create pod: %w", err)
	}
	if aged {
		addOldTerm(r, pod)
		if err := store(ctx, etcd, pod); err != nil {
			return nil, err
		}
	}
	stored, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get pod: %w", err)
	}
	if !equality.Semantic.DeepEqual(stored.Spec, pod.Spec) {
		return nil, fmt.Errorf("the API server has\n%s\nwhere this was stored\n%s", asYAML(stored), asYAML(pod))
	}
	return stored, nil
}

// askServer returns the verdict of the API server on an update, which does not happen.
func askServer(ctx context.Context, pods typedcorev1.PodInterface, pod *corev1.Pod) (verdict, error) {
	unconditional := pod.DeepCopy()
	unconditional.ResourceVersion = ""
	_, err := pods.Update(ctx, unconditional, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return verdictOfServer(err)
}

func TestSD01CreationsGetTheVerdictOfTheAPIServer(t *testing.T) {
	seed := numberFrom(t, "TOLLGATE_TIGHTENING_SEED", rand.Uint64())
	t.Logf("TOLLGATE_TIGHTENING_SEED=%d", seed)
	pods := clientOf(t).CoreV1().Pods(namespaceOf(t))
	r := rand.New(rand.NewPCG(seed, 0))
	allowed, refused := 0, 0
	for range 200 {
		pod := changePod(r, generatePod(r))
		// An admission plugin sets the priority and refuses others; a scheduling group
		// would have to exist.
		pod.Spec.Priority, pod.Spec.SchedulingGroup = nil, nil
		if r.IntN(4) == 0 {
			pod.Spec.NodeName = "node-1"
		}
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		want, err := verdictOfServer(err)
		require.NoError(t, err, asYAML(pod))
		require.Equal(t, want, verdictOf(validation.ValidatePodCreate(&pod.Spec)), asYAML(pod))
		if len(want) == 0 {
			allowed++
		} else {
			refused++
		}
	}
	t.Logf("%d allowed, %d refused", allowed, refused)
	require.NotZero(t, allowed)
	require.NotZero(t, refused)
}

func TestSD03APodIsHeldByItsGate(t *testing.T) {
	pods := clientOf(t).CoreV1().Pods(namespaceOf(t))
	pod := generatePod(rand.New(rand.NewPCG(1, 2)))
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/hold"}}
	pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Len(t, pod.Status.Conditions, 1)
	condition := pod.Status.Conditions[0]
	require.Equal(t, corev1.PodScheduled, condition.Type)
	require.Equal(t, corev1.ConditionFalse, condition.Status)
	require.Equal(t, corev1.PodReasonSchedulingGated, condition.Reason)
	require.Equal(t, "Scheduling is blocked due to non-empty scheduling gates", condition.Message)

	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}}
	require.Error(t, pods.Bind(t.Context(), binding, metav1.CreateOptions{}), "a pod that is held was bound")
}
