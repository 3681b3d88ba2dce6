package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Options says where the network is reached, and how late it hears of things.
type Options struct {
	// Socket is the path of the unix socket that the API server asks on. It must not
	// exist.
	Socket string
	// Config is the access by which Services and EndpointSlices are watched.
	Config *rest.Config
	// Delay is after how long a change of Services or endpoints is known, besides
	// what it takes to hear of it: on many nodes the slowest counts.
	Delay time.Duration
}

// Network takes connections until it is stopped. Its methods are safe for concurrent use.
type Network struct {
	listener net.Listener
	stop     context.CancelFunc
	done     sync.WaitGroup
	// current is what is known of endpoints, Delay late.
	current atomic.Pointer[table]

	mu      sync.Mutex
	learned uint64                // of the last table that was read; guarded by mu
	applied uint64                // of the table that is current; guarded by mu
	open    map[net.Conn]struct{} // guarded by mu
}

// Start takes connections from now on, and returns once it knows what Services there are.
func Start(ctx context.Context, options Options) (*Network, error) {
	client, err := kubernetes.NewForConfig(options.Config)
	if err != nil {
		return nil, fmt.Errorf("make client of pod network: %w", err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", options.Socket)
	if err != nil {
		return nil, fmt.Errorf("listen for the API server: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	n := &Network{listener: listener, stop: stop, open: map[net.Conn]struct{}{}}
	n.current.Store(&table{})
	n.done.Go(func() { n.accept(ctx) })
	if err := n.follow(ctx, client, options.Delay); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// Stop ends all connections, and returns when that is done.
func (n *Network) Stop() error {
	n.stop()
	err := n.listener.Close()
	n.mu.Lock()
	for conn := range n.open {
		_ = conn.Close()
	}
	n.mu.Unlock()
	n.done.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop pod network: %w", err)
	}
	return nil
}

// follow keeps the table as Services and EndpointSlices are.
func (n *Network) follow(ctx context.Context, client kubernetes.Interface, delay time.Duration) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	services, slices := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	changed := func() {
		n.learn(delay, func() table {
			// Neither lister fails: they read from memory.
			allServices, _ := services.Lister().List(labels.Everything())
			allSlices, _ := slices.Lister().List(labels.Everything())
			return tableOf(allServices, allSlices)
		})
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), slices.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch endpoints: %w", err)
		}
	}
	factory.StartWithContext(ctx)
	n.done.Go(func() {
		<-ctx.Done()
		factory.Shutdown()
	})
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("list %s: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

// learn reads a table, and makes it current after the delay, unless a later one is by then.
func (n *Network) learn(delay time.Duration, read func() table) {
	n.mu.Lock()
	n.learned++
	number, next := n.learned, read()
	n.mu.Unlock()
	time.AfterFunc(delay, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if number > n.applied {
			n.applied = number
			n.current.Store(&next)
		}
	})
}
