package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker"
)

// State is the state of a pod.
type State string

// The states.
const (
	// Pending pods have no node.
	Pending State = "Pending"
	// Staying pods have a node, and no taint evicts them.
	Staying State = "Staying"
	// Leaving pods have to leave later, Due pods by now.
	Leaving State = "Leaving"
	Due     State = "Due"
	// Held pods would have to leave, now or later, without a hold.
	Held State = "Held"
	// Terminating pods are being deleted, and Finished pods have succeeded or failed.
	Terminating State = "Terminating"
	Finished    State = "Finished"
	// Gone pods are known from events alone, the creation of NotCreated pods was refused, and
	// nothing is known about NotFound pods.
	Gone       State = "Gone"
	NotCreated State = "NotCreated"
	NotFound   State = "NotFound"
)

// CauseKind is the kind of a cause.
type CauseKind string

// The kinds of causes.
const (
	CauseGate        CauseKind = "SchedulingGate"
	CauseNoNodes     CauseKind = "NoNodes"
	CauseAffinity    CauseKind = "NodeSelector"
	CauseTaint       CauseKind = "UntoleratedTaint"
	CauseCordon      CauseKind = "Cordon"
	CauseSpread      CauseKind = "TopologySpread"
	CauseClaim       CauseKind = "Claim"
	CauseScheduler   CauseKind = "Scheduler"
	CauseWaiting     CauseKind = "Waiting"
	CauseNodeTaint   CauseKind = "NodeTaint"
	CauseDeviceTaint CauseKind = "DeviceTaint"
	CauseTolerated   CauseKind = "Tolerated"
	CauseUntainted   CauseKind = "Untainted"
	CauseStatic      CauseKind = "StaticPod"
	CauseStarting    CauseKind = "Starting"
	CauseProtected   CauseKind = "Protected"
	CausePaused      CauseKind = "Paused"
	CauseBreaker     CauseKind = "Breaker"
	CauseBudget      CauseKind = "Budget"
	CauseHeld        CauseKind = "Held"
	CauseDeleted     CauseKind = "Deleted"
	CausePhase       CauseKind = "Phase"
	CauseRefused     CauseKind = "Refused"
	CauseUnknown     CauseKind = "Unknown"
)

// Cause is one reason for the state of a pod.
type Cause struct {
	Kind    CauseKind `json:"kind"`
	Message string    `json:"message"`
}

// Pod is the explanation of a pod. Empty parts are absent.
type Pod struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	State     State     `json:"state"`
	// Answer is the state and its causes in one sentence.
	Answer string  `json:"answer"`
	Causes []Cause `json:"causes"`
	// Controller is the kind and the name of the controlling owner.
	Node       string       `json:"node,omitempty"`
	Controller string       `json:"controller,omitempty"`
	Created    *metav1.Time `json:"created,omitempty"`
	// Leaves is the deadline.
	Leaves *metav1.Time `json:"leaves,omitempty"`

	Gates       []Gate     `json:"schedulingGates,omitempty"`
	Nodes       []NodeSet  `json:"nodes,omitempty"`
	Scheduler   *Scheduler `json:"scheduler,omitempty"`
	Taints      []Taint    `json:"taints,omitempty"`
	Claims      []Claim    `json:"claims,omitempty"`
	Eviction    *Eviction  `json:"eviction,omitempty"`
	Tolerations []Ruling   `json:"tolerations,omitempty"`
	Placement   *Placement `json:"placement,omitempty"`
	Spread      []Spread   `json:"topologySpread,omitempty"`
	Events      []Event    `json:"events,omitempty"`
	Missing     []string   `json:"missing,omitempty"`
}

// Gate is a scheduling gate of a pod. Opens says who may remove it.
type Gate struct {
	Name     string   `json:"name"`
	Policies []string `json:"policies,omitempty"`
	Opens    string   `json:"opens"`
}

// Pod explains a pod of the namespace of the world. Errors are those of expressions of policies.
func (w *World) Pod(ctx context.Context, namespace, name string) (*Pod, error) {
	p := &Pod{Kind: "Pod", Namespace: namespace, Name: name, Missing: w.Missing()}
	pod := named(w.Pods, name)
	if pod == nil {
		w.gone(p)
		return p, nil
	}
	p.UID, p.Node, p.Created = pod.UID, pod.Spec.NodeName, &pod.CreationTimestamp
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		p.Controller = owner.Kind + "/" + owner.Name
	}
	events := w.newest(func(e *corev1.Event) bool { return e.InvolvedObject.UID == pod.UID })
	p.Events = shown(events)
	kept := tracker.PodOf(pod)
	situation, _ := w.Tracker.Lookup(kept.Key)
	situation.Pod = kept // The tracker has no pods without a node.
	for _, ref := range kept.Claims {
		p.Claims = append(p.Claims, *w.explainClaim(ctx, pod.Namespace, ref.Name))
	}
	if err := w.policiesOf(ctx, p, pod, &kept); err != nil {
		return nil, err
	}
	switch {
	case kept.Terminating:
		w.terminating(p, pod, &situation, events)
	case kept.Finished:
		p.addf(CausePhase, "its phase is %s%s", pod.Status.Phase, because(pod.Status.Reason, pod.Status.Message))
		p.conclude(Finished, "Over")
	case kept.NodeName != "":
		w.placed(p, pod, &situation)
	case len(pod.Spec.SchedulingGates) > 0:
		w.gated(p, pod)
	default:
		w.pending(p, pod)
	}
	return p, nil
}

func because(reason, message string) string {
	if reason != "" && message != "" {
		reason += ": "
	}
	return bracketed(reason + message)
}

// addf adds a cause with a message in the format of fmt.
func (p *Pod) addf(kind CauseKind, format string, arguments ...any) {
	p.Causes = append(p.Causes, Cause{kind, fmt.Sprintf(format, arguments...)})
}

// conclude sets the state and the answer, which is how and the causes.
func (p *Pod) conclude(state State, how string) {
	p.State = state
	var words []string
	for _, cause := range p.Causes {
		words = append(words, cause.Message)
	}
	p.Answer = sentence(how + ": " + strings.Join(words, "; "))
}

// gated explains a pod with scheduling gates.
func (w *World) gated(p *Pod, pod *corev1.Pod) {
	unguarded := "no GatePolicy guards it: whoever may update the pod may remove it"
	if w.Unread("gatepolicies") {
		unguarded = "it is not known which GatePolicy guards it"
	}
	var words []string
	for _, gate := range pod.Spec.SchedulingGates {
		g := Gate{Name: gate.Name}
		for _, guard := range w.Policies.Gates.Guards(gate.Name) {
			g.Policies = append(g.Policies, guard.Policy)
			g.Opens += ", and " + guard.Policy + ": " + guard.Owners
			if !guard.Denies {
				g.Opens += ", and others are only warned"
			}
		}
		g.Opens = cmp.Or(strings.TrimPrefix(g.Opens, ", and "), unguarded)
		p.Gates = append(p.Gates, g)
		words = append(words, gate.Name+bracketed(g.Opens))
	}
	p.addf(CauseGate, "it waits behind %s, and the scheduler does not look at it: %s", cli.Counted(len(words), "scheduling gate"), cli.Joined(words))
	p.conclude(Pending, "Pending")
}
