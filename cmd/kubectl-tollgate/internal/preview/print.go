package preview

import (
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// printObjects writes objects as kubectl does: one as it is, several as a list.
func printObjects(out io.Writer, format string, objects []*unstructured.Unstructured) error {
	if len(objects) == 0 {
		return nil
	}
	items := make([]any, 0, len(objects))
	for _, object := range objects {
		object.SetManagedFields(nil)
		items = append(items, object.Object)
	}
	whole := items[0]
	if len(items) > 1 {
		whole = map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	}
	var text []byte
	var err error
	if format == "json" {
		text, err = json.MarshalIndent(whole, "", "    ")
		text = append(text, '\n')
	} else {
		text, err = yaml.Marshal(whole)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = out.Write(text)
	return err
}
