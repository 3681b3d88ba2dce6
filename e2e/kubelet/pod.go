package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

// projectInterval is how often volumes are brought up to date. Kubelets take a minute; no
// test shall wait for that.
const projectInterval = 2 * time.Second

// errGone is why nothing is written of a pod that is no more.
var errGone = errors.New("the pod is gone")

// podWorker runs one pod. Its fields do not change once it runs, but for those of volumes.
type podWorker struct {
	options Options
	client  kubernetes.Interface
	// pod is as it was when it was bound, with its address in the status.
	pod     *corev1.Pod
	address podAddress
	// updates holds the newest version of the pod that was not looked at yet.
	updates chan *corev1.Pod
	// changed is sent to when a container has another state.
	changed    chan struct{}
	containers []*container
	volumes    *volumes
	// dir is the worker's own: when a node is lost and comes back, its pods are run anew
	// while the workers of before are still ending, and they take their folders with them.
	dir string
	// files is held while volumes are written.
	files sync.Mutex
}

func newPodWorker(options Options, client kubernetes.Interface, pod *corev1.Pod, hostIP string, address podAddress) *podWorker {
	pod = pod.DeepCopy()
	pod.Status.PodIP, pod.Status.HostIP = address.podIP, hostIP
	w := &podWorker{
		options: options, client: client, pod: pod, address: address,
		updates: make(chan *corev1.Pod, 1), changed: make(chan struct{}, 1),
	}
	w.dir = filepath.Join(options.Dir, string(pod.UID)+"-"+address.podIP)
	w.volumes = &volumes{client: client, dir: filepath.Join(w.dir, "volumes"), tokens: map[string]token{}}
	w.volumes.rewrite = rewriter{address: address}
	for i := range pod.Spec.Containers {
		spec := &pod.Spec.Containers[i]
		w.volumes.rewrite.mounts = append(w.volumes.rewrite.mounts, w.volumes.mounts(spec)...)
		w.containers = append(w.containers, &container{
			spec: spec, policy: pod.Spec.RestartPolicy, podIP: address.podIP,
			prepare: func(ctx context.Context) (process.Spec, error) { return w.prepare(ctx, spec) },
			changed: func() {
				select {
				case w.changed <- struct{}{}:
				default:
				}
			},
		})
	}
	return w
}

// tell gives the worker a newer version of its pod.
func (w *podWorker) tell(pod *corev1.Pod) {
	for {
		select {
		case w.updates <- pod:
			return
		case <-w.updates: // That one is older.
		}
	}
}

// run runs the pod until it has ended or ctx does, which kills it and says nothing.
func (w *podWorker) run(ctx context.Context) error {
	defer func() { _ = os.RemoveAll(w.dir) }()
	ends := make([]chan time.Duration, len(w.containers))
	var running sync.WaitGroup
	for i, c := range w.containers {
		ends[i] = make(chan time.Duration, 1)
		running.Go(func() { c.run(ctx, ends[i]) })
	}
	over := make(chan struct{})
	go func() {
		running.Wait()
		close(over)
	}()
	ending := w.attend(ctx, ends, over)
	<-over
	if !ending {
		return nil // The machine is gone, and says nothing more.
	}
	if err := w.writeLast(ctx); err != nil {
		return err
	}
	return w.remove(ctx)
}

// writeLast writes how all containers have ended. No tick comes after it that would try
// again, and a pod that is removed without it has no ending.
func (w *podWorker) writeLast(ctx context.Context) error {
	for {
		err := w.write(ctx, true)
		if err == nil || errors.Is(err, errGone) {
			return nil
		}
		if !pause(ctx, retryInterval) {
			return fmt.Errorf("write the status of pod %s: %w", w.pod.Name, err)
		}
	}
}

// attend keeps the status and the volumes as they are to be until all containers are over,
// and says whether the pod was told to end.
func (w *podWorker) attend(ctx context.Context, ends []chan time.Duration, over <-chan struct{}) (ending bool) {
	ticker := time.NewTicker(projectInterval)
	defer ticker.Stop()
	written := false
	for {
		select {
		case <-ctx.Done():
			return ending
		case <-over:
			if ending {
				return true
			}
			over = nil // It has completed, and is there until it is deleted.
			written = w.write(ctx, ending) == nil
		case pod := <-w.updates:
			if pod.DeletionTimestamp == nil || ending {
				continue
			}
			ending = true
			for _, end := range ends {
				end <- grace(pod)
			}
			if over == nil {
				return true
			}
		case <-w.changed:
			written = w.write(ctx, ending) == nil
		case <-ticker.C:
			if !written {
				written = w.write(ctx, ending) == nil
			}
			// What fails is in the next status of a container that starts.
			_ = w.project(ctx)
		}
	}
}

// grace is how long a pod has that is deleted.
func grace(pod *corev1.Pod) time.Duration {
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return 0
}

func (w *podWorker) project(ctx context.Context) error {
	w.files.Lock()
	defer w.files.Unlock()
	return w.volumes.project(ctx, w.pod, time.Now())
}

// prepare says what to run in the place of a container.
func (w *podWorker) prepare(ctx context.Context, spec *corev1.Container) (process.Spec, error) {
	if len(w.pod.Spec.InitContainers) > 0 {
		return process.Spec{}, errors.New("init containers are not carried out here")
	}
	image, err := w.options.image(spec.Image)
	if err != nil {
		return process.Spec{}, err
	}
	if err := w.project(ctx); err != nil {
		return process.Spec{}, err
	}
	variables, err := environment(ctx, w.client, w.pod, spec)
	if err != nil {
		return process.Spec{}, err
	}
	rewrite := rewriter{mounts: w.volumes.mounts(spec), address: w.address}
	for name, value := range variables {
		variables[name] = rewrite.path(value)
	}
	args := rewrite.arguments(command(spec, variables))
	if image.Kubeconfig {
		kubeconfig, err := w.kubeconfig(rewrite)
		if err != nil {
			return process.Spec{}, err
		}
		args = append(args, "--kubeconfig="+kubeconfig)
	}
	return process.Spec{
		Name: w.pod.Name + "/" + spec.Name, Path: image.Program, Args: args, Env: asEnv(variables),
		Log: filepath.Join(w.options.Logs, w.pod.Name+"-"+spec.Name+".log"),
	}, nil
}

// serviceAccountPath is where a container finds its token.
const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// kubeconfig says in a file what client-go reads from serviceAccountPath. It names the file
// with the token, so that a newer token is found.
func (w *podWorker) kubeconfig(rewrite rewriter) (string, error) {
	dir := rewrite.path(serviceAccountPath)
	if dir == serviceAccountPath {
		return "", fmt.Errorf("no token is mounted at %s", serviceAccountPath)
	}
	ca, err := os.ReadFile(filepath.Join(dir, corev1.ServiceAccountRootCAKey)) //nolint:gosec // The folder is this package's own.
	if err != nil {
		return "", fmt.Errorf("read the CA of the API server: %w", err)
	}
	name := filepath.Join(w.dir, "kubeconfig")
	return name, controlplane.WriteKubeconfig(name, w.options.Config.Host, ca, tokenFile(filepath.Join(dir, corev1.ServiceAccountTokenKey)))
}

func (w *podWorker) view(ending bool) view {
	v := view{podIP: w.address.podIP, hostIP: w.pod.Status.HostIP, ending: ending}
	for _, c := range w.containers {
		v.containers = append(v.containers, c.current())
	}
	return v
}

// write writes the status, if it is another than it was.
func (w *podWorker) write(ctx context.Context, ending bool) error {
	pods := w.client.CoreV1().Pods(w.pod.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pod, err := pods.Get(ctx, w.pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && pod.UID != w.pod.UID {
			return errGone
		}
		if err != nil {
			return err
		}
		status := statusOf(pod, w.view(ending), time.Now())
		if equality.Semantic.DeepEqual(pod.Status, status) {
			return nil
		}
		pod.Status = status
		_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

// remove lets the pod go from the API server, as a kubelet does once nothing of it runs.
func (w *podWorker) remove(ctx context.Context) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(w.pod.UID))}
	for {
		err := w.client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, options)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if !pause(ctx, retryInterval) {
			return fmt.Errorf("delete pod %s: %w", w.pod.Name, err)
		}
	}
}
