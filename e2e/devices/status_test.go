package devices

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// kubectlWait starts a kubectl that waits until a rule has done, and returns a
// function that waits for it and says when it returned.
func kubectlWait(t *testing.T, rule string) func() time.Time {
	t.Helper()
	type result struct {
		at     time.Time
		output []byte
		err    error
	}
	returned := make(chan result, 1)
	go func() {
		output, err := install.Kubectl(t.Context(), shared.cp, "wait", "--for=condition=EvictionInProgress=false",
			"devicetaintrule/"+rule, "--timeout="+patience.String())
		returned <- result{time.Now(), output, err}
	}()
	return func() time.Time {
		t.Helper()
		r := <-returned
		require.NoError(t, r.err, "%s", r.output)
		return r.at
	}
}

// Not beside the others: a rule can be over 5 s after it was written, and pods have to come before that.
func TestKubectlWaitDoesNotReturnEarlyDE76(t *testing.T) {
	for attempt := 1; lateOnes(t) == 0; attempt++ {
		require.Less(t, attempt, 3, "this machine places no pod within 3 s")
	}
}

// lateOnes places pods while kubectl waits for a rule, and returns how many came before the rule could be
// over. Kubectl has to wait for these.
func lateOnes(t *testing.T) int {
	t.Helper()
	// What the scheduler has allocated before it saw the taint, and writes after. A rule settles for 5 s
	// before it can say that it is over: on a busy machine fewer pods come within these.
	const most, lasts = 6, 3 * time.Second
	s := newSite(t, shared)
	var devices []resourcev1.Device
	for i := range most {
		devices = append(devices, dra.Device(fmt.Sprintf("late-%d", i)))
	}
	s.publish(t, "pool", devices...)
	began := time.Now()
	rule := s.rule(t, "r", "pool", noExecute)
	wait := kubectlWait(t, rule.Name)
	// Nothing is to be evicted yet, and still it is not over.
	require.Contains(t, s.waitCondition(t, rule.Name, inProgress, "True "), "No pod needs to be evicted so far.")
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	placed := 0
	var inTime []string
	for placed == 0 || placed < most && time.Since(began) < lasts {
		name := fmt.Sprintf("late-%d", placed)
		s.place(t, use{pod: name, claim: name, pool: "pool", device: name})
		placed++
		// One that took longer to place may have come when the rule had settled.
		if time.Since(began) < lasts {
			inTime = append(inTime, name)
		}
		<-ticker.C
	}
	returned := wait()
	deleted := s.waitDeletions(t, placed)
	for _, name := range inTime {
		require.True(t, deleted[name].Before(returned), "%s left at %s, kubectl returned at %s", name, deleted[name], returned)
	}
	if len(inTime) > 0 {
		s.requireCompleted(t, s.waitCondition(t, rule.Name, inProgress, "False "), placed)
	}
	return len(inTime)
}

func TestKubectlWaitsForTolerationsToRunOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	s.publish(t, "pool", dra.Device("a"))
	s.place(t, use{pod: "a", claim: "a", pool: "pool", device: "a", tolerations: []resourcev1.DeviceToleration{dra.TolerateFor(key, 12)}})
	rule := s.rule(t, "r", "pool", noExecute)
	returned := kubectlWait(t, rule.Name)()
	require.True(t, s.waitDeletions(t, 1)["a"].Before(returned))
	require.GreaterOrEqual(t, returned.Sub(rule.Spec.Taint.TimeAdded.Time), 12*time.Second)
}

func TestPreviewG20(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	s.publish(t, "pool", dra.Device("a"), dra.Device("b"), dra.Device("c"))
	s.publish(t, "other", dra.Device("d"))
	// The one that tolerates for a while would leave too, the one that does for ever
	// would not. Two share a claim.
	pods := s.place(t,
		use{pod: "a", claim: "a", pool: "pool", device: "a"},
		use{pod: "b1", claim: "b", pool: "pool", device: "b", tolerations: []resourcev1.DeviceToleration{dra.TolerateFor(key, 40)}},
		use{pod: "b2", claim: "b", pool: "pool", device: "b"},
		use{pod: "c", claim: "c", pool: "pool", device: "c", tolerations: []resourcev1.DeviceToleration{dra.Tolerate(key)}},
		use{pod: "d", claim: "d", pool: "other", device: "d"},
	)
	s.waitForeseen(t, "pool", 3)
	rule := s.rule(t, "r", "pool", resourcev1.DeviceTaintEffectNone)
	const summary = "3 published devices selected. 3 allocated devices selected. 3 pods would be evicted in 1 namespace if the effect was NoExecute."
	require.Contains(t, s.waitCondition(t, rule.Name, inProgress, "False NoEffect"), summary)
	said := s.waitCondition(t, rule.Name, preview, "True PodsWouldBeEvicted")
	require.Equal(t, fmt.Sprintf("True PodsWouldBeEvicted: %s Pods: %[2]s/a, %[2]s/b1, %[2]s/b2.", summary, s.namespace), said)

	// It is kept up to date, at most once a minute.
	require.NoError(t, s.client.CoreV1().Pods(s.namespace).Delete(t.Context(), "a", metav1.DeleteOptions{}))
	const fewer = "True PodsWouldBeEvicted: 3 published devices selected. 2 allocated devices selected. 2 pods would be evicted"
	s.waitCondition(t, rule.Name, preview, fewer)
	require.Contains(t, s.waitCondition(t, rule.Name, inProgress, "False NoEffect"), summary, "which says once what it said")
	require.LessOrEqual(t, s.written(t, rule.Name), 3)
	delete(pods, "a")
	s.waitAlive(t, pods)
	require.Empty(t, s.deletions(t), "a preview deletes nothing")

	s.editRule(t, rule.Name, func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Effect = noExecute })
	s.waitCondition(t, rule.Name, inProgress, "True PodsPendingEviction")
	s.waitCondition(t, rule.Name, preview, "absent")
	delete(pods, "b1")
	delete(pods, "b2")
	s.waitAlive(t, pods)
	s.requireCompleted(t, s.waitCondition(t, rule.Name, inProgress, "False "), 2)
}

// written returns how often Tollgate wrote the status of a rule.
func (s *site) written(t *testing.T, rule string) int {
	t.Helper()
	events, err := s.plane.audit.Read(func(event *auditv1.Event) bool {
		return event.ObjectRef.Resource == "devicetaintrules" && event.ObjectRef.Name == rule && event.Verb == "patch"
	})
	require.NoError(t, err)
	return len(events)
}

func TestRuleIsDoneWhenItsPodsAreDeletedByHandDE74(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	s.publish(t, "pool", dra.Device("a"))
	s.place(t, use{pod: "a", claim: "a", pool: "pool", device: "a", tolerations: []resourcev1.DeviceToleration{dra.TolerateFor(key, 3600)}})
	rule := s.rule(t, "r", "pool", noExecute)
	s.waitCondition(t, rule.Name, inProgress, "True PodsPendingEviction: 1 pod needs to be evicted in 1 namespace.")
	require.NoError(t, s.client.CoreV1().Pods(s.namespace).Delete(t.Context(), "a", metav1.DeleteOptions{}))
	s.waitCondition(t, rule.Name, inProgress, "False NotStarted: ")
	require.Empty(t, s.deletions(t))
}

func TestFieldManagerOwnsOnlyItsConditions(t *testing.T) {
	t.Parallel()
	s := newSite(t, shared)
	rule := s.rule(t, "r", "pool", noExecute)
	s.waitCondition(t, rule.Name, inProgress, "False NotStarted")
	_, err := install.Kubectl(t.Context(), shared.cp, "patch", "devicetaintrule", rule.Name, "--subresource=status", "--type=json",
		`--patch=[{"op":"add","path":"/status/conditions/-","value":{"type":"example.com/Seen","status":"True","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}}]`)
	require.NoError(t, err)
	s.editRule(t, rule.Name, func(rule *resourcev1.DeviceTaintRule) {
		rule.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoSchedule
	})
	s.waitCondition(t, rule.Name, inProgress, "False OtherEffect")
	eventually(t, "the condition of somebody else", func(ctx context.Context) error {
		current, err := s.getRule(ctx, t, rule.Name)
		if err != nil {
			return err
		}
		for _, c := range current.Status.Conditions {
			if c.Type == "example.com/Seen" {
				return nil
			}
		}
		return errors.New("is gone")
	})
	current, err := s.getRule(t.Context(), t, rule.Name)
	require.NoError(t, err)
	var managers []string
	for _, entry := range current.ManagedFields {
		if entry.Subresource == "status" && entry.Operation == metav1.ManagedFieldsOperationApply {
			managers = append(managers, entry.Manager)
		}
	}
	require.Equal(t, []string{"tollgate"}, managers)
}
