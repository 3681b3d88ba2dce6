package informer

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestWords(t *testing.T) {
	t.Parallel()

	t.Run("equal strings become one", func(t *testing.T) {
		t.Parallel()
		w := newWords()
		first, second := strings.Clone("gpu.example.com"), strings.Clone("gpu.example.com")
		require.Equal(t, first, w.one(first))
		require.Same(t, unsafe.StringData(first), unsafe.StringData(w.one(second)))
		require.Empty(t, w.one(""))
	})

	t.Run("F14 neither many nor long strings are held on to", func(t *testing.T) {
		t.Parallel()
		w := newWords()
		long := strings.Repeat("x", longWord+1)
		require.Equal(t, long, w.one(long))
		require.Empty(t, w.known)
		for i := range 2*mostWords + 1 {
			require.Equal(t, strconv.Itoa(i), w.one(strconv.Itoa(i)))
		}
		require.LessOrEqual(t, len(w.known), mostWords)
	})
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	origin := func(account, owner string, labels ...string) *tracker.Origin {
		o := &tracker.Origin{ServiceAccount: account, OwnerKind: owner}
		for i := 0; i < len(labels); i += 2 {
			o.Labels = append(o.Labels, tracker.Label{Key: labels[i], Value: labels[i+1]})
		}
		return o
	}

	t.Run("equal origins become one and others stay as they are", func(t *testing.T) {
		t.Parallel()
		o := newOrigins()
		all := func() []*tracker.Origin {
			return []*tracker.Origin{
				origin("", ""), origin("a", ""), origin("", "a"), origin("a", "b"), origin("ab", ""),
				origin("a", "b", "k", "v"), origin("a", "b", "k", ""), origin("a", "b", "", "kv"), origin("a", "b", "k", "v", "l", "w"),
			}
		}
		first := all()
		for i, each := range all() {
			require.Same(t, first[i], o.one(first[i], "p"))
			require.Same(t, first[i], o.one(each, "p"))
			require.Equal(t, each, first[i])
		}
		require.Len(t, o.known, len(first))
	})

	t.Run("pods of two owners or priorities have two origins", func(t *testing.T) {
		t.Parallel()
		o := newOrigins()
		for _, each := range []*tracker.Origin{{OwnerUID: "1"}, {OwnerUID: "2"}, {PriorityClassName: "1"}, {OwnerUID: "1", PriorityClassName: "2"}} {
			require.Same(t, each, o.one(each, "p"))
			require.Same(t, each, o.one(new(*each), "p"))
		}
	})

	t.Run("a label that repeats the name of the pod shares its memory", func(t *testing.T) {
		t.Parallel()
		o, name := newOrigins(), strings.Clone("web-0")
		kept := o.one(origin("", "StatefulSet", "pod-name", strings.Clone("web-0")), name)
		require.Same(t, unsafe.StringData(name), unsafe.StringData(kept.Labels[0].Value))
		require.NotContains(t, o.words.known, name)
	})

	t.Run("F14 neither many nor long origins are held on to", func(t *testing.T) {
		t.Parallel()
		o := newOrigins()
		for i := range 2*mostLists + 1 {
			o.one(origin("a", "b", "k", strconv.Itoa(i)), "p")
		}
		require.LessOrEqual(t, len(o.known), mostLists)
		clear(o.known)
		long := origin(strings.Repeat("x", longList), "")
		require.Same(t, long, o.one(long, "p"))
		require.Empty(t, o.known)
	})
}

func TestLists(t *testing.T) {
	t.Parallel()
	seconds := func(s int64) *int64 { return &s }

	t.Run("equal lists become one and others stay as they are", func(t *testing.T) {
		t.Parallel()
		l := newLists(appendToleration)
		lists := [][]corev1.Toleration{
			{{Key: "a", Operator: corev1.TolerationOpExists}},
			{{Key: "a"}},
			{{Key: "a", Value: "b"}},
			{{Key: "ab"}},
			{{Value: "ab"}},
			{{Key: "a", Effect: corev1.TaintEffectNoExecute}},
			{{Key: "a", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds(0)}},
			{{Key: "a", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds(-1)}},
			{{Key: "a", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds(1 << 62)}},
			{{Key: "a"}, {Key: "b"}},
			{{Key: "b"}, {Key: "a"}},
			{{}},
			{{}, {}},
		}
		for _, list := range lists {
			require.Same(t, &list[0], &l.one(list)[0])
		}
		for _, list := range lists {
			again := make([]corev1.Toleration, 0, len(list))
			for i := range list {
				again = append(again, *list[i].DeepCopy())
			}
			require.Equal(t, list, again)
			require.Same(t, &list[0], &l.one(again)[0])
		}
		require.Nil(t, l.one([]corev1.Toleration{}))
	})

	t.Run("tolerations of devices differ by all they hold", func(t *testing.T) {
		t.Parallel()
		l := newLists(appendDeviceToleration)
		for _, list := range [][]resourcev1.DeviceToleration{
			{{Key: "a"}}, {{Value: "a"}}, {{Operator: "a"}}, {{Effect: "a"}}, {{TolerationSeconds: seconds(1)}},
		} {
			require.Same(t, &list[0], &l.one(list)[0])
		}
	})

	t.Run("taints of devices differ by all they hold", func(t *testing.T) {
		t.Parallel()
		l := newLists(appendDeviceTaint)
		for _, list := range [][]resourcev1.DeviceTaint{
			{{Key: "a"}},
			{{Value: "a"}},
			{{Effect: "a"}},
			{{TimeAdded: new(metav1.NewTime(noon))}},
			{{TimeAdded: new(metav1.NewTime(noon.Add(time.Nanosecond)))}},
			{{TimeAdded: &metav1.Time{}}},
		} {
			require.Same(t, &list[0], &l.one(list)[0])
		}
	})

	t.Run("F14 neither many nor long lists are held on to", func(t *testing.T) {
		t.Parallel()
		l := newLists(appendToleration)
		l.one([]corev1.Toleration{{Value: strings.Repeat("x", longList)}})
		require.Empty(t, l.known)
		for i := range 2*mostLists + 1 {
			l.one([]corev1.Toleration{{Key: strconv.Itoa(i)}})
		}
		require.LessOrEqual(t, len(l.known), mostLists)
	})
}
