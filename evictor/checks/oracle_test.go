package checks

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/decide"
	"github.com/tollgate-dev/tollgate/policy/eviction"
	"github.com/tollgate-dev/tollgate/tracker"
)

// simplePolicy is a policy over some keys of taints of nodes, as the oracle knows it.
type simplePolicy struct {
	name             string
	priority         int32
	keys             []string
	paused, protects bool
}

// heldByOracle says what holds a reason: of the policies over its key the one with the
// highest priority decides, then the first by name.
func heldByOracle(policies []simplePolicy, key string, allDown bool) Reason {
	var governs *simplePolicy
	for i := range policies {
		p := &policies[i]
		over := false
		for _, k := range p.keys {
			over = over || k == key
		}
		if over && (governs == nil || p.priority > governs.priority || (p.priority == governs.priority && p.name < governs.name)) {
			governs = p
		}
	}
	switch {
	case governs != nil && governs.paused:
		return Paused
	case governs != nil && governs.protects:
		return Protected
	case allDown && key == corev1.TaintNodeUnreachable:
		return NodesDown
	}
	return ""
}

func (p *simplePolicy) compiled() v1alpha1.EvictionPolicy {
	policy := v1alpha1.EvictionPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.name, UID: types.UID(p.name)}}
	policy.Spec.Priority, policy.Spec.Paused = p.priority, p.paused
	for _, key := range p.keys {
		policy.Spec.Taints = append(policy.Spec.Taints, v1alpha1.TaintSelector{Target: v1alpha1.TaintTargetNode, Key: key})
	}
	if p.protects {
		policy.Spec.Protect = &v1alpha1.EvictionProtection{PriorityClassNames: []string{"high"}}
	}
	return policy
}

// TestStandingChecksAgainstOracle compares the standing checks with a few plain lines.
func TestStandingChecksAgainstOracle(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"a", "b", "c", corev1.TaintNodeUnreachable}
	for range 5000 {
		var policies []simplePolicy
		var compiled []v1alpha1.EvictionPolicy
		for i := range random.IntN(4) {
			p := simplePolicy{
				name: fmt.Sprintf("p%d", i), priority: random.Int32N(3), paused: random.IntN(4) == 0, protects: random.IntN(4) == 0,
			}
			for _, key := range keys {
				if random.IntN(2) == 0 {
					p.keys = append(p.keys, key)
				}
			}
			if len(p.keys) == 0 {
				continue
			}
			policies = append(policies, p)
			compiled = append(compiled, p.compiled())
		}
		allDown := random.IntN(3) == 0
		known := tracker.New()
		taints := []corev1.Taint{}
		if allDown {
			taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
		}
		known.SetNode(tracker.Node{Name: "n", UID: "u", Taints: taints}, noon)
		set := eviction.Compile(compiled)
		disruption := &NodeDisruption{}
		list := Standing(Cluster{Tracker: known, NodesDown: disruption, Loops: NewLoops(), Observe: func(now time.Time) {
			nodes, down := known.NodesDown()
			disruption.Observe(now, nodes, down)
		}})
		var due []decide.Reason
		for i, key := range keys {
			if random.IntN(2) == 0 {
				taint := tracker.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, Source: tracker.Source{Kind: tracker.SourceNode, Name: "n"}}
				due = append(due, decide.Reason{Taint: taint, At: noon, Position: i})
			}
		}
		pod := tracker.PodOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{PriorityClassName: "high"}})
		subject := decide.SubjectOf(&pod, func(string) (labels.Labels, bool) { return nil, true })
		open, held := []string{}, map[string]Reason{}
		for i := range due {
			treatment, err := decide.Treat(set, &due[i], &subject)
			pass, answer := list.Ask(Now{Server: noon, Local: noon}, &Eviction{Pod: &pod, Reason: &due[i], Treatment: treatment, Unknown: err})
			require.Empty(t, pass)
			if answer.Hold != nil {
				held[due[i].Taint.String()] = answer.Hold.Reason
			} else {
				open = append(open, due[i].Taint.Key)
			}
		}
		wantOpen, wantHeld := []string{}, map[string]Reason{}
		for i := range due {
			if why := heldByOracle(policies, due[i].Taint.Key, allDown); why != "" {
				wantHeld[due[i].Taint.String()] = why
			} else {
				wantOpen = append(wantOpen, due[i].Taint.Key)
			}
		}
		require.Equal(t, wantOpen, open, "seed %d, policies %+v", seed, policies)
		require.Equal(t, wantHeld, held, "seed %d, policies %+v", seed, policies)
	}
}
