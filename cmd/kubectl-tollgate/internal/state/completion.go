package state

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/tracker/informer"
)

// named are the objects whose names complete arguments, by the word for their kind.
var named = map[string]struct {
	resource   schema.GroupResource
	versions   []string
	namespaced bool
	// names returns the names for an object; nil for its own name.
	names func(*unstructured.Unstructured) []string
}{
	"pod":    {resource: PodResource, versions: []string{"v1"}, namespaced: true},
	"claim":  {resource: ClaimResource, versions: []string{"v1"}, namespaced: true},
	"node":   {resource: NodeResource, versions: []string{"v1"}},
	"device": {resource: SliceResource, versions: []string{"v1"}, names: deviceNames},
	"rule":   {resource: informer.RuleResource, versions: RuleVersions()},
	"patch":  {resource: PatchResource, versions: []string{v1alpha1.GroupVersion.Version}},
	"policy": {resource: PolicyResource, versions: []string{v1alpha1.GroupVersion.Version}},
}

// deviceNames returns the names of the devices of a ResourceSlice.
func deviceNames(object *unstructured.Unstructured) []string {
	slice, err := cli.As[resourcev1.ResourceSlice](object)
	if err != nil {
		return nil
	}
	var names []string
	for _, d := range slice.Spec.Devices {
		names = append(names, device.ID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Name: d.Name}.String())
	}
	return names
}

// namesOf returns the names of objects that begin with a text. Errors return no names: a shell shows
// none.
func namesOf(ctx context.Context, connection *cli.Connection, kind, begin string) []string {
	const (
		page    = 500
		patient = 5 * time.Second
	)
	ctx, stop := context.WithTimeout(ctx, patient)
	defer stop()
	of, found := named[kind]
	if !found {
		return nil
	}
	clients, err := connection.Clients(io.Discard)
	if err != nil {
		return nil
	}
	version, err := clients.Version(ctx, of.resource, of.versions...)
	if err != nil {
		return nil
	}
	namespace := metav1.NamespaceAll
	if of.namespaced {
		if namespace, _, err = connection.Namespace(); err != nil {
			return nil
		}
	}
	list, err := clients.Dynamic.Resource(of.resource.WithVersion(version)).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: page})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		if of.names == nil {
			names = append(names, list.Items[i].GetName())
		} else {
			names = append(names, of.names(&list.Items[i])...)
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
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) (found []string, _ cobra.ShellCompDirective) {
		if len(args) < most {
			found = namesOf(cmd.Context(), connection, kind, begin)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFlag completes a flag with the names of objects of a kind.
func CompleteFlag(cmd *cobra.Command, connection *cli.Connection, flag, kind string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		return namesOf(cmd.Context(), connection, kind, begin), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // The command has the flag, and completes it once.
	}
}
