package export

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
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
	for i := range p.placements {
		tolerations, taints := placement.Guard(&p.placements[i])
		if tolerations == nil {
			continue
		}
		if errs := placement.ValidatePolicy(&p.placements[i]); len(errs) > 0 {
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
	if file == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return policies{}, fmt.Errorf("read standard input: %w", err)
		}
		return decode(data)
	}
	data, err := os.ReadFile(file) //nolint:gosec // The user names the file.
	if err != nil {
		return policies{}, fmt.Errorf("read policies: %w", err)
	}
	return decode(data)
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

// decode returns the policies in the documents of data, including items of lists.
func decode(data []byte) (policies, error) {
	var found policies
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, found.addGuards()
		}
		if err != nil {
			return policies{}, fmt.Errorf("read policies: %w", err)
		}
		if err := found.decode(document); err != nil {
			return policies{}, err
		}
	}
}

// decode adds the policies in one document.
func (p *policies) decode(document []byte) error {
	object, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	var header struct {
		APIVersion string                 `json:"apiVersion"`
		Kind       string                 `json:"kind"`
		Items      []runtime.RawExtension `json:"items"`
	}
	if bytes.Equal(object, []byte("null")) {
		return nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &header); err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	ours := header.APIVersion == v1alpha1.GroupVersion.String()
	switch {
	case header.Kind == "List" || ours && strings.HasSuffix(header.Kind, "PolicyList"):
		for _, item := range header.Items {
			if err := p.decode(item.Raw); err != nil {
				return err
			}
		}
		return nil
	case ours && header.Kind == "TaintPolicy":
		return decodeStrict(object, header.Kind, &p.taints)
	case ours && header.Kind == "PlacementPolicy":
		return decodeStrict(object, header.Kind, &p.placements)
	case ours && header.Kind == "TolerationPolicy":
		return decodeStrict(object, header.Kind, &p.tolerations)
	default:
		return nil
	}
}

func decodeStrict[T any](object []byte, kind string, into *[]T) error {
	var one T
	strict, err := kjson.UnmarshalStrict(object, &one)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	*into = append(*into, one)
	return nil
}
