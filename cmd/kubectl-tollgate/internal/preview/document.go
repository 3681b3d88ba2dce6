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

// document is all that previews say, for programs.
type document struct {
	// At is when the cluster was read.
	At metav1.Time `json:"at"`
	// Going is how many pods leave because of any of the writes.
	Going    int               `json:"going"`
	Previews []previewDocument `json:"previews"`
	// Missing says what was not to be read, and what is not known because of it.
	Missing []string `json:"missing,omitempty"`
}

type previewDocument struct {
	Object  string `json:"object"`
	Summary string `json:"summary"`
	// Mere says that nobody leaves because of the write as it stands.
	Mere       bool      `json:"evictsNobodyAsItStands,omitempty"`
	Namespaces []Summary `json:"namespaces,omitempty"`
	Pods       []pod     `json:"pods,omitempty"`
	// Refused are the sentences with which TaintPolicies would refuse the write, and Warned
	// those of policies that only warn.
	Refused []string `json:"wouldBeRefused,omitempty"`
	Warned  []string `json:"wouldBeWarnedOf,omitempty"`
	// Protected and Held count pods by EvictionPolicy. Those protected are not among the
	// pods.
	Protected []counted `json:"protected,omitempty"`
	Held      []counted `json:"held,omitempty"`
	// Ends are the pods whose pending evictions end, or come later.
	Ends []ended `json:"ends,omitempty"`
}

// counted is how many pods an EvictionPolicy is about.
type counted struct {
	Name string `json:"evictionPolicy"`
	Pods int    `json:"pods"`
}

type pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// LeavesAt is when it leaves, WaitSeconds how long that is from now; WasToLeaveAt is
	// when it had to before.
	LeavesAt     metav1.Time  `json:"leavesAt"`
	WaitSeconds  int64        `json:"waitSeconds"`
	WasToLeaveAt *metav1.Time `json:"wasToLeaveAt,omitempty"`
	// Held says that an EvictionPolicy which is paused holds it.
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
	// Tolerated says that it is tolerated until LeavesAt, and not at all otherwise.
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

// WriteJSON writes all that previews say as JSON.
func (t *Teller) WriteJSON(out io.Writer, all []Preview) error {
	text, err := json.MarshalIndent(t.document(all), "", "    ")
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

// WriteYAML writes all that previews say as YAML.
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
