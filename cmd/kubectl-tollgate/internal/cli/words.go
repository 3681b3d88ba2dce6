package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

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

// WriteDocument writes a value as YAML, or as JSON with an indent.
func WriteDocument(w io.Writer, output, indent string, value any) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", indent)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return nil
	}
	text, err := yaml.Marshal(value)
	if err == nil {
		_, err = w.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return nil
}
