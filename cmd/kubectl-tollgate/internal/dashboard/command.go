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

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var wants state.Wants
	var port uint16
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
	wants.AddFlags(cmd)
	cmd.Flags().Uint16Var(&port, "port", 0, "`port` on the loopback interface; 0 for a free one")
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
		return run(cmd.Context(), clients, wants, port, cmd.OutOrStdout(), &server{
			token: rand.Text(), cluster: name, execute: execute, flags: append(flags, "--tollgate-namespace="+wants.Lease), frames: newFrames(),
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
func run(ctx context.Context, clients *cli.Clients, wants state.Wants, port uint16, out io.Writer, s *server) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.host = listener.Addr().String()
	if _, err := fmt.Fprintf(out, "http://%s/%s/\nThe page acts with your rights, so do not share its address. Interrupt this command to end it.\n", s.host, s.token); err != nil {
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
	show := &show{clients: clients, frames: s.frames}
	group.Go(func() error { return show.read(ctx) })
	group.Go(func() error {
		err := evictions.Watch(ctx, clients, wants, show.update)
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

// show reads policies and webhooks at intervals, and turns what evictions.Watch reports into frames of
// the page.
type show struct {
	clients *cli.Clients
	frames  *frames

	mu sync.Mutex // guards objects and err
	// objects are the policies and webhooks that were read last. err is the error of the last try.
	objects operate.Objects
	err     error

	last time.Time
	// began is true if Tollgate was installed at the first frame, on which the watches depend; nil before.
	began *bool
}

// reread is the interval at which policies and webhooks are read.
const reread = 5 * time.Second

// read reads policies and webhooks until ctx is done.
func (s *show) read(ctx context.Context) error {
	ticker := time.NewTicker(reread)
	defer ticker.Stop()
	for {
		requests, stop := context.WithTimeout(ctx, reread)
		objects, err := operate.ReadObjects(requests, s.clients)
		stop()
		s.mu.Lock()
		if s.err = err; err == nil {
			s.objects = *objects
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// shortest is the minimum interval of two frames.
const shortest = 500 * time.Millisecond

// update publishes a frame, unless the last one is recent: another update follows within a second.
func (s *show) update(at *evictions.Frame) error {
	if at.Now.Sub(s.last) < shortest {
		return nil
	}
	s.last = at.Now
	s.mu.Lock()
	objects, err := s.objects, s.err
	s.mu.Unlock()
	if err != nil {
		at.Lacks = append(at.Lacks, "policies and webhooks may be old: "+err.Error())
	}
	installed := at.Cluster.Tollgate.Installed
	if s.began == nil {
		s.began = &installed
	}
	if installed != *s.began {
		at.Lacks = append(at.Lacks, "Tollgate was installed or removed since this page began: start the dashboard again to see what it holds")
	}
	f, err := frameOf(at, &objects)
	if err == nil {
		s.frames.publish(f)
	}
	return err
}
