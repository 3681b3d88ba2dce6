package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
)

// Recorder follows a cluster straight from the API server, and takes in what proxies
// record. Its methods are safe for concurrent use.
type Recorder struct {
	client  client.WithWatch
	stop    context.CancelFunc
	watches sync.WaitGroup

	mutex   sync.Mutex // guards what follows
	history History
	failed  error
}

// lists are the kinds that are followed.
func lists() []client.ObjectList {
	return []client.ObjectList{
		&corev1.PodList{}, &corev1.NodeList{}, &corev1.NamespaceList{},
		&resourcev1.ResourceClaimList{}, &resourcev1.ResourceSliceList{}, &resourcev1.DeviceTaintRuleList{},
		&policyv1.PodDisruptionBudgetList{}, &v1alpha1.EvictionPolicyList{}, &v1alpha1.EvictionApprovalList{},
	}
}

// Record begins a history with all that is there, and follows it until Close.
func Record(ctx context.Context, config *rest.Config, limits Limits) (*Recorder, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client of recorder: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	r := &Recorder{client: c, stop: stop, history: History{Limits: limits}}
	for _, list := range lists() {
		if err := r.follow(ctx, list); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// follow lists a kind and watches it from there.
func (r *Recorder) follow(ctx context.Context, list client.ObjectList) error {
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	for _, item := range items {
		r.take(time.Time{}, watch.Added, item)
	}
	version := list.GetResourceVersion()
	r.watches.Go(func() {
		for ctx.Err() == nil {
			if version, err = r.watch(ctx, list, version); err != nil {
				r.fail(fmt.Errorf("watch %T from %s: %w", list, version, err))
				return
			}
		}
	})
	return nil
}

// watch takes in what one watch delivers, and returns from which version on the next
// one goes on. An error is a gap.
func (r *Recorder) watch(ctx context.Context, list client.ObjectList, version string) (string, error) {
	w, err := r.client.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
	if err != nil {
		if ctx.Err() != nil || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return version, pause(ctx) // the API server is away: it goes on from where it was
		}
		return version, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error && ctx.Err() == nil {
			return version, apierrors.FromObject(event.Object)
		}
		if event.Type == watch.Error {
			return version, nil
		}
		if object := r.take(time.Now(), event.Type, event.Object); object != nil {
			version = object.GetResourceVersion()
		}
	}
	return version, nil
}

// pause waits a moment before the API server is asked again.
func pause(ctx context.Context) error {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return nil
}

// take adds a version.
func (r *Recorder) take(seen time.Time, event watch.EventType, got runtime.Object) client.Object {
	object, ok := got.(client.Object)
	if !ok {
		r.fail(fmt.Errorf("record %T: not an object", got))
		return nil
	}
	revision, err := revisionOf(object.GetResourceVersion())
	if err != nil {
		r.fail(err)
		return nil
	}
	object.SetManagedFields(nil)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.history.Versions = append(r.history.Versions, Version{
		Seen: seen, Revision: revision, Gone: event == watch.Deleted, Object: object,
	})
	return object
}

func (r *Recorder) fail(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.failed = errors.Join(r.failed, err)
}

// Write adds what a proxy recorded.
func (r *Recorder) Write(w faultproxy.Write) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.history.Writes = append(r.history.Writes, w)
}

// Step notes that the clock of the API server, as the replicas see it, is ahead by
// that from now on.
func (r *Recorder) Step(offset time.Duration) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.history.Steps = append(r.history.Steps, Step{At: time.Now(), Offset: offset})
}

// History returns what happened so far, with what the leader shows. It is an error
// where there is a gap in it.
func (r *Recorder) History(shown Shown) (*History, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.failed != nil {
		return nil, fmt.Errorf("record history: %w", r.failed)
	}
	h := r.history
	h.Versions = append([]Version(nil), h.Versions...)
	h.Writes = append([]faultproxy.Write(nil), h.Writes...)
	h.Steps = append([]Step(nil), h.Steps...)
	h.Shown, h.Ended = shown, time.Now()
	return &h, nil
}

// Close ends the recording.
func (r *Recorder) Close() {
	r.stop()
	r.watches.Wait()
}
