package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Output is the flag -o of a command.
type Output struct {
	Format string
	// Formats are the valid values. The first is the default. With json among them, templates for parts
	// of the JSON are valid too, unless Whole is set.
	Formats []string
	Whole   bool
}

// templates are the formats with a template, as kubectl has them.
var templates = []string{"jsonpath", "jsonpath-as-json", "jsonpath-file", "go-template", "go-template-file"}

// IsDocument reports whether a format is YAML, JSON, or a template for a part of it.
func IsDocument(format string) bool {
	name, _, _ := strings.Cut(format, "=")
	return format == "json" || format == "yaml" || slices.Contains(templates, name)
}

// AddFlag adds the flag. An empty format prints what a command did.
func (o *Output) AddFlag(cmd *cobra.Command, usage string, formats ...string) {
	o.Formats = formats
	cmd.Flags().StringVarP(&o.Format, "output", "o", formats[0], usage+": "+strings.Join(formats, ", ")+o.orTemplate())
	completeValues(cmd, "output", formats)
}

// completeValues completes a flag with its values.
func completeValues(cmd *cobra.Command, flag string, values []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // The command has the flag, and completes it once.
	}
}

// orTemplate ends a list of formats.
func (o *Output) orTemplate() string {
	if slices.Contains(o.Formats, "json") {
		return ", jsonpath=TEMPLATE, go-template=TEMPLATE"
	}
	return ""
}

// Validate returns an error for a format that the command does not have, and for an invalid template.
func (o *Output) Validate() error {
	if !o.Whole && slices.Contains(o.Formats, "json") && IsDocument(o.Format) && !slices.Contains(o.Formats, o.Format) {
		_, err := printerOf(o.Format)
		return err
	}
	return oneOf("output", o.Format, o.Formats)
}

// printerOf returns the printer of a format with a template.
func printerOf(format string) (printers.ResourcePrinter, error) {
	printer, err := genericclioptions.NewKubeTemplatePrintFlags().ToPrinter(format)
	if err != nil {
		return nil, fmt.Errorf("--output is %q: %w", format, err)
	}
	return printer, nil
}

func oneOf(flag, value string, values []string) error {
	if slices.Contains(values, value) {
		return nil
	}
	return fmt.Errorf("--%s is %q, want one of %s", flag, value, strings.TrimPrefix(strings.Join(values, ", "), ", "))
}

// Print writes a value as YAML, as JSON with kubectl's indentation, or the part that a template selects.
func Print(out io.Writer, format string, value any) error {
	switch format {
	case "yaml":
		text, err := yaml.Marshal(value)
		if err == nil {
			_, err = out.Write(text)
		}
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		return nil
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "    ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return nil
	}
	printer, err := printerOf(format)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		return fmt.Errorf("read the output: %w", err)
	}
	if err := printer.PrintObj(object, out); err != nil {
		return fmt.Errorf("write a part of the output: %w", err)
	}
	return nil
}

// WriteNotes writes a line for each note.
func WriteNotes(w io.Writer, prefix string, notes []string) error {
	for _, note := range notes {
		if _, err := fmt.Fprintln(w, prefix+note); err != nil {
			return fmt.Errorf("write notes: %w", err)
		}
	}
	return nil
}

// WriteWrapped writes notes in lines of at most Width characters.
func WriteWrapped(w io.Writer, prefix string, notes []string) error {
	var lines []string
	for _, note := range notes {
		lines = append(lines, Wrapped(prefix+note, Width)...)
	}
	return WriteNotes(w, "", lines)
}

// TimeOrNone returns a time for JSON, nil for none.
func TimeOrNone(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return new(metav1.NewTime(at))
}

// WriteFlags are the flags of commands that write objects: -o and --dry-run.
type WriteFlags struct {
	Output

	DryRun string
}

// The values of --dry-run.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// AddFlags adds the flags.
func (f *WriteFlags) AddFlags(cmd *cobra.Command, output, dryRun string) {
	f.Formats = []string{"", "name", "yaml", "json"}
	flags := cmd.Flags()
	flags.StringVarP(&f.Format, "output", "o", "", output+": "+strings.Join(f.Formats[1:], ", ")+f.orTemplate())
	flags.StringVar(&f.DryRun, "dry-run", DryRunNone, dryRun)
	flags.Lookup("dry-run").NoOptDefVal = DryRunClient // as kubectl had it
	completeValues(cmd, "output", f.Formats[1:])
	completeValues(cmd, "dry-run", []string{DryRunNone, DryRunClient, DryRunServer})
}

// Validate returns an error for invalid values.
func (f *WriteFlags) Validate() error {
	if err := f.Output.Validate(); err != nil {
		return err
	}
	return oneOf("dry-run", f.DryRun, []string{DryRunNone, DryRunClient, DryRunServer})
}

// RequestDryRun returns the dryRun field of requests.
func (f *WriteFlags) RequestDryRun() []string {
	if f.DryRun == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Written is an object that a command created, configured or deleted, as Done says.
type Written struct {
	Object *unstructured.Unstructured
	Done   string
}

// WriteObjects writes what a command wrote as kubectl does: a line for each object, or a document,
// which is one object as it is, or a list of several.
func (f *WriteFlags) WriteObjects(out io.Writer, objects ...Written) error {
	dry := map[string]string{DryRunClient: " (dry run)", DryRunServer: " (server dry run)"}
	var items []any
	for _, o := range objects {
		o.Object.SetManagedFields(nil)
		items = append(items, o.Object.Object)
		if IsDocument(f.Format) {
			continue
		}
		line := NameOf(o.Object)
		if f.Format != "name" {
			line += " " + o.Done + dry[f.DryRun]
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("write %s: %w", line, err)
		}
	}
	switch {
	case !IsDocument(f.Format) || len(items) == 0:
		return nil
	case len(items) == 1:
		return Print(out, f.Format, items[0])
	default:
		return Print(out, f.Format, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items})
	}
}

// NameOf returns the name of an object as kubectl prints it.
func NameOf(object *unstructured.Unstructured) string {
	name := cmp.Or(object.GetName(), object.GetGenerateName()+"*")
	return strings.ToLower(object.GetKind()) + "." + object.GroupVersionKind().Group + "/" + name
}

// PartOfName returns text with dashes in place of the characters that are not valid in names of
// objects.
func PartOfName(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
}

// Plural returns one for the number 1, else many.
func Plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Counted returns a number with a noun: 1 node, 2 nodes.
func Counted(n int, noun string) string {
	return strconv.Itoa(n) + " " + Plural(n, noun, noun+"s")
}

// And joins words: a, b and c.
func And(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Few returns the first three names and the number of the others.
func Few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and " + strconv.Itoa(len(names)-most) + " more"
}
