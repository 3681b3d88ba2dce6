// Package preview has the commands that show which pods a taint would evict, and those that taint
// and untaint devices after such a preview. The syntax of taints is that of kubectl taint.
package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/tracker"
)

// Preview is the effect of one write.
type Preview struct {
	// Forecast has the pods that would have to leave, or leave sooner.
	preview.Forecast

	// Of is the name of the object, as kubectl prints it: node/worker-1.
	Of string
	// Mere is true if the write evicts no pods as it is; the forecast is for one that does. But
	// is the reason.
	Mere bool
	But  string
	// Ends are the pods whose evictions are cancelled or delayed. At is the current deadline, Was
	// the new one.
	Ends []preview.Pod
	// Nothing is why there is no forecast; empty if there is one.
	Nothing string
	// Refusals are the sentences with which TaintPolicies would refuse the write, Warnings those
	// of policies that only warn.
	Refusals, Warnings []string
}

// Leaves reports whether pods leave because of the write.
func (p *Preview) Leaves() bool { return !p.Mere && len(p.Pods) > 0 }

// Touches reports whether the write concerns any pod, even one that stays.
func (p *Preview) Touches() bool { return len(p.Pods) > 0 || len(p.Ends) > 0 || len(p.Protected) > 0 }

// Sentence describes the write.
func (p *Preview) Sentence() string {
	if p.Nothing != "" {
		return p.Of + ": " + p.Nothing
	}
	text := p.String()
	switch {
	case p.Mere && text == "" && len(p.Ends) > 0:
		text = "evicts no pods" // The current taint evicts.
	case p.Mere:
		text = cmp.Or(p.If(), "would evict no pods")
		text = "evicts no pods: " + p.But + ", it " + text
	case text == "":
		text = "evicts no pods"
	}
	if len(p.Ends) > 0 {
		text += "; " + p.ends()
	}
	return p.Of + ": " + text
}

// ends describes the cancelled and delayed evictions.
func (p *Preview) ends() string {
	later := 0
	for i := range p.Ends {
		if !p.Ends[i].Was.IsZero() {
			later++
		}
	}
	var parts []string
	if over := len(p.Ends) - later; over > 0 {
		parts = append(parts, "ends "+pods(over, "pending eviction"))
	}
	if later > 0 {
		parts = append(parts, "puts off "+pods(later, "pending eviction"))
	}
	return strings.Join(parts, ", ")
}

func pods(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// Owners records the controllers of pods during a read. The zero Owners is empty.
type Owners struct {
	of map[types.UID]owner
	// names interns the names that replicas share.
	names map[string]string
}

type owner struct{ kind, name string }

// Pod records the controller of a pod. It returns false, for use in Wants.
func (o *Owners) Pod(pod *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return false
	}
	if o.of == nil {
		o.of, o.names = map[types.UID]owner{}, map[string]string{}
	}
	o.of[pod.UID] = owner{kind: o.one(ref.Kind), name: o.one(ref.Name)}
	return false
}

func (o *Owners) one(name string) string {
	if known, found := o.names[name]; found {
		return known
	}
	o.names[name] = name
	return name
}

// Teller previews writes to a cluster.
type Teller struct {
	cluster *state.Cluster
	owners  *Owners
	view    *preview.View
	limits  *preview.Limits
}

// NewTeller returns a Teller for a cluster and the controllers of its pods.
func NewTeller(c *state.Cluster, owners *Owners) *Teller {
	t := &Teller{cluster: c, owners: owners, view: c.View()}
	t.limits = limitsOf(t)
	return t
}

// tell returns the preview of a write with changes.
func (t *Teller) tell(of string, changes []tracker.Change) Preview {
	now := t.cluster.Now
	back := slices.Clone(changes)
	for i := range back {
		back[i].Before, back[i].After = back[i].After, back[i].Before
	}
	// The reverse forecast has the pods that do not have to leave after the write.
	return Preview{Of: of, Forecast: t.view.Forecast(now, changes), Ends: t.view.Forecast(now, back).Pods}
}

// mere returns the preview of a write that does not evict as it is. Ends are the evictions that
// it cancels or delays.
func (t *Teller) mere(of, but string, changes []tracker.Change, ends ...preview.Pod) Preview {
	return Preview{Of: of, Mere: true, But: but, Forecast: t.view.Forecast(t.cluster.Now, changes), Ends: ends}
}

// Node previews a change of the taints of a node.
func (t *Teller) Node(ctx context.Context, name string, old, taints []corev1.Taint) (Preview, error) {
	changes, err := t.view.Node(tracker.Node{Name: name, Taints: old}, tracker.Node{Name: name, Taints: taints}, t.cluster.Now)
	if err != nil {
		return Preview{}, fmt.Errorf("foretell the taints of node %s: %w", name, err)
	}
	p := t.tell("node/"+name, changes)
	err = t.judgeNode(ctx, &p, name, old, taints, changes)
	return p, err
}

// observing reports whether ResourceSlicePatches do not evict: in mode Observe, or without
// Tollgate.
func (t *Teller) observing() bool {
	return !t.cluster.Tollgate.Installed || t.cluster.Tollgate.Terms.Mode == configv1alpha1.EvictionObserve
}
