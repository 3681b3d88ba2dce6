package preview

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/tracker"
)

// document is the root of the JSON and YAML output.
type document struct {
	// At is the time of the snapshot.
	At metav1.Time `json:"at"`
	// Going is the number of pods that leave because of any of the writes.
	Going    int               `json:"going"`
	Previews []previewDocument `json:"previews"`
	// Missing are sentences about missing data.
	Missing []string `json:"missing,omitempty"`
}

type previewDocument struct {
	Object  string `json:"object"`
	Summary string `json:"summary"`
	// Mere is true if the write evicts no pods as it is.
	Mere       bool      `json:"evictsNobodyAsItStands,omitempty"`
	Namespaces []Summary `json:"namespaces,omitempty"`
	Pods       []pod     `json:"pods,omitempty"`
	// Refused are the sentences with which TaintPolicies would refuse the write, and Warned those
	// of policies that only warn.
	Refused []string `json:"wouldBeRefused,omitempty"`
	Warned  []string `json:"wouldBeWarnedOf,omitempty"`
	// Protected and Held count pods by EvictionPolicy. Protected pods are not among Pods.
	Protected []counted `json:"protected,omitempty"`
	Held      []counted `json:"held,omitempty"`
	// Ends are the pods whose pending evictions are cancelled or delayed.
	Ends []ended `json:"ends,omitempty"`
}

// counted is the number of pods of an EvictionPolicy.
type counted struct {
	Name string `json:"evictionPolicy"`
	Pods int    `json:"pods"`
}

type pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// LeavesAt is its deadline, WaitSeconds the time until then; WasToLeaveAt is the deadline
	// before the write.
	LeavesAt     metav1.Time  `json:"leavesAt"`
	WaitSeconds  int64        `json:"waitSeconds"`
	WasToLeaveAt *metav1.Time `json:"wasToLeaveAt,omitempty"`
	// Held is true if a paused EvictionPolicy holds it.
	Held       bool     `json:"held,omitempty"`
	Budgets    []string `json:"podDisruptionBudgets,omitempty"`
	Controller string   `json:"controller,omitempty"`
	Because    []reason `json:"because"`
}

type reason struct {
	Taint  string `json:"taint"`
	Source string `json:"source,omitempty"`
	Device string `json:"device,omitempty"`
	Claim  string `json:"claim,omitempty"`
	// Tolerated is true if it is tolerated until LeavesAt.
	Tolerated bool        `json:"tolerated"`
	LeavesAt  metav1.Time `json:"leavesAt"`
}

type ended struct {
	Namespace    string       `json:"namespace"`
	Name         string       `json:"name"`
	UID          types.UID    `json:"uid"`
	WasToLeaveAt metav1.Time  `json:"wasToLeaveAt"`
	LeavesAt     *metav1.Time `json:"leavesAt,omitempty"`
}

// WriteJSON writes previews as JSON.
func (t *Teller) WriteJSON(out io.Writer, all []Preview) error {
	text, err := json.MarshalIndent(t.document(all), "", "    ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// WriteYAML writes previews as YAML.
func (t *Teller) WriteYAML(out io.Writer, all []Preview) error {
	text, err := yaml.Marshal(t.document(all))
	if err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	_, err = out.Write(text)
	return err
}

func (t *Teller) document(all []Preview) document {
	d := document{At: metav1.NewTime(t.cluster.Now), Going: Going(all), Previews: make([]previewDocument, 0, len(all)), Missing: t.cluster.Missing()}
	for i := range all {
		p := &all[i]
		one := previewDocument{
			Object: p.Of, Summary: p.Sentence(), Mere: p.Mere, Namespaces: p.Summaries(),
			Refused: p.Refusals, Warned: p.Warnings, Protected: sorted(p.Protected), Held: sorted(p.Paused),
		}
		for j := range p.Pods {
			one.Pods = append(one.Pods, t.pod(&p.Pods[j]))
		}
		for j := range p.Ends {
			e := &p.Ends[j]
			one.Ends = append(one.Ends, ended{Namespace: e.Namespace, Name: e.Name, UID: e.UID, WasToLeaveAt: metav1.NewTime(e.At), LeavesAt: given(e.Was)})
		}
		d.Previews = append(d.Previews, one)
	}
	return d
}

func (t *Teller) pod(p *preview.Pod) pod {
	described := pod{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		LeavesAt: metav1.NewTime(t.leaves(p)), WaitSeconds: int64(p.Wait.Seconds()), WasToLeaveAt: given(p.Was),
		Held: p.Paused, Budgets: t.budgets(p), Controller: t.controller(p),
	}
	for i := range p.Because {
		described.Because = append(described.Because, reasonOf(&p.Because[i]))
	}
	return described
}

func reasonOf(r *evictor.Reason) reason {
	described := reason{Taint: r.Taint.String(), Tolerated: r.Tolerated, LeavesAt: metav1.NewTime(r.At)}
	if author := r.Taint.Author(); author.Name != unnamed {
		described.Source = string(author.Kind) + "/" + author.Name
	}
	if r.Device.Driver != "" {
		described.Device = r.Device.String()
	}
	if r.Claim != (tracker.ClaimName{}) {
		described.Claim = r.Claim.String()
	}
	return described
}

func given(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return new(metav1.NewTime(at))
}
