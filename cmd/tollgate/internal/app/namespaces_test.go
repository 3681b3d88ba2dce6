package app

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaceSource is a cache of namespaces.
type namespaceSource struct {
	cache.Informer

	handler toolscache.ResourceEventHandler
	err     error
}

func (s *namespaceSource) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return s, s.err
}

func (s *namespaceSource) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	s.handler = handler
	return nil, s.err
}

func namespaceOf(uid types.UID, tier string) *corev1.Namespace {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
	if tier != "" {
		object.Labels = map[string]string{"tier": tier}
	}
	return object
}

func TestLabels(t *testing.T) {
	for name, test := range map[string]struct {
		events func(toolscache.ResourceEventHandler)
		known  bool
		tier   string
		told   int
	}{
		"what has not been read is not known":              {func(toolscache.ResourceEventHandler) {}, false, "", 0},
		"a namespace without labels is known to have none": {func(h toolscache.ResourceEventHandler) { h.OnAdd(namespaceOf("1", ""), true) }, true, "", 1},
		"a change of labels is told": {func(h toolscache.ResourceEventHandler) {
			h.OnAdd(namespaceOf("1", "dev"), true)
			h.OnUpdate(nil, namespaceOf("1", "prod"))
		}, true, "prod", 2},
		"any other change is not": {func(h toolscache.ResourceEventHandler) {
			h.OnAdd(namespaceOf("1", "dev"), true)
			h.OnUpdate(nil, namespaceOf("1", "dev"))
		}, true, "dev", 1},
		"I09 one that is deleted is not known any more, tombstone or not": {func(h toolscache.ResourceEventHandler) {
			h.OnAdd(namespaceOf("1", "dev"), true)
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: namespaceOf("1", "dev")})
		}, false, "", 1},
		"one that was created anew outlives the deletion of the old one": {func(h toolscache.ResourceEventHandler) {
			h.OnAdd(namespaceOf("1", "dev"), true)
			h.OnAdd(namespaceOf("2", "prod"), false)
			h.OnDelete(namespaceOf("1", "dev"))
		}, true, "prod", 2},
		"I09 what is no namespace is left out": {func(h toolscache.ResourceEventHandler) {
			h.OnAdd(&corev1.Pod{}, false)
			h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a"})
		}, false, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			from, told := &namespaceSource{}, 0
			l, err := Watch(t.Context(), from, func(name string) {
				require.Equal(t, "a", name)
				told++
			})
			require.NoError(t, err)
			test.events(from.handler)
			got, known := l.Of("a")
			require.Equal(t, test.known, known)
			require.Equal(t, test.told, told)
			if known {
				require.Equal(t, test.tier, got.Get("tier"))
			}
		})
	}
}

func TestLabelsNeedACache(t *testing.T) {
	_, err := Watch(t.Context(), &namespaceSource{err: errors.New("no such kind")}, func(string) {})
	require.EqualError(t, err, "watch namespaces: no such kind")
}
