package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/e2e/history"
)

// stage is where one schedule is run.
type stage struct {
	schedule  *schedule
	client    kubernetes.Interface
	objects   client.Client
	namespace string
	driver    string
	recorder  *history.Recorder
	replicas  []*replica

	mutex    sync.Mutex // guards what follows
	done     []string
	unwanted error
	offset   time.Duration
}

// prefix is that of the keys of all taints here.
const prefix = "chaos.example.com/"

// newStage sets a schedule up, with nothing running yet.
func newStage(ctx context.Context, s *schedule) (*stage, error) {
	clientset, err := kubernetes.NewForConfig(shared.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	objects, err := client.New(shared.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	namespace, err := shared.CreateNamespace(ctx, "chaos-")
	if err != nil {
		return nil, err
	}
	st := &stage{schedule: s, client: clientset, objects: objects, namespace: namespace, driver: namespace + ".example.com"}
	slice := dra.Slice(st.driver, "pool")
	for i := range deviceCount {
		slice.Spec.Devices = append(slice.Spec.Devices, dra.Device(deviceName(i)))
	}
	if err := errors.Join(
		st.objects.Create(ctx, dra.Class(st.driver)),
		st.objects.Create(ctx, slice),
	); err != nil {
		return nil, fmt.Errorf("publish devices: %w", err)
	}
	st.setUp(ctx)
	st.recorder, err = history.Record(ctx, shared.RESTConfig(), history.Limits{
		Staleness: staleness, Policies: policyStaleness, Tolerance: time.Second, Lease: leaseDuration, Settle: settle,
	})
	if err != nil {
		return nil, err
	}
	access, err := accessOfTollgate(ctx)
	if err != nil {
		return nil, err
	}
	for i, name := range []string{"a", "b"} {
		st.replicas = append(st.replicas, &replica{name: name, access: access, recorder: st.recorder, seed: s.seed<<8 + uint64(i)<<7})
	}
	return st, nil
}

// setUp carries out what the schedule begins with, before anybody looks.
func (st *stage) setUp(ctx context.Context) {
	for _, a := range st.schedule.acts {
		if a.at == 0 {
			st.perform(ctx, a)
		}
	}
}

// run carries the schedule out: what the workload does and what the faults do beside
// each other, each in its order.
func (st *stage) run(ctx context.Context) error {
	began := time.Now()
	var group errgroup.Group
	for _, faults := range []bool{false, true} {
		group.Go(func() error {
			for _, a := range st.schedule.acts {
				if a.fault != faults || a.at == 0 {
					continue
				}
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Until(began.Add(a.at))):
				}
				st.perform(ctx, a)
			}
			return nil
		})
	}
	return group.Wait()
}

// perform carries out one act. That an object has gone or changed meanwhile is part
// of the game.
func (st *stage) perform(ctx context.Context, a act) {
	at := time.Now()
	err := a.do(ctx, st)
	st.mutex.Lock()
	defer st.mutex.Unlock()
	line := fmt.Sprintf("%s  %s", at.UTC().Format("15:04:05.000"), a.what)
	if err != nil {
		line += ": " + err.Error()
	}
	st.done = append(st.done, line)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		st.unwanted = errors.Join(st.unwanted, fmt.Errorf("%s: %w", a.what, err))
	}
}

// calm ends all faults.
func (st *stage) calm(ctx context.Context) error {
	var errs []error
	for _, r := range st.replicas {
		errs = append(errs, r.thaw())
		r.proxy.Clear()
		if !r.alive() {
			errs = append(errs, r.start(ctx))
		}
	}
	return errors.Join(errs...)
}

// settle waits until nobody is left who has to leave, or patience is over, and
// returns the history.
func (st *stage) settle(ctx context.Context) (*history.History, error) {
	deadline := time.Now().Add(patience)
	for {
		h, err := st.recorder.History(st.shown(ctx))
		if err != nil {
			return nil, err
		}
		soon := *h
		soon.Limits.Settle = time.Second
		outstanding := len(history.Outstanding(&soon))
		if outstanding == 0 || time.Now().After(deadline) {
			return h, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// shown is what the leader, whoever it is, says. A replica that does not answer says
// nothing.
func (st *stage) shown(ctx context.Context) history.Shown {
	sum := history.Shown{Held: map[string]int{}}
	for _, r := range st.replicas {
		one, err := r.shown(ctx)
		if err != nil {
			continue
		}
		sum.Pending += one.Pending
		for reason, n := range one.Held {
			sum.Held[reason] += n
		}
	}
	return sum
}

// clear removes what the schedule made, and ends the replicas.
func (st *stage) clear(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, r := range st.replicas {
		if r.process != nil {
			require.NoError(t, r.end(ctx))
		}
	}
	st.recorder.Close()
	for i := range nodeCount {
		require.NoError(t, st.untaint(ctx, controlplane.NodeName(i+1)))
	}
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	require.NoError(t, st.sweep(ctx))
	require.NoError(t, client.IgnoreNotFound(st.objects.Delete(ctx, dra.Slice(st.driver, "pool"))))
	require.NoError(t, client.IgnoreNotFound(st.objects.Delete(ctx, dra.Class(st.driver))))
	require.NoError(t, st.client.CoreV1().Pods(st.namespace).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}))
	require.NoError(t, client.IgnoreNotFound(st.objects.Delete(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: st.namespace}}, background)))
	require.NoError(t, st.waitEmpty(ctx))
}

// waitEmpty waits until no pod of the schedule is left: the next one counts them.
func (st *stage) waitEmpty(ctx context.Context) error {
	for range 300 {
		pods, err := st.client.CoreV1().Pods(st.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		if len(pods.Items) == 0 {
			return nil
		}
		for i := range pods.Items {
			if len(pods.Items[i].Finalizers) > 0 {
				_ = st.patchPod(ctx, pods.Items[i].Name, `{"metadata":{"finalizers":null}}`)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("pods of %s are left", st.namespace)
}

// story is what was done, and when.
func (st *stage) story() string {
	st.mutex.Lock()
	defer st.mutex.Unlock()
	return strings.Join(st.done, "\n")
}

// keep writes down what can be looked at later, and returns where.
func (st *stage) keep(text string) string {
	path := filepath.Join(shared.Dir(), "logs", fmt.Sprintf("seed-%d.txt", st.schedule.seed))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err.Error()
	}
	return path
}
