package informer

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestWindows(t *testing.T) {
	t.Parallel()

	t.Run("equal windows become one and others stay as they are", func(t *testing.T) {
		t.Parallel()
		w := newWindows()
		all := func() []*tracker.Window {
			return []*tracker.Window{
				{{Key: "a", Seconds: 1}},
				{{Key: "a", Seconds: 2}},
				{{Key: "b", Seconds: 1}},
				{{Key: "a", Seconds: 1}, {Key: "b", Seconds: 1}},
				{{Key: "ab", Seconds: 1}},
			}
		}
		first := all()
		for i, each := range all() {
			require.Same(t, first[i], w.one(first[i]))
			require.Same(t, first[i], w.one(each))
			require.Equal(t, each, first[i])
		}
		require.Nil(t, w.one(nil))
		require.Len(t, w.known, len(first))
	})

	t.Run("F14 neither many nor long windows are held on to", func(t *testing.T) {
		t.Parallel()
		w := newWindows()
		for i := range 2*mostLists + 1 {
			w.one(&tracker.Window{{Key: strconv.Itoa(i), Seconds: 1}})
		}
		require.LessOrEqual(t, len(w.known), mostLists)
		clear(w.known)
		long := &tracker.Window{{Key: strings.Repeat("x", longList), Seconds: 1}}
		require.Same(t, long, w.one(long))
		require.Empty(t, w.known)
	})
}
