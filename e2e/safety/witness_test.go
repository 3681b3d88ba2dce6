package safety

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// crowdLabel says to which crowd a pod belongs.
const crowdLabel = prefix + "crowd"

// witness follows the pods of a namespace on its own, and counts after every single
// change of a pod how many of its crowd are healthy. It asks neither Tollgate nor the
// controller that keeps the status of budgets.
type witness struct {
	mu sync.Mutex
	// floors is how many healthy pods each crowd must have, and healthy who they are.
	floors  map[string]int
	healthy map[string]map[types.UID]bool
	// alive are all pods that are not on their way out.
	alive map[types.UID]bool
	// least is how few healthy pods a crowd had.
	least map[string]int
	// broken says when a crowd had too few, or why the witness sees no more.
	broken []string
}

// watchPods begins to follow the pods of a namespace. All of them must be there and
// healthy.
func watchPods(t *testing.T, namespace string, floors map[string]int) *witness {
	t.Helper()
	w := &witness{floors: floors, healthy: map[string]map[types.UID]bool{}, alive: map[types.UID]bool{}, least: map[string]int{}}
	client := clientOf(t).CoreV1().Pods(namespace)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range list.Items {
		w.note(&list.Items[i], true)
	}
	for crowd, pods := range w.healthy {
		w.least[crowd] = len(pods)
	}
	stream, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	t.Cleanup(stream.Stop)
	go w.follow(stream)
	return w
}

func (w *witness) follow(stream watch.Interface) {
	for event := range stream.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			w.breaks("watch of pods: %v", event.Object)
			return
		}
		w.see(pod, event.Type != watch.Deleted)
	}
	w.breaks("watch of pods has ended")
}

func (w *witness) breaks(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (w *witness) see(pod *corev1.Pod, exists bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(pod, exists)
	crowd := pod.Labels[crowdLabel]
	healthy := len(w.healthy[crowd])
	w.least[crowd] = min(w.least[crowd], healthy)
	if healthy < w.floors[crowd] {
		w.broken = append(w.broken, fmt.Sprintf("%s has %d healthy pods after %s, version %s, and needs %d",
			crowd, healthy, pod.Name, pod.ResourceVersion, w.floors[crowd]))
	}
}

// note takes in a pod; the caller holds the lock, or is the only one.
func (w *witness) note(pod *corev1.Pod, exists bool) {
	crowd := pod.Labels[crowdLabel]
	if w.healthy[crowd] == nil {
		w.healthy[crowd] = map[types.UID]bool{}
	}
	delete(w.healthy[crowd], pod.UID)
	delete(w.alive, pod.UID)
	if exists && isReady(pod) {
		w.healthy[crowd][pod.UID] = true
	}
	if exists && pod.DeletionTimestamp == nil {
		w.alive[pod.UID] = true
	}
}

// left returns how many pods are not on their way out.
func (w *witness) left() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.alive)
}

// requireUnbroken fails the test if a crowd ever had too few healthy pods, and returns
// how few it had.
func (w *witness) requireUnbroken(t *testing.T) map[string]int {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.broken)
	return maps.Clone(w.least)
}

// relax says that no crowd must have any pods from now on.
func (w *witness) relax() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.floors = map[string]int{}
}
