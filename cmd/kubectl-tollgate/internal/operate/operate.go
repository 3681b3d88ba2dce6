// Package operate has the command that shows what Tollgate does and holds, on one screen (status), and
// the commands that say which evictions it carries out: pause, resume, release and approve.
package operate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// command has what the commands share. The status command writes nothing: it uses the streams, the
// clock, the format and the namespace of Tollgate alone.
type command struct {
	cli.WriteFlags

	yes   bool
	wants state.Wants
	clock clock.PassiveClock

	in         io.Reader
	out, notes io.Writer

	// resource is the resource of Tollgate that the command writes, and client the client for it.
	resource schema.GroupResource
	client   dynamic.ResourceInterface
}

// addFlags adds the flags that the commands share. Written describes the object of -o, and asks is
// true for a command that asks for confirmation.
func (c *command) addFlags(cmd *cobra.Command, written string, asks bool) {
	if asks {
		cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	}
	c.AddFlags(cmd, "`format` of what is "+written,
		"`none`, client (write nothing) or server (have the API server check it, and write nothing)")
	c.wants.AddFlags(cmd)
}

// build has a command read its arguments, connect, and run. It returns the connection.
func (c *command) build(cmd *cobra.Command, complete func([]string) error, run func(context.Context, *cli.Clients) error) *cli.Connection {
	connection := cli.ConnectToAll(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := complete(args); err != nil {
			return err
		}
		c.clock, c.in, c.out, c.notes = clock.RealClock{}, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		clients, err := connection.Clients(c.notes)
		if err != nil {
			return err
		}
		return run(cmd.Context(), clients)
	}
	return connection
}

// connect sets the resource and its client, or returns an error if the API server does not serve it.
func (c *command) connect(ctx context.Context, clients *cli.Clients, resource schema.GroupResource, kinds string) error {
	version := v1alpha1.GroupVersion.Version
	c.resource, c.client = resource, clients.Dynamic.Resource(resource.WithVersion(version))
	_, err := clients.Version(ctx, resource, version)
	if errors.Is(err, cli.ErrNotServed) {
		return fmt.Errorf("the API server does not serve %s: Tollgate holds nothing here until its CustomResourceDefinitions are installed, and it runs", kinds)
	}
	return err
}

// confirm writes notes, and asks a question, except in a dry run and with --yes. If the answer is no,
// the error says what was not done.
func (c *command) confirm(ctx context.Context, notes []string, question, notDone string) error {
	if err := cli.WriteWrapped(c.notes, "", notes); err != nil || c.DryRun != cli.DryRunNone || c.yes {
		return err
	}
	if !cli.Terminal(c.in) {
		return errors.New("nobody can be asked, since the input is no terminal: give --yes")
	}
	agreed, err := cli.Ask(ctx, c.in, c.notes, question)
	if err == nil && !agreed {
		err = errors.New(notDone)
	}
	return err
}

// print writes an object that was created, configured or deleted, as done says.
func (c *command) print(object *unstructured.Unstructured, done string) error {
	return c.WriteObjects(c.out, cli.Written{Object: object, Done: done})
}

// create creates an object, unless in a dry run. What is the object in errors.
func (c *command) create(ctx context.Context, typed any, what string, options metav1.CreateOptions) (*unstructured.Unstructured, error) {
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(typed) // The types of the API have no errors.
	delete(fields, "status")
	object := &unstructured.Unstructured{Object: fields}
	if c.DryRun == cli.DryRunClient {
		return object, nil
	}
	options.DryRun = c.RequestDryRun()
	object, err := c.client.Create(ctx, object, options)
	return object, cli.Failed(err, "create "+what, "create", c.resource)
}
