package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
)

// Node is the explanation of a node.
type Node struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Found  bool   `json:"found"`
	Answer string `json:"answer"`
	// Cordoned is true when the node is unschedulable.
	Cordoned bool        `json:"cordoned,omitempty"`
	Taints   []NodeTaint `json:"taints,omitempty"`
	// Writer is the field manager that last wrote the taints.
	Writer  string       `json:"taintsWrittenBy,omitempty"`
	Written *metav1.Time `json:"taintsWrittenAt,omitempty"`
	// Lacks are the taints that a TaintPolicy registers for the node, and the node does not have.
	Lacks   []string `json:"lacksRegistered,omitempty"`
	Pods    []Fate   `json:"pods,omitempty"`
	Events  []Event  `json:"events,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// NodeTaint is a taint of a node, with the policies about it.
type NodeTaint struct {
	Taint string       `json:"taint"`
	Since *metav1.Time `json:"since,omitempty"`
	// Means describes the effect.
	Means string `json:"means"`
	// Registers is the TaintPolicy that gives the node the taint.
	Registers string         `json:"registeredBy,omitempty"`
	Policies  []TaintSetters `json:"policies,omitempty"`
}

// TaintSetters is a TaintPolicy about a taint.
type TaintSetters struct {
	Policy  string `json:"policy"`
	Setters string `json:"setters"`
	Limits  string `json:"limits,omitempty"`
	// Expires is when the ttl of the policy ends.
	Expires *metav1.Time `json:"expires,omitempty"`
}

// Node explains a node.
func (w *World) Node(name string) *Node {
	n := &Node{Kind: "Node", Name: name, Missing: w.Missing()}
	node := named(w.Nodes, name)
	if node == nil {
		n.Answer = "Not found: the cluster has no node " + name + "."
		return n
	}
	n.Found, n.Cordoned = true, node.Spec.Unschedulable
	registered := w.Policies.Taints.Register(node.Labels)
	var taints []Taint
	for _, taint := range node.Spec.Taints {
		m := w.match(nil, &taint)
		taints = append(taints, m)
		t := NodeTaint{Taint: m.Taint, Since: m.Since, Means: cmp.Or(meanings[taint.Effect], "has no effect that is known")}
		for _, r := range registered {
			if r.Is(&taint) {
				t.Registers = policy.Ref("TaintPolicy", r.Policy)
			}
		}
		for _, p := range w.TaintPolicies {
			if selector.Selecting(selector.CompileAll(p.Spec.Taints), v1alpha1.TaintTargetNode, "", taint.Key, taint.Value, taint.Effect) != nil {
				t.Policies = append(t.Policies, settersOf(&p, t.Since))
			}
		}
		n.Taints = append(n.Taints, t)
	}
	for _, r := range w.Policies.Taints.Missing(node.Labels, node.Spec.Taints) {
		n.Lacks = append(n.Lacks, r.String()+" ("+policy.Ref("TaintPolicy", r.Policy)+")")
	}
	if last := evictions.LastWriter(node, "f:spec", "f:taints"); last != nil && len(n.Taints) > 0 {
		n.Writer, n.Written = last.Manager, last.Time
	}
	n.Pods = w.fates(w.Tracker.PodsOn(name))
	n.Events = shown(w.newest(func(e *corev1.Event) bool {
		return e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == name && strings.Contains(e.Reason, "Evict")
	}))
	text := effectWords(taints, "new pods")
	if n.Cordoned {
		text = strings.TrimPrefix(text+"; it is cordoned", "; ")
	}
	n.Answer = sentence(cmp.Or(text, "no taint keeps pods off or makes them leave") + ": " + w.tally(n.Pods, "no pod is on it"))
	return n
}

var meanings = map[corev1.TaintEffect]string{
	corev1.TaintEffectNoExecute:        "evicts pods, and keeps new ones off",
	corev1.TaintEffectNoSchedule:       "keeps new pods off",
	corev1.TaintEffectPreferNoSchedule: "new pods go elsewhere if they can",
}

// settersOf returns the setters and limits of a policy, for a taint since a time.
func settersOf(p *v1alpha1.TaintPolicy, since *metav1.Time) TaintSetters {
	s := TaintSetters{Policy: policy.Ref("TaintPolicy", p.Name)}
	var setters []string
	for _, setter := range p.Spec.Setters {
		text := policy.ShortSubjects(setter.Subjects)
		if setter.RBAC {
			text += " whom RBAC allows the verb taint on taints.tollgate.dev"
		}
		if setter.Expression != "" {
			text += " where an expression says so"
		}
		text += bracketed(policy.ShortList(setter.Operations, ", ", policy.Enum))
		setters = append(setters, strings.TrimPrefix(text, " "))
	}
	s.Setters = cmp.Or(strings.Join(setters, ", or "), "nobody is named, so only the system")
	if p.Spec.TTL != nil && since != nil {
		s.Expires = new(metav1.NewTime(since.Add(p.Spec.TTL.Duration)))
	}
	if limits := p.Spec.Limits; limits != nil {
		most := ""
		if limits.MaxAffectedPods != nil {
			most = cli.Counted(int(*limits.MaxAffectedPods), "pod")
		}
		if limits.MaxAffectedPercent != nil {
			most += fmt.Sprintf(" and %d %%", *limits.MaxAffectedPercent)
		}
		if most != "" {
			s.Limits = fmt.Sprintf("at most %s within %s", strings.TrimPrefix(most, " and "), limits.Window.Duration)
		}
	}
	return s
}

// Fate is the state of a pod on a node or a device.
type Fate struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is Staying, Leaving, Due, Held or Terminating.
	State State `json:"state"`
	// At is when the pod has to leave, and Because the taint; absent if it stays.
	At      *metav1.Time `json:"at,omitempty"`
	Because string       `json:"because,omitempty"`
	// Policy is the EvictionPolicy of a pod that is Held; empty for none.
	Policy string `json:"policy,omitempty"`

	// exposed is true if a NoExecute taint applies to the pod.
	exposed bool
}

// fates returns the state of pods that are not finished, ordered by when they leave. Keys are sorted.
func (w *World) fates(keys []tracker.Key) (list []Fate) {
	moment := w.Evictions.At(w.Now)
	for _, key := range keys {
		situation, _ := w.Tracker.Lookup(key)
		if situation.Pod.Finished {
			continue
		}
		f := Fate{Namespace: key.Namespace, Name: key.Name, State: Staying, exposed: len(situation.Taints)+len(situation.Devices) > 0}
		if e, leaves := moment.Eviction(&situation); situation.Pod.Terminating {
			f.State = Terminating
		} else if leaves {
			f.State, f.Because, f.At = Leaving, taintOf(&e.Because[0]), cli.TimeOrNone(e.At)
			switch {
			case !e.Hold.None():
				f.State, f.Policy = Held, e.Policy
				if e.State == evictions.Protected {
					f.At = cli.TimeOrNone(e.Hold.Until)
				}
			case e.State == evictions.Due:
				f.State = Due
			}
		}
		list = append(list, f)
	}
	order := []State{Terminating, Due, Leaving, Held, Staying}
	slices.SortStableFunc(list, func(a, b Fate) int {
		at := 0
		if a.At != nil && b.At != nil {
			at = a.At.Compare(b.At.Time)
		}
		return cmp.Or(slices.Index(order, a.State)-slices.Index(order, b.State), at)
	})
	return list
}

// tally counts pods, which are ordered by when they leave, by state; it returns none for no pods.
func (w *World) tally(fates []Fate, none string) string {
	tolerating := State("Tolerating") // Not a state that documents show.
	counts := map[State]int{}
	var last time.Time
	for _, f := range fates {
		if f.State == Leaving {
			last = f.At.Time
		}
		if f.State == Staying && f.exposed {
			f.State = tolerating
		}
		counts[f.State]++
	}
	var words []string
	add := func(state State, one, many string) {
		if n := counts[state]; n > 0 {
			words = append(words, cli.Counted(n, "pod")+" "+cli.Plural(n, one, many))
		}
	}
	later := " to leave later, the last " + in(last, w.Now)
	add(Terminating, "on the way out", "on the way out")
	add(Due, "has to leave now", "have to leave now")
	add(Leaving, "has"+later, "have"+later)
	add(Held, "held", "held")
	add(tolerating, "tolerates for ever what would make it leave", "tolerate for ever what would make them leave")
	add(Staying, "stays", "stay")
	return cmp.Or(cli.And(words), none)
}

// Device is the explanation of a device.
type Device struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Found  bool   `json:"found"`
	Answer string `json:"answer"`
	// ResourceSlice publishes the device, and Node can use it.
	ResourceSlice string `json:"resourceSlice,omitempty"`
	Node          string `json:"node,omitempty"`
	// Attributes and Capacity have the patches that set them.
	Attributes []string `json:"attributes,omitempty"`
	Capacity   []string `json:"capacity,omitempty"`
	// Patches select the device, and Failed ones failed on it, with the error.
	Patches []string `json:"patches,omitempty"`
	Failed  []string `json:"failed,omitempty"`
	Taints  []Taint  `json:"taints,omitempty"`
	// Claims have the device, and Pods use it.
	Claims  []string `json:"claims,omitempty"`
	Pods    []Fate   `json:"pods,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Device explains a device.
func (w *World) Device(ctx context.Context, id device.ID) *Device {
	d := &Device{Kind: "Device", Name: id.String(), Missing: w.Missing()}
	if w.Inventory != nil {
		for found := range w.Inventory.Devices(ctx) {
			if found.Device != id {
				continue
			}
			d.Found, d.ResourceSlice, d.Node = true, found.Slice.Name, found.Node()
			d.Attributes, d.Capacity, d.Patches = found.AttributeTexts(), found.CapacityTexts(), found.Patches
			for _, f := range found.Failed {
				d.Failed = append(d.Failed, f.Patch+": "+f.Message)
			}
		}
	}
	for _, taint := range w.Tracker.DeviceTaints(id) {
		t := matchDevice(nil, &taint)
		t.Device = d.Name
		d.Taints = append(d.Taints, t)
	}
	for _, claim := range w.Tracker.ClaimsOn(id) {
		d.Claims = append(d.Claims, claim.String())
	}
	d.Pods = w.fates(w.Tracker.PodsUsing(id))
	if !d.Found && len(d.Claims) == 0 {
		d.Answer = "Not found: no ResourceSlice publishes device " + d.Name + "."
		if w.Unread("resourceslices") || w.Unread("deviceclasses") {
			d.Answer = "It is not known whether there is a device " + d.Name + ": ResourceSlices and DeviceClasses could not be read."
		}
		return d
	}
	text := cmp.Or(effectWords(d.Taints, "claims"), "no taint keeps claims off or makes pods leave")
	if !d.Found {
		text = "it is not published any more; " + text
	}
	d.Answer = sentence(text + ": " + w.tally(d.Pods, "no pod uses it"))
	return d
}
