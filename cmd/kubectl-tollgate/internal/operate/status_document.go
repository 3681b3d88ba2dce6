package operate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/evictions"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// Status is the state of Tollgate and of the evictions. It is no API object.
type Status struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Tollgate   tollgate `json:"tollgate"`
	// Webhooks and Policies are those of Objects.
	Webhooks []webhooks `json:"webhooks,omitempty"`
	Policies []policies `json:"policies,omitempty"`
	Taints   taints     `json:"taints"`
	// Evictions are the numbers of pods that have to leave.
	Evictions map[evictions.State]int `json:"evictions"`
	// Attention are sentences about what holds pods or is not as it should be, and Missing about
	// what could not be read.
	Attention []string `json:"attention,omitempty"`
	Missing   []string `json:"missing,omitempty"`
}

// Objects are the webhook configurations and the policies of Tollgate.
type Objects struct {
	// webhooks are those of each webhook configuration of Tollgate; empty if they may not be read.
	webhooks []webhooks
	// policies are those of each kind that the user may list.
	policies []policies
	// missing are sentences about what could not be read.
	missing []string
}

type tollgate struct {
	Installed bool `json:"installed"`
	// Mode is empty if it is not known.
	Mode string `json:"mode,omitempty"`
	// Leader is the replica that holds the Lease, and with leads false the one that held it last.
	Leader  string       `json:"leader,omitempty"`
	Leads   bool         `json:"leads"`
	Renewed *metav1.Time `json:"renewed,omitempty"`
}

type webhooks struct {
	Configuration string `json:"configuration"`
	// Exists is false if the API server has no such configuration.
	Exists   bool `json:"exists"`
	Webhooks int  `json:"webhooks"`
}

type policies struct {
	Kind     string     `json:"kind"`
	Policies int        `json:"policies"`
	NotReady []notReady `json:"notReady,omitempty"`
	Paused   []string   `json:"paused,omitempty"`
	// Violations are the policies that existing pods violate.
	Violations []violations `json:"violations,omitempty"`
}

// violations is the number of existing pods that violate a policy, according to its status.
type violations struct {
	Name string `json:"name"`
	Pods int32  `json:"pods"`
}

// notReady is a policy without the condition Ready. The reason is that of the condition.
type notReady struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

type taints struct {
	// NodesNoExecute counts nodes with a taint with the effect NoExecute, and the others devices
	// with a taint of each effect.
	NodesNoExecute    int `json:"nodesNoExecute"`
	DevicesNoExecute  int `json:"devicesNoExecute"`
	DevicesNoSchedule int `json:"devicesNoSchedule"`
}

// add counts a policy.
func (p *policies) add(kind policyset.Kind, policy policyset.Object) {
	p.Policies++
	observed, conditions := kind.Status(policy)
	ready := meta.FindStatusCondition(*conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil || *observed < policy.GetGeneration():
		p.NotReady = append(p.NotReady, notReady{policy.GetName(), "NotEvaluatedYet"})
	case ready.Status != metav1.ConditionTrue:
		p.NotReady = append(p.NotReady, notReady{policy.GetName(), ready.Reason})
	}
	var found *v1alpha1.TolerationViolations
	switch policy := policy.(type) {
	case *v1alpha1.EvictionPolicy:
		if policy.Spec.Paused {
			p.Paused = append(p.Paused, policy.Name)
		}
	case *v1alpha1.TolerationPolicy:
		found = policy.Status.Violations
	case *v1alpha1.PlacementPolicy:
		found = policy.Status.Violations
	}
	if found != nil && found.Count > 0 {
		p.Violations = append(p.Violations, violations{policy.GetName(), found.Count})
	}
}

// StatusOf returns the state of a cluster, whose pods that have to leave are list.
func StatusOf(found *state.Cluster, objects *Objects, list []evictions.Eviction, now time.Time) *Status {
	is := &found.Tollgate
	d := &Status{
		APIVersion: "cli.tollgate.dev/v1alpha1", Kind: "Status", Webhooks: objects.webhooks, Policies: objects.policies,
		Tollgate: tollgate{Installed: is.Installed, Leader: is.Leader, Leads: is.Leads, Renewed: cli.TimeOrNone(is.Renewed)},
		Taints:   taints{NodesNoExecute: len(found.Tracker.Tainted())}, Evictions: map[evictions.State]int{},
	}
	if is.Told {
		d.Tollgate.Mode = string(is.Terms.Mode)
	}
	for of, devices := range found.Tracker.TaintedDevices() {
		if of.Effect == corev1.TaintEffectNoExecute {
			d.Taints.DevicesNoExecute += devices
		} else {
			d.Taints.DevicesNoSchedule += devices
		}
	}
	for _, e := range list {
		d.Evictions[e.State]++
	}
	d.Attention, d.Missing = append(d.attention(), evictions.Notes(list, now)...), slices.Concat(found.Missing(), objects.missing)
	if lack := is.Lack(); lack != "" && (is.Told || !is.Installed) {
		// That Tollgate does not run, or does not lead, is known.
		d.Attention, d.Missing = slices.Insert(d.Attention, 0, lack), slices.DeleteFunc(d.Missing, func(s string) bool { return s == lack })
	}
	return d
}

// ReadObjects reads the webhook configurations and the policies of Tollgate.
func ReadObjects(ctx context.Context, clients *cli.Clients) (*Objects, error) {
	const name = "tollgate"
	objects, lacks := &Objects{}, &state.Cluster{}
	addWebhooks := func(kind string, count int, err error) error {
		resource := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: strings.ToLower(kind) + "s"}
		switch {
		case apierrors.IsForbidden(err):
			return lacks.Lack(err, "get", resource, "which webhooks of Tollgate are registered is not known")
		case err != nil && !apierrors.IsNotFound(err):
			return cli.Failed(err, "read "+kind+" "+name, "get", resource)
		}
		objects.webhooks = append(objects.webhooks, webhooks{Configuration: kind, Exists: err == nil, Webhooks: count})
		return nil
	}
	client := clients.Kubernetes.AdmissionregistrationV1()
	validating, err := client.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err := addWebhooks("ValidatingWebhookConfiguration", len(validating.Webhooks), err); err != nil {
		return nil, err
	}
	mutating, err := client.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	if err := addWebhooks("MutatingWebhookConfiguration", len(mutating.Webhooks), err); err != nil {
		return nil, err
	}
	for _, kind := range policyset.Kinds() {
		resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: kind.Resource}
		one := policies{Kind: kind.Name}
		_, err := clients.EachServed(ctx, resource, func(object *unstructured.Unstructured) error {
			policy := kind.New()
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy); err != nil {
				return fmt.Errorf("read %s %s: %w", kind.Name, object.GetName(), err)
			}
			one.add(kind, policy)
			return nil
		}, v1alpha1.GroupVersion.Version)
		if err == nil {
			objects.policies = append(objects.policies, one)
		} else if err := lacks.Lack(err, "list", resource, "those are not shown"); err != nil {
			return nil, err
		}
	}
	objects.missing = lacks.Missing()
	return objects, nil
}

// attention returns sentences about Tollgate and its policies, without those about pods.
func (d *Status) attention() []string {
	var sentences []string
	for _, w := range d.Webhooks {
		if d.Tollgate.Installed && !w.Exists {
			sentences = append(sentences, "the "+w.Configuration+" tollgate does not exist: requests are not judged until it is restored (docs/registration.md)")
		}
	}
	for _, p := range d.Policies {
		for _, policy := range p.NotReady {
			sentences = append(sentences, fmt.Sprintf("%s/%s is not ready (%s): kubectl describe %s %s",
				p.Kind, policy.Name, policy.Reason, strings.ToLower(p.Kind), policy.Name))
		}
		for _, name := range p.Paused {
			resume := "policy " + name
			if name == StopEvictions {
				resume = "all"
			}
			sentences = append(sentences, p.Kind+"/"+name+" is paused: kubectl tollgate resume "+resume)
		}
		for _, policy := range p.Violations {
			sentences = append(sentences, fmt.Sprintf("%s %s %s/%s: kubectl describe %s %s",
				cli.Counted(int(policy.Pods), "existing pod"), cli.Plural(int(policy.Pods), "violates", "violate"), p.Kind, policy.Name, strings.ToLower(p.Kind), policy.Name))
		}
	}
	return sentences
}

// write writes the document as text.
func (d *Status) write(w io.Writer, now time.Time) error {
	var text strings.Builder
	add := func(first, rest, sentence string) {
		for _, line := range cli.Indented(first, rest, cli.Clean(sentence), cli.Width) {
			text.WriteString(line + "\n")
		}
	}
	for _, line := range d.lines(now) {
		add(fmt.Sprintf("%-*s", len(column), line[0]), column, line[1])
	}
	for _, part := range []struct {
		head      string
		sentences []string
	}{{"Needs attention:", d.Attention}, {"Not known:", d.Missing}} {
		if len(part.sentences) > 0 {
			text.WriteString("\n" + part.head + "\n")
		}
		for _, sentence := range part.sentences {
			add("  ", "    ", sentence)
		}
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// column is as wide as the names of the lines.
const column = "           "

func (d *Status) tollgate(now time.Time) string {
	switch t := &d.Tollgate; {
	case !t.Installed:
		return "does not run here"
	case t.Mode == "":
		return "mode not known"
	case t.Leader == "" || t.Renewed == nil:
		return "mode " + t.Mode + ", no leader"
	default:
		led := map[bool]string{true: "led by ", false: "no leader, the last was "}[t.Leads]
		return "mode " + t.Mode + ", " + led + t.Leader + " (Lease renewed " + duration.HumanDuration(max(now.Sub(t.Renewed.Time), 0)) + " ago)"
	}
}

// lines returns the names and the texts of the lines about the cluster.
func (d *Status) lines(now time.Time) [][2]string {
	var webhooks, policies, tainted []string
	for _, w := range d.Webhooks {
		kind := strings.ToLower(strings.TrimSuffix(w.Configuration, "WebhookConfiguration"))
		if w.Exists {
			webhooks = append(webhooks, strconv.Itoa(w.Webhooks)+" "+kind)
		} else {
			webhooks = append(webhooks, "no "+w.Configuration)
		}
	}
	for _, p := range d.Policies {
		if p.Policies > 0 {
			policies = append(policies, strconv.Itoa(p.Policies)+" "+cli.Plural(p.Policies, p.Kind, strings.TrimSuffix(p.Kind, "y")+"ies"))
		}
	}
	for _, of := range []struct {
		count        int
		noun, effect string
	}{
		{d.Taints.NodesNoExecute, "node", "NoExecute"}, {d.Taints.DevicesNoExecute, "device", "NoExecute"}, {d.Taints.DevicesNoSchedule, "device", "NoSchedule"},
	} {
		if of.count > 0 {
			tainted = append(tainted, cli.Counted(of.count, of.noun)+" with "+of.effect)
		}
	}
	return [][2]string{
		{"Tollgate", d.tollgate(now)},
		{"Webhooks", cli.Joined(webhooks)},
		{"Policies", cli.Joined(policies)},
		{"Tainted", cli.Joined(tainted)},
		{"Evictions", cmp.Or(evictions.Counts(d.Evictions), "no pod has to leave")},
	}
}
