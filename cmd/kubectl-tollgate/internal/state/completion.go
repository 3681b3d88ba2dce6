package state

import (
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// named are the resources of the objects whose names complete arguments, by the word for their kind.
var named = map[string]schema.GroupResource{
	"pod": PodResource, "claim": ClaimResource, "node": NodeResource, "device": SliceResource,
	"rule": informer.RuleResource, "patch": PatchResource, "policy": PolicyResource,
}

// namesOf returns the names of objects that begin with a text; the names of devices are in
// ResourceSlices. Errors return no names: a shell shows none.
func namesOf(ctx context.Context, connection *cli.Connection, kind, begin string) []string {
	const (
		page    = 500
		patient = 5 * time.Second
	)
	ctx, stop := context.WithTimeout(ctx, patient)
	defer stop()
	resource, found := named[kind]
	if !found {
		return nil
	}
	clients, err := connection.Clients(io.Discard)
	if err != nil {
		return nil
	}
	version, err := Version(ctx, clients, resource)
	if err != nil {
		return nil
	}
	namespace := metav1.NamespaceAll
	if resource == PodResource || resource == ClaimResource {
		if namespace, _, err = connection.Namespace(); err != nil {
			return nil
		}
	}
	list, err := clients.Dynamic.Resource(resource.WithVersion(version)).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: page})
	if err != nil {
		return nil
	}
	var names []string
	for _, item := range list.Items {
		if resource != SliceResource {
			names = append(names, item.GetName())
			continue
		}
		slice, err := cli.As[resourcev1.ResourceSlice](&item)
		if err != nil {
			continue
		}
		for _, d := range slice.Spec.Devices {
			names = append(names, device.ID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Name: d.Name}.String())
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begin) })
	slices.Sort(names)
	return slices.Compact(names)
}

// CompleteKinds completes the arguments of a command: a word, and the name of an object of that kind.
func CompleteKinds(cmd *cobra.Command, connection *cli.Connection, words ...string) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) (found []string, _ cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			found = words
		case 1:
			found = namesOf(cmd.Context(), connection, args[0], begin)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNames completes the first arguments of a command with the names of objects of a kind, up to
// most of them.
func CompleteNames(cmd *cobra.Command, connection *cli.Connection, kind string, most int) {
	cmd.ValidArgsFunction = completeNames(connection, kind, most)
}

// CompleteFlags completes flags, each with the names of the objects of the kind that it is called by.
func CompleteFlags(cmd *cobra.Command, connection *cli.Connection, kinds ...string) {
	for _, kind := range kinds {
		if err := cmd.RegisterFlagCompletionFunc(kind, completeNames(connection, kind, math.MaxInt)); err != nil {
			panic(err) // The command has the flag, and completes it once.
		}
	}
}

// completeNames returns the completion of an argument, or of a flag after arguments, with the names of
// objects of a kind. It finds none after most arguments.
func completeNames(connection *cli.Connection, kind string, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) (found []string, _ cobra.ShellCompDirective) {
		if len(args) < most {
			found = namesOf(cmd.Context(), connection, kind, begin)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
