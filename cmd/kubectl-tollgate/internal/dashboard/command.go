// Package dashboard is the command that serves a web page about the evictions of a cluster on the
// loopback interface. The page follows the cluster, and runs other commands of the plugin with the
// rights of the user.
package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/status"
)

// Execute runs the plugin with arguments. It writes all output to out.
type Execute func(ctx context.Context, args []string, out io.Writer) error

// command is one run of the command.
type command struct {
	wants state.Wants
	port  uint16
	out   io.Writer
}

// NewCommand returns the command. The page runs other commands with execute.
func NewCommand(execute Execute) *cobra.Command {
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
		name, err := connection.Name()
		if err != nil {
			return err
		}
		c.out = cmd.OutOrStdout()
		return c.run(cmd.Context(), clients, &server{
			token: rand.Text(), cluster: name, execute: execute, flags: cli.ConnectionFlags(cmd), frames: newFrames(),
		})
	}
	return cmd
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
	const headerTimeout, idleTimeout, maxHeader = 10 * time.Second, time.Minute, 16 << 10
	serving := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	context.AfterFunc(ctx, func() { _ = serving.Close() })
	group.Go(func() error {
		if err := serving.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		show := &show{clients: clients, clock: clock.RealClock{}, frames: s.frames}
		err := evictions.Watch(ctx, clients, c.wants, func(at *evictions.Frame) error { return show.update(ctx, at) })
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

// show turns what evictions.Watch reports into frames of the page.
type show struct {
	clients *cli.Clients
	clock   clock.PassiveClock
	frames  *frames

	last    time.Time
	read    time.Time
	objects *status.Objects
}

const (
	// shortest is the minimum interval of two frames.
	shortest = 500 * time.Millisecond
	// reread is the interval at which policies and webhooks are read.
	reread = 5 * time.Second
)

// update publishes a frame, unless the last one is recent: another update follows within a second.
func (s *show) update(ctx context.Context, at *evictions.Frame) error {
	if at.Now.Sub(s.last) < shortest {
		return nil
	}
	if s.objects == nil || at.Now.Sub(s.read) >= reread {
		requests, stop := context.WithTimeout(ctx, reread)
		objects, err := status.ReadObjects(requests, s.clients)
		stop()
		switch {
		case err == nil:
			s.objects = objects
		case s.objects == nil && ctx.Err() == nil:
			return err
		case ctx.Err() == nil:
			at.Lacks = append(at.Lacks, "policies may be old: "+err.Error())
		}
		s.read = s.clock.Now()
	}
	if s.objects == nil {
		return nil
	}
	s.last = at.Now
	f, err := frameOf(at, s.objects)
	if err == nil {
		s.frames.publish(f)
	}
	return err
}
