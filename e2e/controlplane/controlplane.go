package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/process"
)

// ErrRunning is why a control plane is not started in a directory where one is
// up already.
var ErrRunning = errors.New("a control plane runs already")

// ControlPlane is a control plane that was started. Its methods are safe for
// concurrent use.
type ControlPlane struct {
	dir      string
	progress func(string)
	config   *rest.Config

	mu        sync.Mutex // guards what follows, and is not held while anything is waited for
	state     *state
	processes map[string]*process.Process
}

// Start starts a control plane and returns when it can be used: the API server
// is ready, the scheduler and the controllers are healthy, and all nodes are
// Ready. When it fails it leaves nothing running, only the logs.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if err := options.complete(); err != nil {
		return nil, err
	}
	c, err := start(ctx, options)
	// Between being found free and being listened on, a port can be lost to
	// another program. New ones are looked for, once.
	if errors.Is(err, errAddressInUse) && ctx.Err() == nil {
		options.Progress("a port was taken meanwhile, starting again on others")
		c, err = start(ctx, options)
	}
	return c, err
}

func start(ctx context.Context, options Options) (*ControlPlane, error) {
	c, err := prepare(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := c.bringUp(ctx); err != nil {
		// What has been started goes even if it is ctx that has ended.
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// prepare writes all that the components read.
func prepare(ctx context.Context, options Options) (*ControlPlane, error) {
	if running, err := Open(options.Dir); err == nil && len(running.RunningPIDs()) > 0 {
		return nil, fmt.Errorf("start control plane in %s: %w", options.Dir, ErrRunning)
	}
	if err := clean(options.Dir, stateEntries()...); err != nil {
		return nil, err
	}
	if err := clean(options.Dir, "logs"); err != nil {
		return nil, err
	}
	for _, dir := range []string{"pki", "logs", "kwok"} {
		if err := os.MkdirAll(filepath.Join(options.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("create directory of control plane: %w", err)
		}
	}
	free, err := freePorts(ctx)
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		ca.write(pkiIn(options.Dir)),
		writeKubeconfigs(options.Dir, httpsURL(free.APIServer), ca),
		writeKwokConfig(options.Dir),
		writeEgressConfig(options.Dir, options.PodNetwork),
	)
	if err != nil {
		return nil, err
	}
	config, err := adminConfig(options.Dir)
	if err != nil {
		return nil, err
	}
	return &ControlPlane{
		dir:       options.Dir,
		progress:  options.Progress,
		config:    config,
		processes: map[string]*process.Process{},
		state: &state{
			Program: options.Program, Nodes: max(options.Nodes, 0), Eviction: options.Eviction,
			ExtraArgs: options.ExtraArgs, PodNetwork: options.PodNetwork, Detached: options.Detached, Ports: free,
		},
	}, nil
}

// bringUp starts the components in their order and creates the nodes.
func (c *ControlPlane) bringUp(ctx context.Context) error {
	for _, name := range []string{Etcd, APIServer} {
		if err := c.run(ctx, name); err != nil {
			return err
		}
	}
	last := []string{ControllerManager, Scheduler, Kwok}
	for _, name := range last {
		if err := c.launch(name); err != nil {
			return err
		}
	}
	for _, name := range last {
		if err := c.waitHealthy(ctx, name); err != nil {
			return err
		}
	}
	names := make([]string, c.state.Nodes)
	for i := range names {
		names[i] = NodeName(i + 1)
	}
	if err := c.AddNodes(ctx, names...); err != nil {
		return err
	}
	c.progress(fmt.Sprintf("%d nodes are ready", len(names)))
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return c.waitNamespace(ctx, client, metav1.NamespaceDefault)
}

// Open returns the control plane that was started in the directory, by this or
// another program. It may have died since, in whole or in part.
func Open(dir string) (*ControlPlane, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve directory %s: %w", dir, err)
	}
	s, err := readState(dir)
	if err != nil {
		return nil, err
	}
	// The kubeconfig may be gone when only leftovers are to be stopped.
	config, err := adminConfig(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	c := &ControlPlane{
		dir: dir, progress: func(string) {}, config: config, state: s,
		processes: map[string]*process.Process{},
	}
	for _, r := range s.Processes {
		c.processes[r.Spec.Name] = process.Attach(r.Spec, r.Identity)
	}
	return c, nil
}

// Dir is the directory that holds everything.
func (c *ControlPlane) Dir() string { return c.dir }

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return kubeconfigOf(c.dir, "admin") }

// Program is the binary that all components are, kubectl too.
func (c *ControlPlane) Program() string { return c.state.Program }

// Eviction says who acts on NoExecute taints.
func (c *ControlPlane) Eviction() Eviction { return c.state.Eviction }

// Nodes is how many nodes the control plane was started with.
func (c *ControlPlane) Nodes() int { return c.state.Nodes }

// SchedulerProgram is the kube-scheduler that ReplaceScheduler was given, or empty while
// the control plane's own schedules.
func (c *ControlPlane) SchedulerProgram() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Scheduler.Program
}

// LogPath is the log file of a process.
func (c *ControlPlane) LogPath(name string) string { return logOf(c.dir, name) }

// RESTConfig is the administrator's access, in a copy of the caller's own. Its
// clients are not throttled.
func (c *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// As is the access of another user, by impersonation: admission and
// authorization see that user, with "system:authenticated" among the groups.
func (c *ControlPlane) As(user string, groups ...string) *rest.Config {
	config := c.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(slices.Clone(groups), "system:authenticated")}
	return config
}

// URL is where a component serves HTTPS.
func (c *ControlPlane) URL(component string) string {
	return httpsURL(map[string]int{
		Etcd:              c.state.Ports.Etcd,
		APIServer:         c.state.Ports.APIServer,
		ControllerManager: c.state.Ports.ControllerManager,
		Scheduler:         c.state.Ports.Scheduler,
	}[component])
}

// Detached says whether the processes outlive the program that started them.
func (c *ControlPlane) Detached() bool { return c.state.Detached }
