package cli_test

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	of := func(formats ...string) *cli.Output {
		o := &cli.Output{}
		o.AddFlag(&cobra.Command{}, "`format`", formats...)
		return o
	}
	whole := of("table", "json")
	whole.Whole = true
	for sentence, c := range map[string]struct {
		output *cli.Output
		format string
		want   string
	}{
		"a format":                           {of("table", "json"), "json", ""},
		"another one":                        {of("table", "json"), "xml", `--output is "xml", want one of table, json`},
		"a JSONPath":                         {of("table", "json"), "jsonpath={.items[*].name}", ""},
		"a Go template":                      {of("table", "json"), "go-template={{.kind}}", ""},
		"an invalid JSONPath":                {of("table", "json"), "jsonpath={.items[}", `--output is "jsonpath={.items[}": error parsing jsonpath {.items[}, unterminated array`},
		"an invalid Go template":             {of("table", "json"), "go-template={{", `--output is "go-template={{": error parsing template`},
		"a JSONPath of a command without":    {of("table", "yaml"), "jsonpath={.kind}", `--output is "jsonpath={.kind}", want one of table, yaml`},
		"a JSONPath of a stream":             {whole, "jsonpath={.kind}", `--output is "jsonpath={.kind}", want one of table, json`},
		"a template without its text":        {of("table", "json"), "jsonpath", "template format specified but no template given"},
		"columns, which commands lay out":    {of("table", "json"), "custom-columns=A:.a", `want one of table, json`},
		"the name of a template and no more": {of("table", "json"), "jsonpathx={.a}", `want one of table, json`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			c.output.Format = c.format
			err := c.output.Validate()
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestTemplatesSelectParts(t *testing.T) {
	t.Parallel()
	document := struct {
		Kind  string           `json:"kind"`
		Items []map[string]any `json:"items"`
	}{"EvictionList", []map[string]any{{"pod": "a<b", "due": 1}, {"pod": "c", "due": 2}}}
	for format, want := range map[string]string{
		"jsonpath={.kind}":                                               "EvictionList",
		"jsonpath={.items[*].pod}":                                       "a<b c",
		`jsonpath={range .items[*]}{.pod}{"\n"}{end}`:                    "a<b\nc\n",
		`go-template={{range .items}}{{.pod}}={{.due}} {{end}}`:          "a<b=1 c=2 ",
		"jsonpath-as-json={.items[1].due}":                               "[\n    2\n]\n",
		"jsonpath={.none}":                                               "",
		`go-template={{len .items}} pods of {{.kind}}{{with .x}}{{end}}`: "2 pods of EvictionList",
	} {
		var out bytes.Buffer
		require.NoError(t, cli.Print(&out, format, document), format)
		require.Equal(t, want, out.String(), format)
	}
}
