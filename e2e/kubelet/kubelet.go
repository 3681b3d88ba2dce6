package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Image is what runs in the place of a container image.
type Image struct {
	// Program is the path of the program that the image has as its entry point.
	Program string
	// Kubeconfig is true if the program is to be told by --kubeconfig what client-go
	// finds at a fixed path in a container.
	Kubeconfig bool
}

// Options says which pods are run and by what.
type Options struct {
	// Config is the access of an administrator, for all kubelets together.
	Config *rest.Config
	// Selector selects the pods by their labels, in all namespaces. Kwok must be started
	// with KwokArgs of the same.
	Selector string
	// Images are by the name of the image without its tag and digest.
	Images map[string]Image
	// Dir is where the volumes of pods go; Logs is where a file for each container goes.
	// Both are created.
	Dir, Logs string
}

// KwokArgs are the arguments by which kwok leaves the pods alone that the selector selects.
func KwokArgs(selector string) []string {
	return []string{"--disregard-status-with-label-selector=" + selector}
}

// image finds the image. What follows the name is the tag, which may be any.
func (o Options) image(reference string) (Image, error) {
	name, _, _ := strings.Cut(reference, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		if image, ok := o.Images[name]; ok {
			return image, nil
		}
		name = name[:colon]
	}
	image, ok := o.Images[name]
	if !ok {
		return Image{}, fmt.Errorf("image %q is not known here", reference)
	}
	return image, nil
}

func tokenFile(name string) clientcmdapi.AuthInfo { return clientcmdapi.AuthInfo{TokenFile: name} }

// Kubelet runs pods until it is stopped. Its methods are safe for concurrent use.
type Kubelet struct {
	options   Options
	client    kubernetes.Interface
	addresses *addresses
	stop      context.CancelFunc
	done      sync.WaitGroup
	pods      informers.SharedInformerFactory
	nodes     informers.SharedInformerFactory

	mu      sync.Mutex
	workers map[types.UID]*running // guarded by mu
}

// running is a pod that is run.
type running struct {
	worker *podWorker
	node   string
	cancel context.CancelFunc
}

// Start runs pods from now on.
func Start(ctx context.Context, options Options) (*Kubelet, error) {
	client, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return nil, fmt.Errorf("make client of kubelet: %w", err)
	}
	for _, dir := range []string{options.Dir, options.Logs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create directory of kubelet: %w", err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	k := &Kubelet{
		options: options, client: client, addresses: newAddresses(), stop: stop, workers: map[types.UID]*running{},
		nodes: informers.NewSharedInformerFactory(client, 0),
		pods: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = options.Selector
		})),
	}
	if err := k.follow(ctx); err != nil {
		k.Stop()
		return nil, err
	}
	return k, nil
}

// Stop kills all processes, and says nothing of that to the API server. It returns when
// they have ended.
func (k *Kubelet) Stop() {
	k.stop()
	k.pods.Shutdown()
	k.nodes.Shutdown()
	k.done.Wait()
}

// Kill kills all processes of a pod, as when a container crashes.
func (k *Kubelet) Kill(ctx context.Context, uid types.UID) error {
	k.mu.Lock()
	run, ok := k.workers[uid]
	k.mu.Unlock()
	if !ok {
		return fmt.Errorf("kill pod: none with the UID %s is run", uid)
	}
	var errs []error
	for _, c := range run.worker.containers {
		errs = append(errs, c.kill(ctx))
	}
	return errors.Join(errs...)
}

// follow runs what is bound to a node that exists. Nodes are known before pods are.
func (k *Kubelet) follow(ctx context.Context) error {
	nodes, pods := k.nodes.Core().V1().Nodes(), k.pods.Core().V1().Pods()
	_, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {
			all, _ := pods.Lister().List(labels.Everything()) // It reads from memory.
			for _, pod := range all {
				k.see(ctx, pod)
			}
		},
		DeleteFunc: func(object any) { k.lose(named(object)) },
	})
	if err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	_, err = pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.see(ctx, object) },
		UpdateFunc: func(_, object any) { k.see(ctx, object) },
		DeleteFunc: func(object any) { k.forget(object) },
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	for _, factory := range []informers.SharedInformerFactory{k.nodes, k.pods} {
		factory.StartWithContext(ctx)
		for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return fmt.Errorf("list %s: %w", kind, context.Cause(ctx))
			}
		}
	}
	return nil
}

// see begins to run a pod, or tells its worker of the change.
func (k *Kubelet) see(ctx context.Context, object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return
	}
	node, err := k.nodes.Core().V1().Nodes().Lister().Get(pod.Spec.NodeName)
	if err != nil {
		return // It is no more, or not yet.
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if run, ok := k.workers[pod.UID]; ok {
		run.worker.tell(pod)
		return
	}
	if ctx.Err() != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	k.begin(ctx, pod, addressOf(node))
}

// begin must be called with mu held.
func (k *Kubelet) begin(ctx context.Context, pod *corev1.Pod, hostIP string) {
	ctx, cancel := context.WithCancel(ctx)
	run := &running{worker: newPodWorker(k.options, k.client, pod, hostIP, k.addresses.next()), node: pod.Spec.NodeName, cancel: cancel}
	k.workers[pod.UID] = run
	run.worker.tell(pod)
	k.done.Go(func() {
		defer cancel()
		// What was not written is of a pod that is gone or of a kubelet that stops.
		_ = run.worker.run(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.workers[pod.UID] == run {
			delete(k.workers, pod.UID)
		}
	})
}

// forget kills what is left of a pod that is no more.
func (k *Kubelet) forget(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if run, ok := k.workers[pod.UID]; ok {
		run.cancel()
	}
}

// lose kills all pods of a node that is no more: its machine is.
func (k *Kubelet) lose(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid, run := range k.workers {
		if run.node == node {
			run.cancel()
			delete(k.workers, uid)
		}
	}
}

// named returns the name of an object that was deleted.
func named(object any) string {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return unknown.Key
	}
	if meta, ok := object.(metav1.Object); ok {
		return meta.GetName()
	}
	return ""
}

func addressOf(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}
