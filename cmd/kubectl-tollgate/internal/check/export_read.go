package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// policies are the policies that can be exported, those that guards of PlacementPolicies stand
// for included.
type policies struct {
	tolerations []v1alpha1.TolerationPolicy
	taints      []v1alpha1.TaintPolicy
	placements  []v1alpha1.PlacementPolicy
}

// addGuards adds the policies that guards stand for. A PlacementPolicy with a guard has to be
// valid.
func (p *policies) addGuards() error {
	for _, placing := range p.placements {
		tolerations, taints := placement.Guard(&placing)
		if tolerations == nil {
			continue
		}
		if errs := placement.ValidatePolicy(&placing); len(errs) > 0 {
			return fmt.Errorf("read %s: %w", tolerations.Name, errs.ToAggregate())
		}
		p.tolerations = append(p.tolerations, *tolerations)
		if taints != nil {
			p.taints = append(p.taints, *taints)
		}
	}
	return nil
}

func (p *policies) len() int { return len(p.tolerations) + len(p.taints) }

// readFile returns the policies in a file, or in standard input.
func readFile(file string, stdin io.Reader) (policies, error) {
	objects, err := cli.ReadManifests([]string{file}, stdin)
	if err != nil {
		return policies{}, err
	}
	var found policies
	for _, o := range objects {
		if o.GetAPIVersion() != v1alpha1.GroupVersion.String() {
			continue
		}
		switch o.GetKind() {
		case "TolerationPolicy":
			err = decode(&o, &found.tolerations)
		case "TaintPolicy":
			err = decode(&o, &found.taints)
		case "PlacementPolicy":
			err = decode(&o, &found.placements)
		}
		if err != nil {
			return policies{}, err
		}
	}
	return found, found.addGuards()
}

func decode[T any](object *cli.Object, into *[]T) error {
	var one T
	if err := cli.DecodeStrict(object.Unstructured, &one); err != nil {
		return fmt.Errorf("read %s: %w", object.GetKind(), err)
	}
	*into = append(*into, one)
	return nil
}

// readCluster returns the policies in a cluster.
func readCluster(ctx context.Context, clients *cli.Clients) (policies, error) {
	var found policies
	err := readKind(ctx, clients, "tolerationpolicies", &found.tolerations)
	if err == nil {
		err = readKind(ctx, clients, "taintpolicies", &found.taints)
	}
	if err == nil {
		err = readKind(ctx, clients, "placementpolicies", &found.placements)
	}
	clients.Progress.End()
	if err == nil {
		err = found.addGuards()
	}
	return found, err
}

func readKind[T any](ctx context.Context, clients *cli.Clients, name string, into *[]T) error {
	err := cli.AppendAll(ctx, clients, v1alpha1.GroupVersion.WithResource(name).GroupResource(), into)
	if errors.Is(err, cli.ErrNotServed) {
		return fmt.Errorf("%w; name policies with -f, or install Tollgate's CustomResourceDefinitions", err)
	}
	return err
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
