package attack

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

const (
	// overload is how many times as many reviews come as can be judged.
	overload = 10
	// costlyKey is that of a taint under policies whose expressions cost almost as much as they may,
	// and costlyPolicies is how many there are.
	costlyKey      = "overload.example.com/x"
	costlyPolicies = 3
	// closed is how many reviews are sent at a time to find out how many can be judged.
	closed = 4
)

// outcome is what became of reviews.
type outcome struct {
	mu sync.Mutex
	// sent are all, and judged those with a verdict in time.
	sent, judged int
	// shed are those that were told that others wait.
	shed measurement
	// late are those that were judged too late.
	late int
}

func (o *outcome) note(took time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent++
	switch {
	case err == nil:
		o.judged++
	case strings.Contains(err.Error(), "wait for costly expressions"):
		o.shed.note(took, true, nil)
	default:
		o.late++
	}
}

// String says what became of them.
func (o *outcome) String() string {
	return fmt.Sprintf("%d sent, %d judged, %d too late, shed: %v", o.sent, o.judged, o.late, &o.shed)
}

// capacity returns how many costly reviews are judged in a second, if no more are sent than that.
func capacity(ctx context.Context, c *caller, lasts time.Duration) float64 {
	var (
		all     outcome
		running sync.WaitGroup
	)
	began := time.Now()
	for range closed {
		running.Go(func() {
			for ctx.Err() == nil && time.Since(began) < lasts {
				start := time.Now()
				_, err := c.ask(ctx, review(ordinary, "default", costlyKey))
				all.note(time.Since(start), err)
			}
		})
	}
	running.Wait()
	return float64(all.judged) / time.Since(began).Seconds()
}

// costly puts the policies in force for the length of the test.
func costly(t *testing.T, c *caller) {
	t.Helper()
	objects, err := dynamic.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	policies := objects.Resource(schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: "tolerationpolicies"})
	for i := range costlyPolicies {
		name := fmt.Sprintf("costly-%d", i)
		_, err := policies.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tollgate.dev/v1alpha1", "kind": "TolerationPolicy", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"taints": []any{map[string]any{"key": costlyKey}},
				"grants": []any{map[string]any{"expression": fmt.Sprintf("toleration.key == '' || !lists.range(4000).all(i, i >= %d - %d)", i, i)}},
			},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, policies.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
		})
	}
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		allowed, err := c.ask(ctx, review(ordinary, "default", costlyKey))
		return err == nil && !allowed, nil
	}))
}

// More reviews that cost as much as they may come than processors can judge. Cheap ones are judged
// as ever, as many costly ones as without the overload, and the others are told at once.
func TestA14InAnOverloadCheapReviewsAreJudgedAndTheRestIsShed(t *testing.T) {
	requireMeasured(t)
	lasts, _ := duration(t)
	roots := caBundle(t)
	user, attacker := newCaller(roots, "127.0.0.1"), newCaller(roots, attackerAddress)
	costly(t, user)
	can := capacity(t.Context(), attacker, shortly)

	var over outcome
	cheap := &measurement{}
	var running sync.WaitGroup
	running.Go(func() {
		every(t.Context(), lasts, perSecond, func() {
			running.Go(func() {
				start := time.Now()
				allowed, err := user.ask(t.Context(), review(ordinary, "default", ""))
				cheap.note(time.Since(start), allowed, err)
			})
		})
	})
	every(t.Context(), lasts, int(overload*can), func() {
		running.Go(func() {
			start := time.Now()
			_, err := attacker.ask(t.Context(), review(ordinary, "default", costlyKey))
			over.note(time.Since(start), err)
		})
	})
	running.Wait()
	ended := time.Now()
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), time.Millisecond, calmed, true, func(ctx context.Context) (bool, error) {
		// Others may have the processors by now.
		return capacity(ctx, attacker, time.Second) >= can/2, nil
	}))

	t.Logf("%.0f costly reviews a second can be judged", can)
	share := float64(over.judged) / lasts.Seconds() / can
	t.Logf("%.0f a second for %s: %v; judged are %.0f %% of what can be", overload*can, lasts, &over, 100*share)
	t.Logf("cheap ones meanwhile: %v", cheap)
	require.Empty(t, cheap.failures())
	require.Greater(t, share, 0.5, "the attacker has half of the processors")
	require.Less(t, over.late, over.judged)
	t.Logf("half of that again %s after it", time.Since(ended).Round(time.Millisecond))
}
