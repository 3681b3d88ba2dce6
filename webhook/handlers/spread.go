package handlers

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/placement"
	"github.com/tollgate-dev/tollgate/policy/spread"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

const (
	// maxSpreadEffort bounds how many comparisons a warning may take: tens of milliseconds. Beyond,
	// there is none, because a review must not get slow by it.
	maxSpreadEffort = 1 << 20
	// spreadNodesAge is how old the nodes may be that warnings are about, so that nodes
	// which change all the time do not make every review read them anew.
	spreadNodesAge = time.Second
)

// nodeList is the part of a tracker that knows nodes.
type nodeList interface {
	Nodes() []tracker.LabelledNode
	NodesVersion() uint64
}

// Spread warns of topology spread constraints that pods may wait for without end, because
// they count nodes whose taints the pods do not tolerate (TS-06). It never refuses
// anything. The nil Spread, where nodes are not followed, warns of nothing. It is safe for
// concurrent use.
type Spread struct {
	Nodes nodeList
	// Known reports whether Nodes has all nodes that there were at the start.
	Known func() bool
	// ComparisonOperators says whether tolerations compare numbers in the cluster.
	ComparisonOperators bool
	Clock               clock.PassiveClock

	mu      sync.Mutex // guards what is below
	nodes   []spread.Node
	version uint64
	read    time.Time
}

// concerns reports whether a pod has constraints at all: most have none.
func (s *Spread) concerns(pod review.Value) bool {
	var f review.Fields
	return s != nil && !f.At(pod, "spec", "topologySpreadConstraints").IsNull() && s.Known()
}

// pod returns the warnings about a pod that is created. Where a controller made it from
// a template, the author of that was warned.
func (s *Spread) pod(pod review.Value) []string {
	if !s.concerns(pod) || hasController(pod) {
		return nil
	}
	return s.warnings(placedPodWithin(pod), field.NewPath("spec"), unknownSize)
}

// placedPodWithin is readPlacedPod for a warning, which does not need a pod that decodes: it is nil
// otherwise.
func placedPodWithin(v review.Value) *podFields {
	var f review.Fields
	pod := readPlacedPod(&f, v)
	if f.Err() != nil {
		return nil
	}
	return pod
}

// template returns the warnings about a template that is written, with what
// PlacementPolicies give to its pods.
func (s *Spread) template(ctx context.Context, r request, written, old *podFields, path *field.Path) []string {
	if !s.concerns(written.value) || hasController(r.New) {
		return nil
	}
	pod := placedPodWithin(written.value)
	if pod == nil {
		return nil
	}
	if old != nil { // A template that spreads as it did brings no warning.
		was := placedPodWithin(old.value)
		if was != nil && equality.Semantic.DeepEqual(was.Spec, pod.Spec) && equality.Semantic.DeepEqual(was.Labels, pod.Labels) {
			return nil
		}
	}
	matching, err := r.placementOfPod(ctx, pod)
	if err != nil {
		return nil
	}
	additions := matching.GivePod(placement.Pod{Spec: &pod.Spec})
	additions.Apply(&pod.Spec)
	return s.warnings(pod, path, sizeOf(r.New))
}

// hasController reports whether a controller made the object.
func hasController(v review.Value) bool {
	var f review.Fields
	owner := readOwner(&f, v)
	return owner != nil && f.Err() == nil
}

// unknownSize is the size of a workload with any number of pods.
const unknownSize = math.MaxInt

// sizeOf returns how many pods of a workload there are at most at once: its replicas, and
// those that a Deployment may have beside them while it rolls out. A later change of the scale
// brings no warning, because that never calls out.
func sizeOf(workload review.Value) int {
	var f review.Fields
	size, atOnce := unknownSize, unknownSize
	var rollout appsv1.DeploymentStrategy
	f.Into(&size, workload, "spec", "replicas")
	f.Into(&atOnce, workload, "spec", "parallelism")
	f.Into(&rollout, workload, "spec", "strategy")
	if f.Err() != nil {
		return unknownSize
	}
	if size == unknownSize || rollout.RollingUpdate == nil {
		return min(size, atOnce)
	}
	surge, err := intstr.GetScaledValueFromIntOrPercent(rollout.RollingUpdate.MaxSurge, size, true)
	if err != nil {
		return unknownSize
	}
	return size + surge
}

// warnings returns the warnings about a pod whose spec stands at path, where more of its
// kind may be there at once than fit. Constraints that the API server refuses are none of
// this.
func (s *Spread) warnings(pod *podFields, path *field.Path, size int) []string {
	if pod == nil || pod.Spec.NodeName != "" || len(pod.Spec.TopologySpreadConstraints) == 0 {
		return nil
	}
	written := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}
	asked, err := spread.Read(&written, spread.Options{ComparisonOperators: s.ComparisonOperators})
	if err != nil {
		return nil
	}
	nodes := s.current()
	if len(nodes)*asked.Effort() > maxSpreadEffort {
		return nil
	}
	var warnings []string
	for _, wedge := range asked.Wedges(nodes) {
		if size > wedge.Most {
			warnings = append(warnings, wedgeWarning(&wedge, path.Child("topologySpreadConstraints")))
		}
	}
	return warnings
}

// wedgeWarning describes on one line the problem of a constraint and its remedy.
func wedgeWarning(w *spread.Wedge, path *field.Path) string {
	taints := make([]string, 0, len(w.Taints))
	for _, taint := range w.Taints {
		taints = append(taints, taint.ToString())
	}
	usable := "other domain"
	if w.Usable != 1 {
		usable = strconv.Itoa(w.Usable) + " other domains"
	}
	return fmt.Sprintf("%s: topologyKey %s counts %s, where every node has a taint that the pod does not tolerate (%s): "+
		"if there are more than %d such pods, the rest stays pending while none is there, because no more fit in the %s (maxSkew %d); "+
		"set nodeTaintsPolicy: Honor to leave out such domains",
		path.Index(w.Constraint.Index), policy.Short(w.Constraint.TopologyKey, policy.MaxKeyLength), policy.ShortList(w.Domains, ", ", policy.Value),
		policy.ShortList(taints, ", ", policy.MaxKeyLength), w.Most, usable, w.Constraint.MaxSkew)
}

// current returns the nodes as they were at most spreadNodesAge ago.
func (s *Spread) current() []spread.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	if s.nodes != nil && now.Sub(s.read).Abs() < spreadNodesAge {
		return s.nodes
	}
	// The number is read first: a change after it is found the next time.
	version := s.Nodes.NodesVersion()
	s.read = now
	if s.nodes != nil && version == s.version {
		return s.nodes
	}
	list := s.Nodes.Nodes()
	s.nodes = make([]spread.Node, len(list))
	for i, node := range list {
		s.nodes[i] = spread.Node{Name: node.Name, Labels: node.Labels, Taints: node.Written}
	}
	s.version = version
	return s.nodes
}
