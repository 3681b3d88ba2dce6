// Package cli has the shared parts of the commands: they connect as kubectl does, read the
// cluster as the user in chunks, read manifests, report progress and errors, and write tables and
// objects.
//
// Lines of a table have at most Width characters, unless it is wide, and no trailing blanks.
// Cells are passed through Clean.
package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // The auth providers that kubectl has, for kubeconfigs with OIDC.
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// A Connection has kubectl's flags for the cluster and the user, with the same names and
// defaults.
type Connection struct {
	flags *genericclioptions.ConfigFlags
}

// Connect adds the flags of a connection to a command.
func Connect(cmd *cobra.Command) *Connection {
	return connect(cmd, genericclioptions.NewConfigFlags(true))
}

// ConnectToAll is Connect for a command without --namespace.
func ConnectToAll(cmd *cobra.Command) *Connection {
	flags := genericclioptions.NewConfigFlags(true)
	flags.Namespace = nil
	return connect(cmd, flags)
}

// ConnectAsOneself is Connect without impersonation and --cluster, for a command that defines
// --as, --as-group and --cluster itself.
func ConnectAsOneself(cmd *cobra.Command) *Connection {
	flags := genericclioptions.NewConfigFlags(true)
	flags.Impersonate, flags.ImpersonateUID, flags.ImpersonateGroup = nil, nil, nil
	flags.ImpersonateUserExtra, flags.ClusterName = nil, nil
	return connect(cmd, flags)
}

func connect(cmd *cobra.Command, flags *genericclioptions.ConfigFlags) *Connection {
	flags.AddFlags(cmd.Flags())
	// Client libraries log failed requests, which the command returns as errors.
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		cmd.SetContext(logr.NewContext(cmd.Context(), logr.Discard()))
	}
	return &Connection{flags: flags}
}

// Namespace returns the namespace of the command line, else of the context, else default. Given
// reports whether the command line sets it.
func (c *Connection) Namespace() (name string, given bool, err error) {
	name, given, err = c.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", false, fmt.Errorf("find the namespace: %w", err)
	}
	return name, given, nil
}

// Fixed returns the name of the cluster for people, which is that of the context or the address of the
// API server, and the flags with which another command has the same connection, also when the user
// changes the current context meanwhile.
func (c *Connection) Fixed(cmd *cobra.Command) (name string, args []string, err error) {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(true).AddFlags(known)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if known.Lookup(f.Name) == nil {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			args = append(args, "--"+f.Name+"="+value)
		}
	})
	config, err := c.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "", nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	if *c.flags.Context == "" && config.CurrentContext != "" {
		args = append(args, "--context="+config.CurrentContext)
	}
	if name = cmp.Or(*c.flags.Context, config.CurrentContext); name != "" && *c.flags.APIServer == "" && *c.flags.ClusterName == "" {
		return name, args, nil
	}
	client, err := c.Config()
	if err != nil {
		return "", nil, err
	}
	return client.Host, args, nil
}

// ConfigOf returns the configuration of clients for the flags of a command line.
func ConfigOf(args []string) (*rest.Config, error) {
	cmd := &cobra.Command{}
	connection := Connect(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return nil, fmt.Errorf("read the flags of the connection: %w", err)
	}
	return connection.Config()
}

// Config returns the configuration of clients.
func (c *Connection) Config() (*rest.Config, error) {
	config, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w (give --kubeconfig and --context, or set KUBECONFIG)", err)
	}
	// Sequential requests need no client-side rate limit.
	config.QPS = -1
	return config, nil
}

// Clients are clients with the user's credentials. Kubernetes uses protobuf, for large lists;
// Dynamic is for kinds that are not served everywhere, or not in one version.
type Clients struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	// Progress may be nil.
	Progress *Progress
}

// Clients returns clients that write warnings, and on a terminal progress, to notes.
func (c *Connection) Clients(notes io.Writer) (*Clients, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NewWarningWriter(notes, rest.WarningWriterOptions{Deduplicate: true})
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for Tollgate's objects: %w", err)
	}
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	clientset, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return nil, fmt.Errorf("make a client for Kubernetes: %w", err)
	}
	return &Clients{Kubernetes: clientset, Dynamic: custom, Progress: NewProgress(notes, clock.RealClock{})}, nil
}
