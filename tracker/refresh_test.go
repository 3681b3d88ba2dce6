package tracker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestRefresh(t *testing.T) {
	t.Parallel()

	t.Run("NE-14 an answer does not bring back a node that is deleted or was never known", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		require.Empty(t, tr.RefreshNode(node("n", 2, taint("gpu")), "", start))
		require.Empty(t, tr.RefreshNode(node("m", 2, taint("gpu")), "", start))
		tr.SetNode(node("n", 2, taint("gpu")), start)
		tr.DeleteNode("n", "n-uid")
		require.Empty(t, tr.RefreshNode(node("n", 3, taint("gpu")), "", start))
		require.Empty(t, tr.Tainted())
		uid, _ := tr.Taints("n")
		require.Empty(t, uid)
	})

	t.Run("an answer about a node says nothing about one created anew under its name", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		again := node("n", 3, taint("disk"))
		again.UID = "another"
		tr.SetNode(again, start)
		require.Empty(t, tr.RefreshNode(node("n", 4), "", start))
		uid, taints := tr.Taints("n")
		require.Equal(t, again.UID, uid)
		require.Equal(t, []string{"disk:NoExecute@12:00:00"}, texts(taints))
	})

	t.Run("I08 an answer about a known node counts as what the watch says does, unless it is older", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetPod(pod("a", "n", 1))
		tr.SetNode(node("n", 5), start)
		require.Empty(t, tr.RefreshNode(node("n", 4, taint("gpu")), "", start))
		require.Equal(t, keysOf("a"), tr.RefreshNode(node("n", 6, bare("gpu")), "", start.Add(time.Minute)))
		_, taints := tr.Taints("n")
		require.Equal(t, []string{"gpu:NoExecute@12:01:00"}, texts(taints))
		require.True(t, taints[0].Witnessed)
	})

	t.Run("an answer does not bring back a pod that is deleted, nor one created anew", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("n", 1, taint("gpu")), start)
		tr.SetPod(pod("a", "n", 1))
		tr.DeletePod(key("a"))
		again := pod("a", "n", 2)
		again.UID = "another"
		tr.SetPod(again)
		require.Empty(t, tr.RefreshPod(pod("a", "n", 3)))
		require.Equal(t, []tracker.Key{again.Key}, tr.PodsOn("n"))
	})

	t.Run("I08 an answer about a known pod counts as what the watch says does, unless it is older", func(t *testing.T) {
		t.Parallel()
		tr := tracker.New()
		tr.SetNode(node("n", 1, taint("gpu")), start)
		tr.SetPod(pod("a", "n", 5))
		tolerant := corev1.Toleration{Operator: corev1.TolerationOpExists}
		require.Empty(t, tr.RefreshPod(pod("a", "n", 4, tolerant)))
		require.Equal(t, keysOf("a"), tr.RefreshPod(pod("a", "n", 6, tolerant)))
		situation, _ := tr.Lookup(key("a"))
		got := situation.Pod
		require.Len(t, got.Tolerations, 1)
	})
}

// TestAnswerFromRestoredStorage has the storage of the API server restored from a backup:
// versions begin anew from the one of the backup.
func TestAnswerFromRestoredStorage(t *testing.T) {
	t.Parallel()
	tainted := node("n", 200, taint("gpu"))
	for _, test := range []struct {
		name string
		// before is the version that was known when the request was made.
		before string
		taken  bool
	}{
		{"an answer that is older than what was known before the request is taken", "200", true},
		{"an answer that the watch has overtaken is not", "150", false},
		{"an answer to a request of which that is not known is not", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tr := tracker.New()
			tr.SetNode(tainted, start)
			tr.SetPod(pod("a", "n", 1))
			changed := tr.RefreshNode(node("n", 160), test.before, start)
			_, taints := tr.Taints("n")
			require.Equal(t, test.taken, len(taints) == 0)
			require.Equal(t, test.taken, len(changed) == 1)
			require.Equal(t, map[bool]string{true: "160", false: "200"}[test.taken], tr.VersionOf(tracker.Source{Kind: tracker.SourceNode, Name: "n"}))
		})
	}
}
