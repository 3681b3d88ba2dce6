package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/tainting"
)

func newExportCommand() *cobra.Command {
	export := &cobra.Command{
		Use:   "export",
		Short: "Write policies as policies of Kubernetes",
		Args:  cobra.NoArgs,
	}
	export.AddCommand(newExportMapCommand())
	return export
}

func newExportMapCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Write what TaintPolicies register as MutatingAdmissionPolicies",
		Long: `Write what TaintPolicies register as MutatingAdmissionPolicies with their bindings,
for the API server to give nodes their taints itself, also while Tollgate is away.
Objects of other kinds in the file are left out.`,
		Example: `  tollgate export map -f policies.yaml | kubectl apply -f -
  kubectl get taintpolicies -o yaml | tollgate export map -f - | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readInput(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return exportMap(data, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "`file` with TaintPolicies, YAML or JSON; - for standard input")
	if err := cmd.MarkFlagRequired("filename"); err != nil {
		panic(err) // There is such a flag.
	}
	return cmd
}

func readInput(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return data, nil
	}
	data, err := os.ReadFile(file) //nolint:gosec // Whoever runs it names the file.
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	return data, nil
}

// exportMap writes what the TaintPolicies in data register.
func exportMap(data []byte, out io.Writer) error {
	policies, err := taintPolicies(data)
	if err != nil {
		return err
	}
	if len(policies) == 0 {
		return errors.New("there is no TaintPolicy in the file")
	}
	for i := range policies {
		p := &policies[i]
		objects, err := tainting.RegistrationPolicy(p)
		if err != nil {
			return fmt.Errorf("export TaintPolicy %s: %w", p.Name, err)
		}
		for _, object := range objects {
			if err := writeYAML(out, object); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeYAML(out io.Writer, object runtime.Object) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = fmt.Fprintf(out, "---\n%s", text)
	return err
}

// taintPolicies returns the TaintPolicies among the documents of data, also those in
// lists.
func taintPolicies(data []byte) ([]v1alpha1.TaintPolicy, error) {
	var policies []v1alpha1.TaintPolicy
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return policies, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read policies: %w", err)
		}
		found, err := inDocument(document)
		if err != nil {
			return nil, err
		}
		policies = append(policies, found...)
	}
}

// inDocument returns the TaintPolicies in one document.
func inDocument(document []byte) ([]v1alpha1.TaintPolicy, error) {
	object, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	var header struct {
		APIVersion string                 `json:"apiVersion"`
		Kind       string                 `json:"kind"`
		Items      []runtime.RawExtension `json:"items"`
	}
	if bytes.Equal(object, []byte("null")) {
		return nil, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(object, &header); err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	switch {
	case header.Kind == "List" || header.Kind == "TaintPolicyList":
		var policies []v1alpha1.TaintPolicy
		for _, item := range header.Items {
			found, err := inDocument(item.Raw)
			if err != nil {
				return nil, err
			}
			policies = append(policies, found...)
		}
		return policies, nil
	case header.Kind != "TaintPolicy" || header.APIVersion != v1alpha1.GroupVersion.String():
		return nil, nil
	}
	var p v1alpha1.TaintPolicy
	strict, err := kjson.UnmarshalStrict(object, &p)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err != nil {
		return nil, fmt.Errorf("read TaintPolicy: %w", err)
	}
	return []v1alpha1.TaintPolicy{p}, nil
}
