package evictor

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// fakeRecorder keeps events as text.
type fakeRecorder struct {
	mu     sync.Mutex
	events []string
	refs   []corev1.ObjectReference
	// annotations are those of the events that have some.
	annotations []map[string]string
}

func (r *fakeRecorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.AnnotatedEventf(object, nil, eventType, reason, format, args...)
}

func (r *fakeRecorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any) {
	ref := object.(*corev1.ObjectReference)
	name := ref.Name
	if ref.Namespace != "" {
		name = ref.Namespace + "/" + name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs = append(r.refs, *ref)
	if annotations != nil {
		r.annotations = append(r.annotations, annotations)
	}
	r.events = append(r.events, fmt.Sprintf("%s %s %s %s: %s", ref.Kind, name, eventType, reason, fmt.Sprintf(format, args...)))
}

// took returns the events since the last call.
func (r *fakeRecorder) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// every answers each request that fits with an error.
func every(fits func(request) bool, err error) func(request) error {
	return func(req request) error {
		if fits(req) {
			return err
		}
		return nil
	}
}

// first is every for the first n that fit.
func first(n int, fits func(request) bool, err error) func(request) error {
	var mu sync.Mutex
	return func(req request) error {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 || !fits(req) {
			return nil
		}
		n--
		return err
	}
}

func is(prefix string) func(request) bool {
	return func(req request) bool { return len(req) >= len(prefix) && string(req[:len(prefix)]) == prefix }
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
