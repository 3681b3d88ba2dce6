package plugins

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// patchServer serves patches over HTTP, once it has the kind.
type patchServer struct {
	lock    sync.Mutex
	patches []v1alpha1.ResourceSlicePatch
	kind    bool
	accept  []string
}

func (s *patchServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.lock.Lock()
	kind, patches := s.kind, s.patches
	s.accept = append(s.accept, r.Header.Get("Accept"))
	s.lock.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path != "/apis/tollgate.dev/v1alpha1/resourceslicepatches" || !kind:
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
	case r.URL.Query().Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity) // an API server that cannot stream lists
	case r.URL.Query().Get("watch") != "":
		if r.URL.Query().Get("resourceVersion") == "" {
			// A watch from no version begins with what there is.
			for i := range patches {
				object := patches[i]
				object.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatch"}
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": object})
			}
		}
		w.(http.Flusher).Flush() //nolint:forcetypeassert // The server of net/http flushes.
		<-r.Context().Done()
	default:
		_ = json.NewEncoder(w).Encode(v1alpha1.ResourceSlicePatchList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSlicePatchList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: patches,
		})
	}
}

func TestInformerOfPatches(t *testing.T) {
	t.Parallel()
	backend := &patchServer{}
	server := httptest.NewServer(backend)
	t.Cleanup(server.CloseClientConnections)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
		// As the scheduler's.
		ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
	}}
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	informer, err := informerOfPatches(config, factory)
	require.NoError(t, err)
	factory.StartWithContext(t.Context())

	synced := factory.WaitForCacheSync(t.Context().Done())
	require.Len(t, synced, 1, "the scheduler waits for it")
	require.Empty(t, informer.GetStore().List(), "no kind, no patches")

	backend.lock.Lock()
	backend.kind, backend.patches = true, []v1alpha1.ResourceSlicePatch{*modelPatch("one", "H100", 1)}
	backend.lock.Unlock()
	require.Eventually(t, func() bool { return len(informer.GetStore().List()) == 1 }, time.Minute, 10*time.Millisecond,
		"the kind is found when it is there")

	backend.lock.Lock()
	defer backend.lock.Unlock()
	for _, accept := range backend.accept {
		require.Equal(t, runtime.ContentTypeJSON, accept, "custom resources have no protobuf")
	}
}

func TestInformerOfPatchesNeedsAConfiguration(t *testing.T) {
	t.Parallel()
	_, err := informerOfPatches(nil, informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0))
	require.ErrorContains(t, err, "no configuration of its client")
}
