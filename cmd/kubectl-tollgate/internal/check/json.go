package check

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// reportDocument is a report for programs.
type reportDocument struct {
	Report `json:",inline"`

	Results []positioned     `json:"results"`
	Cases   []positionedCase `json:"cases,omitempty"`
	Summary summary          `json:"summary"`
}

// positioned is a result with where the object stands.
type positioned struct {
	Result `json:",inline"`

	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

type positionedCase struct {
	ReportedCase `json:",inline"`

	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

type summary struct {
	Allowed   int `json:"allowed"`
	Warned    int `json:"warned"`
	Denied    int `json:"denied"`
	Undecided int `json:"undecided"`
	Failed    int `json:"failed"`
}

func (r *Report) document() *reportDocument {
	d := &reportDocument{Report: *r, Results: []positioned{}, Summary: summary{
		r.Count(Allowed), r.Count(Warned), r.Count(Denied), r.Count(Undecided), r.Failed(),
	}}
	for i := range r.Results {
		at := r.Results[i].Position
		d.Results = append(d.Results, positioned{r.Results[i], at.File, at.Line})
	}
	for i := range r.Cases {
		at := r.Cases[i].Position
		d.Cases = append(d.Cases, positionedCase{r.Cases[i], at.File, at.Line})
	}
	return d
}

// WriteJSON writes a report as JSON. An error is that of the writer.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r.document()); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// WriteYAML writes a report as YAML. An error is that of the writer.
func (r *Report) WriteYAML(w io.Writer) error {
	text, err := yaml.Marshal(r.document())
	if err == nil {
		_, err = w.Write(text)
	}
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return nil
}
