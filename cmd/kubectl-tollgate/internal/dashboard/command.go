// Package dashboard is the command that serves a web page about the evictions of a cluster on the
// loopback interface. The page follows the cluster, and runs other commands of the plugin with the
// rights of the user.
package dashboard

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/operate"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// Execute runs the plugin with arguments, writes all output to out, and returns the exit code.
type Execute func(ctx context.Context, args []string, out io.Writer) (code int, err error)

// execute runs this program in a process of its own, which has no input.
func execute(ctx context.Context, args []string, out io.Writer) (int, error) {
	program, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // This program, with a command that the page offers.
	cmd.Stdout, cmd.Stderr = out, out
	// A program for credentials that outlives the command keeps the output open.
	const outlived = 2 * time.Second
	cmd.WaitDelay = outlived
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) {
		return 0, nil // The command itself has succeeded.
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run the command: %w", err)
	}
	return 0, nil
}

// command is one run of the command.
type command struct {
	wants state.Wants
	port  uint16
	out   io.Writer
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a web page that shows evictions, nodes and devices as they change",
		Long: `Serve a web page on a port of the loopback interface until you interrupt the command. The page
shows nodes and devices by their taints, which pods leave next, what holds the others, breakers,
PodDisruptionBudgets and policies, and what each taint has done. It follows the cluster.

Buttons of the page pause, resume, release and approve evictions, and explain pods, nodes and
devices. The page shows the command of a button and its effect, asks for confirmation, and runs the
command with your rights.

The address of the page contains a random token, and the page is served for no other address. Do
not share the address: whoever has it, and can reach the port, acts with your rights.

The exit code is 1 after an error, and otherwise 0. You need the rights for "kubectl tollgate
evictions -A -w", and the page shows more with those for "kubectl tollgate status".`,
		Example: `  kubectl tollgate dashboard
  kubectl tollgate dashboard --context prod --port 8080`,
		Args: cobra.NoArgs,
	}
	connection := cli.ConnectToAll(cmd)
	c.wants.AddFlags(cmd)
	cmd.Flags().Uint16Var(&c.port, "port", 0, "`port` on the loopback interface; 0 for a free one")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		clients, err := connection.Clients(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		clients.Progress.End()
		name, flags, err := connection.Fixed(cmd)
		if err != nil {
			return err
		}
		config, err := connection.Config()
		if err != nil {
			return err
		}
		c.out = cmd.OutOrStdout()
		return c.run(cmd.Context(), clients, &server{
			token: rand.Text(), cluster: name, execute: execute, flags: append(flags, "--tollgate-namespace="+c.wants.Lease), frames: newFrames(),
			same: func() error { return sameCluster(config, flags) },
		})
	}
	return cmd
}

// sameCluster returns an error if the flags of a connection lead to another cluster than they did.
func sameCluster(before *rest.Config, flags []string) error {
	config, err := cli.ConfigOf(flags)
	if err != nil {
		return err
	}
	if config.Host != before.Host || config.CAFile != before.CAFile || !bytes.Equal(config.CAData, before.CAData) {
		return errors.New("the kubeconfig has another cluster now than this page: start the dashboard again")
	}
	return nil
}

// run serves the page until ctx is done.
func (c *command) run(ctx context.Context, clients *cli.Clients, s *server) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(c.port))))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.host = listener.Addr().String()
	if _, err := fmt.Fprintf(c.out, "http://%s/%s/\nThe page acts with your rights, so do not share its address. Interrupt this command to end it.\n", s.host, s.token); err != nil {
		_ = listener.Close()
		return fmt.Errorf("write the address: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	const headerTimeout, idleTimeout, maxHeader, mostConnections = 10 * time.Second, time.Minute, 16 << 10, 128
	serving := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	context.AfterFunc(ctx, func() { _ = serving.Close() })
	group.Go(func() error {
		if err := serving.Serve(netutil.LimitListener(listener, mostConnections)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	policies := &policyReader{clients: clients}
	group.Go(func() error { return policies.run(ctx) })
	group.Go(func() error {
		show := &show{policies: policies, frames: s.frames}
		err := evictions.Watch(ctx, clients, c.wants, show.update)
		if err == nil {
			err = ctx.Err() // Ends the server.
		}
		return err
	})
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// policyReader reads policies and webhooks at intervals.
type policyReader struct {
	clients *cli.Clients

	mu      sync.Mutex
	objects operate.Objects
	// err is the error of the last try.
	err error
}

// reread is the interval at which policies and webhooks are read.
const reread = 5 * time.Second

// run reads until ctx is done.
func (r *policyReader) run(ctx context.Context) error {
	ticker := time.NewTicker(reread)
	defer ticker.Stop()
	for {
		requests, stop := context.WithTimeout(ctx, reread)
		objects, err := operate.ReadObjects(requests, r.clients)
		stop()
		r.mu.Lock()
		if r.err = err; err == nil {
			r.objects = *objects
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// get returns what was read last, and the error of the last try.
func (r *policyReader) get() (*operate.Objects, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	objects := r.objects
	return &objects, r.err
}

// show turns what evictions.Watch reports into frames of the page.
type show struct {
	policies *policyReader
	frames   *frames

	last time.Time
	// first is the state of Tollgate in the first frame, on which the watches depend; nil before.
	first *state.Tollgate
}

// shortest is the minimum interval of two frames.
const shortest = 500 * time.Millisecond

// update publishes a frame, unless the last one is recent: another update follows within a second.
func (s *show) update(at *evictions.Frame) error {
	if at.Now.Sub(s.last) < shortest {
		return nil
	}
	s.last = at.Now
	objects, err := s.policies.get()
	if err != nil {
		at.Lacks = append(at.Lacks, "policies and webhooks may be old: "+err.Error())
	}
	tollgate := at.Cluster.Tollgate
	if s.first == nil {
		s.first = &tollgate
	}
	if tollgate.Installed != s.first.Installed {
		at.Lacks = append(at.Lacks, "Tollgate was installed or removed since this page began: start the dashboard again to see what it holds")
	}
	f, err := frameOf(at, objects)
	if err == nil {
		s.frames.publish(f)
	}
	return err
}
