package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// exportedKinds are the kinds of policies that can be exported, a PlacementPolicy by its guard.
var exportedKinds = []string{"TolerationPolicy", "TaintPolicy", "PlacementPolicy"}

// readFile returns the policies in a file, or in standard input. Two of one kind and name are an error.
func readFile(file string, stdin io.Reader) (policies, error) {
	objects, err := cli.ReadManifests([]string{file}, stdin)
	if err != nil {
		return policies{}, err
	}
	objects = slices.DeleteFunc(objects, func(o cli.Object) bool { return !slices.Contains(exportedKinds, o.GetKind()) })
	positions := map[string]cli.Position{}
	for _, o := range objects {
		key := policy.Ref(o.GetKind(), o.GetName())
		if at, twice := positions[key]; twice {
			return policies{}, fmt.Errorf("%s: %s is in %s already", o.Position, key, at)
		}
		positions[key] = o.Position
	}
	found, err := (Policies{}).With(objects)
	return found.apart(), err
}

// readCluster returns the policies in a cluster. A PlacementPolicy with a guard has to be valid.
func readCluster(ctx context.Context, clients *cli.Clients) (policies, error) {
	found := Policies{}
	err := found.readAll(ctx, clients, "-f", "tolerationpolicies", "taintpolicies", "placementpolicies")
	clients.Progress.End()
	if err != nil {
		return policies{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		placing, ok := found[key].(*v1alpha1.PlacementPolicy)
		if !ok || placing.Spec.Guard == nil {
			continue
		}
		if errs := placement.ValidatePolicy(placing); len(errs) > 0 {
			return policies{}, fmt.Errorf("read %s: %w", key, errs.ToAggregate())
		}
	}
	return found.apart(), nil
}

// write writes objects. It is an error if two policies are exported under one name, as a guard and
// a policy with a name like that of its export.
func write(out io.Writer, objects []runtime.Object) error {
	origins := map[string]string{}
	for _, object := range objects {
		about, err := meta.Accessor(object)
		if err != nil {
			return fmt.Errorf("read what is exported: %w", err)
		}
		name, origin := object.GetObjectKind().GroupVersionKind().Kind+" "+about.GetName(), about.GetAnnotations()[vap.ExportedFrom]
		if other := cmp.Or(origins[name], origin); other != origin {
			return fmt.Errorf("%s and %s would both be exported as %s: rename one of them, or export one at a time", other, origin, name)
		}
		origins[name] = origin
	}
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		if _, err = fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}
