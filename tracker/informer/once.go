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

// origins keeps one copy of what replicas have in common. Pods with a label of their
// own, such as those of a StatefulSet, share nothing but the words.
type origins struct {
	words *words

	mu    sync.Mutex
	known map[string]*tracker.Origin
	key   []byte
}

func newOrigins() *origins {
	return &origins{words: newWords(), known: map[string]*tracker.Origin{}}
}

// one returns the copy that is kept of the origin of a pod of that name. The labels of
// origin may be written to.
func (o *origins) one(origin *tracker.Origin, name string) *tracker.Origin {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.key = appendText(o.key[:0], origin.ServiceAccount, origin.OwnerKind, string(origin.OwnerUID), origin.PriorityClassName)
	for i := range origin.Labels {
		o.key = appendText(o.key, origin.Labels[i].Key, origin.Labels[i].Value)
	}
	if known, ok := o.known[string(o.key)]; ok {
		return known
	}
	o.words.each(origin.Labels, name)
	origin.ServiceAccount, origin.OwnerKind = o.words.one(origin.ServiceAccount), o.words.one(origin.OwnerKind)
	origin.OwnerUID, origin.PriorityClassName = types.UID(o.words.one(string(origin.OwnerUID))), o.words.one(origin.PriorityClassName)
	if len(o.key) > longList {
		return origin
	}
	if len(o.known) >= mostLists {
		clear(o.known)
	}
	o.known[string(o.key)] = origin
	return origin
}

// lists keeps one copy of equal lists, which must not be written to: nearly all
// pods have the same tolerations.
type lists[T any] struct {
	// write appends an item to a key, in a way that differs where items differ.
	write func(key []byte, item *T) []byte

	mu    sync.Mutex
	known map[string][]T
	key   []byte
}

func newLists[T any](write func([]byte, *T) []byte) *lists[T] {
	return &lists[T]{write: write, known: map[string][]T{}}
}

// one returns the copy that is kept of list.
func (l *lists[T]) one(list []T) []T {
	if len(list) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.key = l.key[:0]
	for i := range list {
		l.key = l.write(l.key, &list[i])
		if len(l.key) > longList {
			return list
		}
	}
	if known, ok := l.known[string(l.key)]; ok {
		return known
	}
	if len(l.known) >= mostLists {
		clear(l.known)
	}
	l.known[string(l.key)] = list
	return list
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
