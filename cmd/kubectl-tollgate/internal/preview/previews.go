// Package preview has the commands that show which pods a taint would evict, and those that
// taint and untaint devices after that look. The grammar of taints on the command line is
// that of kubectl taint.
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

// Preview is what one write would do.
type Preview struct {
	// Forecast is about the pods that would have to leave, or sooner.
	preview.Forecast

	// Of names what is written, as kubectl does: node/worker-1.
	Of string
	// Mere says that nobody is evicted by the write as it stands, and that the forecast is
	// about one that evicts. But is what stands in the way of it.
	Mere bool
	But  string
	// Ends are the pods that have to leave and would not any more, or later. At is when
	// they have to, Was when they then would have to.
	Ends []preview.Pod
	// Nothing is why there is nothing to foretell; empty where there is.
	Nothing string
	// Refusals and Warnings are what TaintPolicies have against the write: the sentences with
	// which it would be refused, and those of policies that only warn.
	Refusals, Warnings []string
}

// Leaves reports whether pods leave because of the write.
func (p *Preview) Leaves() bool { return !p.Mere && len(p.Pods) > 0 }

// Touches reports whether the write means anything to a pod, also to one that stays.
func (p *Preview) Touches() bool { return len(p.Pods) > 0 || len(p.Ends) > 0 || len(p.Protected) > 0 }

// Sentence says what the write does.
func (p *Preview) Sentence() string {
	if p.Nothing != "" {
		return p.Of + ": " + p.Nothing
	}
	text := p.String()
	switch {
	case p.Mere && text == "" && len(p.Ends) > 0:
		text = "evicts no pods" // It evicts now.
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

// ends says what becomes of evictions that are pending.
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

// Owners remembers the controllers of pods while a cluster is read. The zero Owners knows
// none.
type Owners struct {
	of map[types.UID]owner
	// names keeps one copy of what replicas have in common.
	names map[string]string
}

type owner struct{ kind, name string }

// Pod takes in a pod. It keeps the pod out of what is read, and is meant for Wants.
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

// Teller foretells writes to a cluster.
type Teller struct {
	cluster *state.Cluster
	owners  *Owners
	view    *preview.View
	limits  *preview.Limits
}

// NewTeller returns a teller for a cluster, with the controllers that were noticed when it
// was read.
func NewTeller(c *state.Cluster, owners *Owners) *Teller {
	t := &Teller{cluster: c, owners: owners, view: c.View()}
	t.limits = limitsOf(t)
	return t
}

// tell says what a write that changes something for pods does.
func (t *Teller) tell(of string, changes []tracker.Change) Preview {
	now := t.cluster.Now
	back := slices.Clone(changes)
	for i := range back {
		back[i].Before, back[i].After = back[i].After, back[i].Before
	}
	// Who would have to leave if the write was taken back does not have to after it.
	return Preview{Of: of, Forecast: t.view.Forecast(now, changes), Ends: t.view.Forecast(now, back).Pods}
}

// mere says what a write would do that does not evict as it stands. Ends are the evictions
// that it ends, or puts off, as it stands.
func (t *Teller) mere(of, but string, changes []tracker.Change, ends ...preview.Pod) Preview {
	return Preview{Of: of, Mere: true, But: but, Forecast: t.view.Forecast(t.cluster.Now, changes), Ends: ends}
}

// Node foretells what becomes of pods when the taints of a node are others than they were.
func (t *Teller) Node(ctx context.Context, name string, old, taints []corev1.Taint) (Preview, error) {
	changes, err := t.view.Node(tracker.Node{Name: name, Taints: old}, tracker.Node{Name: name, Taints: taints}, t.cluster.Now)
	if err != nil {
		return Preview{}, fmt.Errorf("foretell the taints of node %s: %w", name, err)
	}
	p := t.tell("node/"+name, changes)
	err = t.judgeNode(ctx, &p, name, old, taints, changes)
	return p, err
}

// observing reports whether nobody is evicted for ResourceSlicePatches: in mode Observe
// their rules do not evict, and without Tollgate nobody writes any.
func (t *Teller) observing() bool {
	return !t.cluster.Tollgate.Installed || t.cluster.Tollgate.Terms.Mode == configv1alpha1.EvictionObserve
}
