package approve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker"
)

var approvalResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "evictionapprovals"}

// objectOf returns the object of an approval. The API server generates its name: the same taint
// may be approved again later.
func objectOf(a *approval, opts *options) *v1alpha1.EvictionApproval {
	object := &v1alpha1.EvictionApproval{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EvictionApproval"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: prefixOf(a)},
		Spec: v1alpha1.EvictionApprovalSpec{
			Taint:   v1alpha1.ApprovedTaint{Key: a.key, Effect: corev1.TaintEffectNoExecute},
			MaxPods: a.most, ExpiresAfter: metav1.Duration{Duration: opts.expiry},
		},
	}
	switch a.source.Kind {
	case tracker.SourceRule:
		object.Spec.DeviceTaintRule = a.source.Name
	case tracker.SourcePatch:
		object.Spec.ResourceSlicePatch = a.source.Name
	case tracker.SourceNode:
		object.Spec.Node = a.source.Name
	case tracker.SourceSlice:
	}
	return object
}

// prefixOf returns the generateName of an approval: the object and the taint, in characters valid
// in names.
func prefixOf(a *approval) string {
	key := a.key[strings.LastIndex(a.key, "/")+1:]
	fit := func(r rune) rune {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			return r
		}
		return '-'
	}
	return strings.Trim(strings.Map(fit, strings.ToLower(a.source.Name+"-"+key)), "-") + "-"
}

// create creates approvals, unless in a dry run, and prints the result. Approvals created before
// an error stay.
func create(ctx context.Context, clients *cli.Clients, wanted *approvals, opts *options, out io.Writer) error {
	for i := range wanted.list {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(objectOf(&wanted.list[i], opts))
		if err != nil {
			return fmt.Errorf("write EvictionApproval: %w", err)
		}
		delete(object, "status")
		created := &unstructured.Unstructured{Object: object}
		if opts.dryRun != dryRunClient {
			if created, err = request(ctx, clients, created, opts.dryRun == dryRunServer); err != nil {
				return err
			}
		}
		if err := write(out, created, opts); err != nil {
			return err
		}
	}
	return nil
}

// served returns an error if EvictionApprovals have no effect.
func served(ctx context.Context, clients *cli.Clients) error {
	_, err := clients.Version(ctx, approvalResource, v1alpha1.GroupVersion.Version)
	if errors.Is(err, cli.ErrNotServed) {
		return errors.New("approve: the API server does not serve EvictionApprovals: nothing is held here until Tollgate's CustomResourceDefinitions are installed, and it runs")
	}
	return err
}

func request(ctx context.Context, clients *cli.Clients, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	options := metav1.CreateOptions{FieldManager: "tollgate-approve", FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	created, err := clients.Dynamic.Resource(approvalResource.WithVersion(v1alpha1.GroupVersion.Version)).Create(ctx, object, options)
	if err != nil {
		return nil, cli.Failed(err, "create EvictionApproval", "create", approvalResource)
	}
	created.SetManagedFields(nil) // as kubectl shows objects
	return created, nil
}

// write prints the created objects.
func write(out io.Writer, object *unstructured.Unstructured, opts *options) error {
	name := object.GetName()
	if name == "" {
		name = object.GetGenerateName() + "*"
	}
	name = "evictionapproval." + v1alpha1.GroupVersion.Group + "/" + name
	var text []byte
	var err error
	switch opts.output {
	case "yaml":
		text, err = yaml.Marshal(object.Object)
		text = append([]byte("---\n"), text...)
	case "json":
		text, err = json.MarshalIndent(object.Object, "", "    ")
		text = append(text, '\n')
	case "name":
		text = []byte(name + "\n")
	default:
		text = []byte(name + " created" + dryRunOf(opts.dryRun) + "\n")
	}
	if err == nil {
		_, err = out.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write what was created: %w", err)
	}
	return nil
}

func dryRunOf(dryRun string) string {
	switch dryRun {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	default:
		return ""
	}
}
