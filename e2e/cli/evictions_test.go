package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestAPodThatIsDueLaterWaits(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfWaiting)
	s.create(t, podOfApp("later", "a", 600), podOfApp("sooner", "a", 300))
	s.waitPods(t, 2)
	none := s.does(t, "evictions -n NAMESPACE")
	require.Empty(t, none.out)
	require.Contains(t, none.notes, s.text("no pod has to leave in namespace NAMESPACE"))

	before := time.Now().Truncate(time.Second) // as times of taints are
	s.taint(t)
	after := time.Now()
	rows := s.waitStates(t, map[string]int{"Waiting": 2})
	for name, tolerated := range map[string]time.Duration{"later": 600 * time.Second, "sooner": 300 * time.Second} {
		// It counts from the end of the second in which the taint came.
		require.WithinRange(t, rows[name].Due, before.Add(tolerated), after.Add(tolerated+time.Second), name)
	}
	require.Equal(t, s.text("Node/NODE"), rows["later"].Taints[0].Source)
	require.Equal(t, "Tollgate", rows["later"].EvictedBy)
	require.Equal(t, "computed here", rows["later"].AccordingTo)
	t.Run("who leaves first comes first, in every namespace for a node", func(t *testing.T) {
		require.Equal(t, s.text("NAMESPACE/sooner\nNAMESPACE/later\n"), s.does(t, "evictions --node NODE -o name").out)
	})
	t.Run("the table says it in a line", func(t *testing.T) {
		table := s.does(t, "evictions -n NAMESPACE").out
		require.Regexp(t, s.text(`(?m)^NAMESPACE +sooner +in (5m(1s)?|4m\d+s) +Waiting +broken of node/NODE$`), table)
		require.NotContains(t, table, "\x1b", "there is no terminal")
	})
	t.Run("without the taint nobody has to", func(t *testing.T) {
		s.patchNode(t, `{"spec":{"taints":null}}`)
		s.waitStates(t, map[string]int{})
		s.waitPods(t, 2)
	})
}

func TestPausedAndProtectedPodsStay(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfKept)
	s.create(t,
		policy("paused", "podSelector: {matchLabels: {app: paused}}", "paused: true"),
		policy("safe", "podSelector: {matchLabels: {app: safe}}", "protect: {podSelector: {matchLabels: {app: safe}}}"),
		podOfApp("paused", "paused", 0), podOfApp("safe", "safe", 0), podOfApp("free", "free", 0))
	s.waitPods(t, 3)
	s.taint(t)
	rows := s.waitStates(t, map[string]int{"Paused": 1, "Protected": 1})
	s.waitPods(t, 2)
	require.Equal(t, s.text("EvictionPolicy/NAMESPACE-paused"), rows["paused"].Hold.By)
	require.Equal(t, s.text("spec of EvictionPolicy/NAMESPACE-paused"), rows["paused"].AccordingTo)
	require.Equal(t, "Protected", rows["safe"].Hold.Reason)
	notes := unwrapped(s.does(t, "evictions -n NAMESPACE").notes)
	require.Contains(t, notes, s.text("1 pod held by EvictionPolicy/NAMESPACE-paused: EvictionPolicy NAMESPACE-paused is paused. To let them go: kubectl tollgate resume policy NAMESPACE-paused"))
	require.Contains(t, notes, "They stay until the taint goes, or spec.protect is changed")

	// A pause that begins holds the pods that come.
	require.Contains(t, s.does(t, "pause policy NAMESPACE-paused").out, s.text("/NAMESPACE-paused paused already\n"))
	s.create(t, policy("later", "podSelector: {matchLabels: {app: later}}"))
	require.Contains(t, s.does(t, "pause policy NAMESPACE-later").out, s.text("/NAMESPACE-later paused\n"))
	eventually(t, "the pause is in force", func(ctx context.Context) error {
		var found v1alpha1.EvictionPolicy
		if err := s.client.Get(ctx, client.ObjectKey{Name: s.text("NAMESPACE-later")}, &found); err != nil {
			return err
		}
		if !found.Spec.Paused || found.Status.ObservedGeneration < found.Generation {
			return fmt.Errorf("generation %d is not evaluated", found.Generation)
		}
		return nil
	})
	s.create(t, podOfApp("later", "later", 0))
	s.waitStates(t, map[string]int{"Paused": 2, "Protected": 1})
	t.Run("they leave when evictions of the policy are resumed", func(t *testing.T) {
		tried := s.does(t, "resume policy NAMESPACE-paused --dry-run=server")
		require.Contains(t, unwrapped(tried.notes), s.text("EvictionPolicy NAMESPACE-paused pauses 1 pod; without the pause: 1 Due"))
		require.Contains(t, s.does(t, "resume policy NAMESPACE-paused --yes").out, "resumed\n")
		s.waitPods(t, 2)
		s.waitStates(t, map[string]int{"Paused": 1, "Protected": 1})
		require.Contains(t, s.does(t, "resume policy NAMESPACE-later --yes").out, "resumed\n")
		s.waitPods(t, 1)
	})
}

func TestABudgetBlocks(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfBlocked)
	s.create(t, policy("gentle", "method: Evict"), podOfApp("guarded", "web", 0))
	s.waitPods(t, 1)
	s.create(t, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {namespace: NAMESPACE, name: web}\nspec: {minAvailable: 1, selector: {matchLabels: {app: web}}}")
	s.taint(t)
	rows := s.waitStates(t, map[string]int{"Blocked": 1})
	require.Equal(t, s.text("PodDisruptionBudget/NAMESPACE/web"), rows["guarded"].Hold.By)
	require.Equal(t, s.text("NAMESPACE-gentle"), rows["guarded"].EvictionPolicy)
	require.Equal(t, s.text("status of PodDisruptionBudget/NAMESPACE/web"), rows["guarded"].AccordingTo)
	require.Contains(t, s.does(t, "evictions -n NAMESPACE").out, "broken of node/"+s.node+"; budget web\n")

	require.NoError(t, s.pods.PolicyV1().PodDisruptionBudgets(s.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	s.waitPods(t, 0)
	s.waitStates(t, map[string]int{})
}

func TestWhatABreakerHoldsIsLetGoByApprovals(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfBreaker)
	s.create(t, policy("limited", "breaker: {maxPods: 2, window: 10m}"))
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		s.create(t, podOfApp(name, "web", 0))
	}
	s.waitPods(t, 6)
	timeline := filepath.Join(t.TempDir(), "timeline.txt")
	require.NoError(t, os.WriteFile(timeline, []byte(s.text("0s node NODE KEY:NoExecute\n")), 0o600))
	var played struct {
		Left []struct{ Namespace string }
		Held []struct{ Namespace, Reason, By string }
	}
	require.NoError(t, json.Unmarshal([]byte(s.does(t, "simulate --timeline "+timeline+" --for 5m -o json").out), &played))
	s.taint(t)
	rows := s.waitStates(t, map[string]int{"Held": 4})
	t.Run("as a simulation before the taint says", func(t *testing.T) {
		require.Len(t, slices.DeleteFunc(played.Left, func(pod struct{ Namespace string }) bool { return pod.Namespace != s.namespace }), 2)
		held := slices.DeleteFunc(played.Held, func(pod struct{ Namespace, Reason, By string }) bool { return pod.Namespace != s.namespace })
		require.Len(t, held, 4)
		require.Equal(t, "BreakerTripped", held[0].Reason)
		require.Equal(t, s.text("EvictionPolicy/NAMESPACE-limited"), held[0].By)
	})
	for _, r := range rows {
		require.Equal(t, "BreakerTripped", r.Hold.Reason)
		require.Equal(t, s.text("EvictionPolicy/NAMESPACE-limited"), r.Hold.By)
		require.Equal(t, s.text("status of EvictionPolicy/NAMESPACE-limited"), r.AccordingTo)
	}
	require.Contains(t, unwrapped(s.does(t, "evictions -n NAMESPACE").notes), s.text("To let them go: kubectl tollgate release NAMESPACE-limited"))

	t.Run("without an answer nothing is approved", func(t *testing.T) {
		refused, err := s.run(t.Context(), "approve node NODE")
		require.NoError(t, err)
		require.Equal(t, 1, refused.code)
		require.Contains(t, refused.notes, "give --yes")
		require.Contains(t, refused.notes, s.text("Taint KEY of node NODE: 4 pods held"))
		require.Contains(t, s.does(t, "approve node NODE --dry-run=server").out, "created (server dry run)")
		require.Empty(t, s.approvals(t))
	})
	t.Run("the words of admission are shown", func(t *testing.T) {
		refused, err := s.run(t.Context(), "approve rule No_Name --taint KEY --pods 1 --yes")
		require.NoError(t, err)
		require.Equal(t, 1, refused.code)
		require.Contains(t, refused.notes, "admission webhook")
		require.Contains(t, refused.notes, "spec.deviceTaintRule")
	})
	t.Run("as many go as are approved for a node", func(t *testing.T) {
		approved := s.does(t, "approve node NODE --pods 1 --yes")
		require.Contains(t, approved.out, s.text("evictionapproval.tollgate.dev/NODE-broken-"))
		s.waitPods(t, 3)
		s.waitStates(t, map[string]int{"Held": 3})
		specs := s.approvals(t)
		require.Len(t, specs, 1)
		require.EqualValues(t, 1, specs[0].MaxPods)
		require.Equal(t, s.node, specs[0].Node)
	})
	t.Run("and as many as a policy is to release", func(t *testing.T) {
		released := s.does(t, "release NAMESPACE-limited --pods 1 --yes")
		require.Contains(t, released.notes, "3 pods held")
		require.Contains(t, unwrapped(released.notes), "up to 1 pod may go")
		s.waitPods(t, 2)
		s.waitStates(t, map[string]int{"Held": 2})
	})
	t.Run("and all that are held for a policy", func(t *testing.T) {
		approved := s.does(t, "approve policy NAMESPACE-limited --yes --for 10m")
		require.Contains(t, approved.notes, "2 pods held")
		s.waitPods(t, 0)
		s.waitStates(t, map[string]int{})
	})
}

// approvals returns the specs of the approvals for the site's node.
func (s *evictionSite) approvals(t *testing.T) []v1alpha1.EvictionApprovalSpec {
	t.Helper()
	var list v1alpha1.EvictionApprovalList
	require.NoError(t, s.client.List(t.Context(), &list))
	var specs []v1alpha1.EvictionApprovalSpec
	for i := range list.Items {
		if list.Items[i].Spec.Node == s.node {
			specs = append(specs, list.Items[i].Spec)
		}
	}
	return specs
}

func TestFollowsUntilNobodyHasToLeave(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfFollowed)
	s.create(t, policy("safe", "podSelector: {matchLabels: {app: safe}}", "protect: {podSelector: {matchLabels: {app: safe}}}"),
		podOfApp("now", "a", 0), podOfApp("soon", "a", 30), podOfApp("safe", "safe", 0))
	s.waitPods(t, 3)
	s.taint(t)
	got, err := s.run(t.Context(), "evictions -n NAMESPACE --until-done --timeout 90s")
	require.NoError(t, err)
	require.Zero(t, got.code, got.notes)
	t.Log("\n" + got.out + got.notes)
	require.Regexp(t, `(?m)^TIME +NAMESPACE +POD +WHEN +STATE +REASON$`, got.out)
	waiting, gone := strings.Index(got.out, "Waiting"), strings.LastIndex(got.out, "Gone")
	require.Positive(t, waiting, got.out)
	require.Greater(t, gone, waiting, "first it waits, then it is gone")
	require.Regexp(t, s.text(`(?m)^\d\d:\d\d:\d\d +NAMESPACE +soon +- +Gone +broken of node/NODE$`), got.out)
	require.Contains(t, got.out, "Protected")
	s.waitPods(t, 1)
}

func TestGivesUpWhenItIsToldTo(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfTimeout)
	s.create(t, policy("paused", "paused: true"), podOfApp("paused", "a", 0))
	s.waitPods(t, 1)
	s.taint(t)
	s.waitStates(t, map[string]int{"Paused": 1})
	got, err := s.run(t.Context(), "evictions -n NAMESPACE --until-done --timeout 20s")
	require.NoError(t, err)
	require.Equal(t, 2, got.code)
	require.Contains(t, got.notes, "after 20s there are pods that have to leave: 1 Paused")

	t.Run("and when it is interrupted that is no error", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got := s.interrupt(ctx, t, "evictions -n NAMESPACE -w -o json", `"state":"Paused"`)
		require.Zero(t, got.code)
	})
}
