// Package cli has the shared parts of the commands: they connect as kubectl does, read the
// cluster as the user in chunks, read manifests, report progress and errors, and write tables and
// objects.
//
// Lines of a table have at most Width characters, unless it is wide, and no trailing blanks.
// Cells are passed through Clean.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // The auth providers that kubectl has, for kubeconfigs with OIDC.
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
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

// ErrNotServed means that a required resource is not served.
var ErrNotServed = errors.New("the API server does not serve it")

// Version returns the first of the versions in which a resource is served, or ErrNotServed.
// Discovery is permitted to all users; a list of an unserved resource may be forbidden.
func (c *Clients) Version(ctx context.Context, resource schema.GroupResource, versions ...string) (string, error) {
	served := discovery.ToServerResourcesInterfaceWithContext(c.Kubernetes.Discovery())
	for _, version := range versions {
		group := resource.WithVersion(version).GroupVersion().String()
		list, err := served.ServerResourcesForGroupVersionWithContext(ctx, group)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("ask what is served of %s: %w", group, err)
		}
		if slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == resource.Resource }) {
			return version, nil
		}
	}
	return "", fmt.Errorf("list %s in version %s: %w", resource, versions[0], ErrNotServed)
}

// Each calls take for each object of a list of a namespace, or of all if it is empty. An object
// that is kept does not keep its page in memory. Errors have advice.
func Each[T, L runtime.Object](
	ctx context.Context, c *Clients, resource schema.GroupResource, namespace string, list func(context.Context, metav1.ListOptions) (L, error), take func(T) error,
) error {
	count := 0
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	})
	// One page is buffered while the next is read: pages can be large.
	pages.PageBufferSize = 1
	err := pages.EachListItemWithAlloc(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		typed, ok := object.(T)
		if !ok {
			return fmt.Errorf("got %T", object)
		}
		count++
		c.Progress.Tell(count, resource.Resource+" read")
		return take(typed)
	})
	return FailedIn(err, namespace, "list", resource)
}

// EachCustom is Each for a resource without a typed client.
func (c *Clients) EachCustom(ctx context.Context, resource schema.GroupVersionResource, take func(*unstructured.Unstructured) error) error {
	return Each(ctx, c, resource.GroupResource(), metav1.NamespaceAll, c.Dynamic.Resource(resource).List, take)
}

// EachServed is EachCustom for the first of the versions in which a resource is served, which it
// returns.
func (c *Clients) EachServed(
	ctx context.Context, resource schema.GroupResource, take func(*unstructured.Unstructured) error, versions ...string,
) (version string, err error) {
	if version, err = c.Version(ctx, resource, versions...); err != nil {
		return "", err
	}
	return version, c.EachCustom(ctx, resource.WithVersion(version), take)
}

// AppendAll appends all objects of one of Tollgate's resources.
func AppendAll[T any](ctx context.Context, c *Clients, resource schema.GroupResource, objects *[]T) error {
	_, err := c.EachServed(ctx, resource, func(object *unstructured.Unstructured) error {
		typed, err := As[T](object)
		if err == nil {
			*objects = append(*objects, *typed)
		}
		return err
	}, v1alpha1.GroupVersion.Version)
	return err
}

// As converts an object to T.
func As[T any](object *unstructured.Unstructured) (*T, error) {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return typed, nil
}
