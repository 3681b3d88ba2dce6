package informer

import (
	"encoding/binary"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// The bounds of what is remembered in order to keep it once. Whoever writes
// objects chooses the words in them.
const (
	mostWords = 1 << 16
	longWord  = 256
	mostLists = 1 << 12
	longList  = 2048
)

// words keeps one copy of equal strings: drivers, pools, devices, nodes and
// namespaces are named by many objects, each of which was decoded with a copy of
// its own. The package unique forgets a string at the next collection unless its Handle
// is kept, too, and so makes another copy of what is known already.
type words struct {
	mu    sync.Mutex
	known map[string]string
}

func newWords() *words { return &words{known: map[string]string{}} }

// one returns the copy that is kept of s.
func (w *words) one(s string) string {
	if s == "" || len(s) > longWord {
		return s
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.known[s]; ok {
		return known
	}
	if len(w.known) >= mostWords {
		clear(w.known)
	}
	w.known[s] = s
	return s
}

// all replaces texts by the copies that are kept of them.
func (w *words) all(texts ...*string) {
	for _, text := range texts {
		*text = w.one(*text)
	}
}

// each replaces the texts of the labels of an object by the copies that are kept of
// them. The name of the object, which a label may repeat, is kept with the object.
func (w *words) each(labels tracker.Labels, name string) {
	for i := range labels {
		label := &labels[i]
		label.Key = w.one(label.Key)
		if label.Value == name {
			label.Value = name
		} else {
			label.Value = w.one(label.Value)
		}
	}
}

// interned keeps one copy of equal values, which must not be written to.
type interned[T any] struct {
	// write appends a value to a key, in a way that differs where values differ. What it
	// appends nothing for becomes the zero value.
	write func(key []byte, value T) []byte

	mu    sync.Mutex
	known map[string]T
	key   []byte
}

func newInterned[T any](write func([]byte, T) []byte) *interned[T] {
	return &interned[T]{write: write, known: map[string]T{}}
}

// one returns the copy that is kept of a value.
func (x *interned[T]) one(value T) T { return x.oneOr(value, func() {}) }

// oneOr returns the copy that is kept of a value. If there is none, it calls first and keeps
// the value.
func (x *interned[T]) oneOr(value T, first func()) (known T) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.key = x.write(x.key[:0], value); len(x.key) == 0 {
		return known
	}
	if known, ok := x.known[string(x.key)]; ok {
		return known
	}
	first()
	if len(x.key) > longList {
		return value
	}
	if len(x.known) >= mostLists {
		clear(x.known)
	}
	x.known[string(x.key)] = value
	return value
}

// origins keeps one copy of what replicas have in common. Pods with a label of their
// own, such as those of a StatefulSet, share nothing but the words.
type origins struct {
	*interned[*tracker.Origin]

	words *words
}

func newOrigins() *origins {
	return &origins{words: newWords(), interned: newInterned(func(key []byte, o *tracker.Origin) []byte {
		key = appendText(key, o.ServiceAccount, o.OwnerKind, string(o.OwnerUID), o.PriorityClassName)
		for _, label := range o.Labels {
			key = appendText(key, label.Key, label.Value)
		}
		return key
	})}
}

// one returns the copy that is kept of the origin of a pod of that name. The labels of
// origin may be written to.
func (o *origins) one(origin *tracker.Origin, name string) *tracker.Origin {
	return o.oneOr(origin, func() {
		o.words.each(origin.Labels, name)
		o.words.all(&origin.ServiceAccount, &origin.OwnerKind, &origin.PriorityClassName)
		origin.OwnerUID = types.UID(o.words.one(string(origin.OwnerUID)))
	})
}

// newLists keeps one copy of equal lists: nearly all pods have the same tolerations.
func newLists[T any](write func([]byte, *T) []byte) *interned[[]T] {
	return newInterned(func(key []byte, list []T) []byte {
		for i := 0; i < len(list) && len(key) <= longList; i++ {
			key = write(key, &list[i])
		}
		return key
	})
}

// newWindows keeps one copy of equal windows, of which there are about as many as there are
// policies with one.
func newWindows() *interned[*tracker.Window] {
	return newInterned(func(key []byte, window *tracker.Window) []byte {
		for _, t := range window.Tolerations() {
			key = binary.AppendVarint(appendText(key, t.Key), t.Seconds)
		}
		return key
	})
}

func appendToleration(key []byte, t *corev1.Toleration) []byte {
	key = appendText(key, t.Key, string(t.Operator), t.Value, string(t.Effect))
	return appendSeconds(key, t.TolerationSeconds)
}

func appendDeviceToleration(key []byte, t *resourcev1.DeviceToleration) []byte {
	key = appendText(key, t.Key, string(t.Operator), t.Value, string(t.Effect))
	return appendSeconds(key, t.TolerationSeconds)
}

func appendDeviceTaint(key []byte, t *resourcev1.DeviceTaint) []byte {
	key = appendText(key, t.Key, t.Value, string(t.Effect))
	if t.TimeAdded == nil {
		return append(key, 0)
	}
	key = binary.AppendVarint(append(key, 1), t.TimeAdded.Unix())
	return binary.AppendVarint(key, int64(t.TimeAdded.Nanosecond()))
}

// appendText writes the length before each text, so that no text can be taken
// for two.
func appendText(key []byte, texts ...string) []byte {
	for _, text := range texts {
		key = binary.AppendUvarint(key, uint64(len(text)))
		key = append(key, text...)
	}
	return key
}

func appendSeconds(key []byte, seconds *int64) []byte {
	if seconds == nil {
		return append(key, 0)
	}
	return binary.AppendVarint(append(key, 1), *seconds)
}
