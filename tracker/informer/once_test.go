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
