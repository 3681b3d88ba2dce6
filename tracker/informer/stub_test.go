package informer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// stub is an API server that serves nodes by HTTP, as badly as a test asks for.
type stub struct {
	// list and watch answer the request of that number, from 1. A watch that returns has
	// ended.
	list  func(number int, w http.ResponseWriter, r *http.Request)
	watch func(number int, w *stubWatch)
	// swallow has requests for a stream of what there is go unanswered; else they are
	// refused.
	swallow bool

	mu      sync.Mutex
	lists   int
	watches []string
}

// stubWatch is the answer to a watch.
type stubWatch struct {
	http.ResponseWriter

	request *http.Request
}

// send sends an event.
func (w *stubWatch) send(kind watch.EventType, object any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	w.ResponseWriter.(http.Flusher).Flush()
}

// freeze says nothing until the client goes.
func (w *stubWatch) freeze() {
	w.ResponseWriter.(http.Flusher).Flush()
	<-w.request.Context().Done()
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	if query.Get("watch") == "" {
		s.mu.Lock()
		s.lists++
		number := s.lists
		s.mu.Unlock()
		s.list(number, w, r)
		return
	}
	if query.Get("sendInitialEvents") == "true" {
		if s.swallow {
			<-r.Context().Done()
			return
		}
		writeStatus(w, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil))
		return
	}
	s.mu.Lock()
	s.watches = append(s.watches, query.Get("resourceVersion"))
	number := len(s.watches)
	s.mu.Unlock()
	s.watch(number, &stubWatch{ResponseWriter: w, request: r})
}

func writeStatus(w http.ResponseWriter, err *apierrors.StatusError) {
	w.WriteHeader(int(err.ErrStatus.Code))
	_ = json.NewEncoder(w).Encode(err.ErrStatus)
}

func writeNodes(w io.Writer, version int, numbers ...int) {
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}}
	for _, i := range numbers {
		list.Items = append(list.Items, *stubNode(i, i))
	}
	_ = json.NewEncoder(w).Encode(list)
}

func stubNode(i, version int) *corev1.Node {
	return &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%d", i), UID: types.UID(strconv.Itoa(i)), ResourceVersion: strconv.Itoa(version),
		},
	}
}

// asked returns how many lists there were, and the versions from which watches were begun.
func (s *stub) asked() (lists int, watches []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, slices.Clone(s.watches)
}

// stubbed is an informer of nodes that asks a stub.
type stubbed struct {
	informer toolscache.SharedIndexInformer
	registry *prometheus.Registry
	changed  chan struct{}
	// gone are the keys of what was deleted.
	gone chan string
}

func ask(t *testing.T, s *stub) *stubbed {
	t.Helper()
	return askPatiently(t, s, informer.GuardOptions{})
}

// askPatiently asks a stub with as much patience as the guard has, if not zero. What is
// not about patience must not depend on how busy a machine is.
func askPatiently(t *testing.T, s *stub, patience informer.GuardOptions) *stubbed {
	t.Helper()
	server := httptest.NewServer(s)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	patience.Clock, patience.Metrics, patience.Pause = clock.RealClock{}, informer.NewMetrics(registry), time.Millisecond
	guard := informer.NewGuard(patience)
	b := &stubbed{informer: informer.NewNodes(client, informer.Guarded(guard)), registry: registry, changed: make(chan struct{}, 100), gone: make(chan string, 100)}
	change := func() { b.changed <- struct{}{} }
	_, err = b.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { change() }, UpdateFunc: func(any, any) { change() },
		DeleteFunc: func(obj any) {
			key, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			b.gone <- key
			change()
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		server.CloseClientConnections()
		server.Close()
	})
	return b
}

// until waits until the informer knows what it should.
func (b *stubbed) until(t *testing.T, known func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !known() {
		select {
		case <-b.changed:
		case <-deadline.C:
			require.FailNow(t, "it never came to know that", "known: %v", b.informer.GetStore().ListKeys())
		}
	}
}

func (b *stubbed) knows(i int) bool {
	_, known, err := b.informer.GetStore().GetByKey(fmt.Sprintf("node-%d", i))
	return known && err == nil
}

func (b *stubbed) requireCount(t *testing.T, metric string) {
	t.Helper()
	count, err := testutil.GatherAndCount(b.registry, metric)
	require.NoError(t, err)
	require.Positive(t, count, metric)
}

func always(version int, numbers ...int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { writeNodes(w, version, numbers...) }
}

// TestFaultsOfAnAPIServer runs informers of client-go against an API server that
// misbehaves.
func TestFaultsOfAnAPIServer(t *testing.T) {
	t.Parallel()

	t.Run("I06 what a frozen watch does not say comes with the next one, and without a list", func(t *testing.T) {
		t.Parallel()
		s := &stub{list: always(10, 1, 2), watch: func(_ int, w *stubWatch) {
			if w.request.URL.Query().Get("resourceVersion") == "10" {
				w.send(watch.Added, stubNode(3, 11))
				w.freeze()
				return
			}
			w.send(watch.Added, stubNode(4, 12))
			for i := 13; w.request.Context().Err() == nil; i++ {
				w.send(watch.Bookmark, stubNode(0, i))
				<-time.After(50 * time.Millisecond)
			}
		}}
		// A watch that ends without an event within a second has a reflector list anew.
		b := askPatiently(t, s, informer.GuardOptions{Silence: 1500 * time.Millisecond})
		b.until(t, func() bool { return b.knows(3) && b.knows(4) })
		lists, watches := s.asked()
		// One whose event takes longer than that is begun again.
		require.Equal(t, []string{"10", "11"}, slices.Compact(watches)[:2])
		require.Equal(t, 1, lists)
		b.requireCount(t, "tollgate_watch_restarts_total")
	})

	t.Run("I06 watches that are not answered at all are given up, those that begin with what there is, too", func(t *testing.T) {
		t.Parallel()
		s := &stub{swallow: true, list: always(10, 1, 2), watch: func(number int, w *stubWatch) {
			if number == 1 {
				<-w.request.Context().Done()
				return
			}
			w.send(watch.Added, stubNode(3, 11))
			w.freeze()
		}}
		b := askPatiently(t, s, informer.GuardOptions{Silence: 300 * time.Millisecond})
		b.until(t, func() bool { return b.knows(1) && b.knows(3) })
		b.requireCount(t, "tollgate_watch_restarts_total")
	})

	t.Run("I07 a watch whose version is compacted lists anew, each time", func(t *testing.T) {
		t.Parallel()
		third := make(chan struct{})
		s := &stub{
			list: func(number int, w http.ResponseWriter, _ *http.Request) { writeNodes(w, 10*number, 1, number+1) },
			watch: func(number int, w *stubWatch) {
				switch number {
				case 1:
					writeStatus(w, apierrors.NewResourceExpired("too old resource version"))
				case 2:
					w.send(watch.Error, apierrors.NewResourceExpired("too old resource version").Status())
				case 3:
					close(third)
					w.freeze()
				default:
					w.freeze()
				}
			},
		}
		b := ask(t, s)
		<-third
		b.until(t, func() bool { return b.knows(1) && b.knows(4) && !b.knows(2) && !b.knows(3) })
		_, watches := s.asked()
		require.Equal(t, []string{"10", "20", "30"}, watches[:3])
	})

	t.Run("I08 events that are sent again or late bring nothing back", func(t *testing.T) {
		t.Parallel()
		s := &stub{list: always(10, 1, 2), watch: func(number int, w *stubWatch) {
			if number == 1 {
				w.send(watch.Added, stubNode(1, 1))
				w.send(watch.Modified, stubNode(1, 11))
				w.send(watch.Modified, stubNode(1, 11))
				w.send(watch.Deleted, stubNode(2, 12))
				w.send(watch.Deleted, stubNode(2, 12))
				w.send(watch.Added, stubNode(3, 13))
			}
			w.freeze()
		}}
		b := ask(t, s)
		b.until(t, func() bool { return b.knows(1) && !b.knows(2) && b.knows(3) })
	})

	t.Run("I10 a list that is empty by mistake is not believed", func(t *testing.T) {
		t.Parallel()
		s := &stub{
			list: func(number int, w http.ResponseWriter, _ *http.Request) {
				switch number {
				case 1:
					writeNodes(w, 10, 1, 2, 3, 4, 5)
				case 2:
					writeNodes(w, 20)
				default:
					writeNodes(w, 21, 1, 2, 3, 4, 6)
				}
			},
			watch: func(number int, w *stubWatch) {
				if number == 1 {
					writeStatus(w, apierrors.NewResourceExpired("too old resource version"))
					return
				}
				w.freeze()
			},
		}
		b := ask(t, s)
		b.until(t, func() bool { return b.knows(6) })
		require.Equal(t, "node-5", <-b.gone)
		require.Empty(t, b.gone, "no other was ever gone")
		b.requireCount(t, "tollgate_relists_doubted_total")
	})

	t.Run("I12 lists that are refused, cannot be read or do not end are asked for anew", func(t *testing.T) {
		t.Parallel()
		s := &stub{watch: func(_ int, w *stubWatch) { w.freeze() }, list: func(number int, w http.ResponseWriter, r *http.Request) {
			switch number {
			case 1:
				writeStatus(w, apierrors.NewInternalError(io.ErrUnexpectedEOF))
			case 2:
				_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":`))
			case 3:
				_, _ = w.Write([]byte(`{"kind":"NodeList"`))
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			default:
				writeNodes(w, 10, 1)
			}
		}}
		b := askPatiently(t, s, informer.GuardOptions{ListTimeout: time.Second})
		b.until(t, func() bool { return b.knows(1) })
		require.True(t, toolscache.WaitForCacheSync(t.Context().Done(), b.informer.HasSynced))
	})

	t.Run("I11 nothing is synced while the first list fails", func(t *testing.T) {
		t.Parallel()
		asked := make(chan struct{})
		var once sync.Once
		s := &stub{watch: func(_ int, w *stubWatch) { w.freeze() }, list: func(number int, w http.ResponseWriter, _ *http.Request) {
			if number > 1 {
				once.Do(func() { close(asked) })
			}
			writeStatus(w, apierrors.NewServiceUnavailable("starting"))
		}}
		b := ask(t, s)
		<-asked
		require.False(t, b.informer.HasSynced())
	})
}
