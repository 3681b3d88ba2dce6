package rulestatus

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestPendingMessage(t *testing.T) {
	t.Parallel()
	for message, tally := range map[string]tally{
		"1 pod needs to be evicted in 1 namespace.":               {pods: 1, namespaces: 1},
		"2 pods need to be evicted in 1 namespace.":               {pods: 2, namespaces: 1},
		"1000 pods need to be evicted in 7 different namespaces.": {pods: 1000, namespaces: 7},
	} {
		t.Run("DE-65 "+message, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, message, pendingMessage(&tally))
		})
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for message, tally := range map[string]tally{
		"1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute.":               {published: 1, allocated: 1, pods: 1, namespaces: 1},
		"0 published devices selected. 0 allocated devices selected. 0 pods would be evicted in 0 different namespaces if the effect was NoExecute.": {},
		"3 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 2 different namespaces if the effect was NoExecute.": {published: 3, allocated: 2, pods: 2, namespaces: 2},
		"1000 published devices selected. 1000 allocated devices selected. 1000 pods would be evicted in 1 namespace if the effect was NoExecute.":   {published: 1000, allocated: 1000, pods: 1000, namespaces: 1},
	} {
		t.Run("DE-69 "+message, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, message, summary(&tally))
		})
	}
}

func TestPreviewMessage(t *testing.T) {
	t.Parallel()
	named := func(pods int, first ...string) tally {
		counts := tally{published: 9, allocated: 9, pods: pods, namespaces: 1}
		for _, name := range first {
			counts.first = append(counts.first, "shop/"+name)
		}
		return counts
	}
	for sentence, c := range map[string]struct {
		tally tally
		tail  string
	}{
		"with no pods, none is named":                  {named(0), " 0 pods would be evicted in 1 namespace if the effect was NoExecute."},
		"one pod is named":                             {named(1, "a"), " if the effect was NoExecute. Pods: shop/a."},
		"five pods are named":                          {named(5, "a", "b", "c", "d", "e"), " Pods: shop/a, shop/b, shop/c, shop/d, shop/e."},
		"of more than five, the first five are named":  {named(6, "a", "b", "c", "d", "e"), " Pods: shop/a, shop/b, shop/c, shop/d, shop/e and 1 more."},
		"of very many, it says how many are not named": {named(1005, "a", "b", "c", "d", "e"), ", shop/e and 1000 more."},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			message := previewMessage(&c.tally)
			require.True(t, strings.HasPrefix(message, summary(&c.tally)), message)
			require.True(t, strings.HasSuffix(message, c.tail), message)
		})
	}
}

func TestPreviewIsBounded(t *testing.T) {
	t.Parallel()
	impact := tracker.Impact{}
	for range 10_000 {
		impact.Pods = append(impact.Pods, tracker.Situation{Pod: tracker.Pod{Key: tracker.Key{
			Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253),
		}}})
	}
	counts := tallyOf(&impact, func(tracker.Situation) bool { return true }, nil)
	require.Equal(t, 10_000, counts.pods)
	require.Less(t, len(previewMessage(&counts)), 2000)
}

func TestEvictedCount(t *testing.T) {
	t.Parallel()
	t.Run("DE-68 it is appended to a message, after a space if there is one", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, withEvicted("", 0))
		require.Equal(t, "Something.", withEvicted("Something.", 0))
		require.Equal(t, "1 pod evicted so far.", withEvicted("", 1))
		require.Equal(t, "Something. 2 pods evicted so far.", withEvicted("Something.", 2))
	})
	t.Run("DE-73 what is appended is read back", func(t *testing.T) {
		t.Parallel()
		for _, message := range []string{"", settlingMessage, otherMessage, "10 pods need to be evicted in 2 different namespaces.", seePreview} {
			for _, n := range []int{0, 1, 2, 9, 10, 1000, 999_999_999} {
				base, evicted := withoutEvicted(withEvicted(message, n))
				require.Equal(t, message, base)
				require.Equal(t, n, evicted)
			}
		}
	})

	for sentence, c := range map[string]struct {
		message string
		evicted int
	}{
		"DE-73 the count of Kubernetes' own controller goes on": {"1 pod needs to be evicted in 1 namespace. 12 pods evicted since starting the controller.", 12},
		"a count that is not at the end is none":                {"12 pods evicted so far. Or not.", 0},
		"a count that is part of a word is none":                {"x12 pods evicted so far.", 0},
		"a negative count is none":                              {"-12 pods evicted so far.", 0},
		"a count that starts with zero is none":                 {"012 pods evicted so far.", 0},
		"a count of ten digits is none":                         {"1234567890 pods evicted so far.", 0},
		"a count larger than any number is none":                {"99999999999999999999 pods evicted so far.", 0},
		"a count on a line of its own is none":                  {"Hello\n12 pods evicted so far.", 0},
		"a count that is followed by a line end is none":        {"12 pods evicted so far.\n", 0},
		"what needs to be evicted is not what was":              {"12 pods need to be evicted in 1 namespace.", 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			base, evicted := withoutEvicted(c.message)
			require.Equal(t, c.evicted, evicted)
			if c.evicted == 0 {
				require.Equal(t, c.message, base)
			}
		})
	}
}
