package operate

import (
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
	"github.com/tollgate-dev/tollgate/tracker"
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

func tollgateOf(found *state.Tollgate) tollgate {
	t := tollgate{Installed: found.Installed, Leader: found.Leader, Leads: found.Leads, Renewed: cli.TimeOrNone(found.Renewed)}
	if found.Told {
		t.Mode = string(found.Terms.Mode)
	}
	return t
}

func taintsOf(t *tracker.Tracker) taints {
	counts := taints{NodesNoExecute: len(t.Tainted())}
	for of, devices := range t.TaintedDevices() {
		if of.Effect == corev1.TaintEffectNoExecute {
			counts.DevicesNoExecute += devices
		} else {
			counts.DevicesNoSchedule += devices
		}
	}
	return counts
}

// readWebhooks reads the webhook configurations of Tollgate.
func readWebhooks(ctx context.Context, clients *cli.Clients, found *state.Cluster) ([]webhooks, error) {
	const name, group = "tollgate", "admissionregistration.k8s.io"
	client := clients.Kubernetes.AdmissionregistrationV1()
	var all []webhooks
	for _, configuration := range []struct {
		kind, resource string
		count          func() (int, error)
	}{
		{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations", func() (int, error) {
			c, err := client.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			return len(c.Webhooks), err
		}},
		{"MutatingWebhookConfiguration", "mutatingwebhookconfigurations", func() (int, error) {
			c, err := client.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			return len(c.Webhooks), err
		}},
	} {
		count, err := configuration.count()
		resource := schema.GroupResource{Group: group, Resource: configuration.resource}
		switch {
		case apierrors.IsForbidden(err):
			if err := found.Lack(err, "get", resource, "which webhooks of Tollgate are registered is not known"); err != nil {
				return nil, err
			}
			continue
		case err != nil && !apierrors.IsNotFound(err):
			return nil, cli.Failed(err, "read "+configuration.kind+" "+name, "get", resource)
		}
		all = append(all, webhooks{Configuration: configuration.kind, Exists: err == nil, Webhooks: count})
	}
	return all, nil
}

// readPolicies reads the policies of all kinds.
func readPolicies(ctx context.Context, clients *cli.Clients, found *state.Cluster) ([]policies, error) {
	var all []policies
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
		if lacks := found.Lack(err, "list", resource, "those are not shown"); lacks != nil {
			return nil, lacks
		}
		if err == nil {
			all = append(all, one)
		}
	}
	return all, nil
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
	d := &Status{
		APIVersion: "cli.tollgate.dev/v1alpha1", Kind: "Status", Tollgate: tollgateOf(&found.Tollgate), Webhooks: objects.webhooks, Policies: objects.policies, Taints: taintsOf(found.Tracker), Evictions: map[evictions.State]int{},
	}
	for _, e := range list {
		d.Evictions[e.State]++
	}
	d.Attention, d.Missing = append(d.attention(), evictions.Notes(list, now)...), slices.Concat(found.Missing(), objects.missing)
	if lack := found.Tollgate.Lack(); lack != "" && (found.Tollgate.Told || !found.Tollgate.Installed) {
		// That Tollgate does not run, or does not lead, is known.
		d.Attention, d.Missing = slices.Insert(d.Attention, 0, lack), slices.DeleteFunc(d.Missing, func(s string) bool { return s == lack })
	}
	return d
}

// ReadObjects reads the webhook configurations and the policies of Tollgate.
func ReadObjects(ctx context.Context, clients *cli.Clients) (*Objects, error) {
	objects, lacks := &Objects{}, &state.Cluster{}
	var err error
	if objects.webhooks, err = readWebhooks(ctx, clients, lacks); err != nil {
		return nil, err
	}
	if objects.policies, err = readPolicies(ctx, clients, lacks); err != nil {
		return nil, err
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
	lines := [][2]string{
		{"Tollgate", d.tollgate(now)}, {"Webhooks", d.webhooks()}, {"Policies", d.policies()}, {"Tainted", d.taints()}, {"Evictions", d.evictions()},
	}
	var text strings.Builder
	for _, line := range lines {
		for i, part := range cli.Indented("", "", cli.Clean(line[1]), cli.Width-len(column)) {
			head := column
			if i == 0 {
				head = fmt.Sprintf("%-*s", len(column), line[0])
			}
			text.WriteString(head + part + "\n")
		}
	}
	for _, part := range []struct {
		head      string
		sentences []string
	}{{"Needs attention:", d.Attention}, {"Not known:", d.Missing}} {
		if len(part.sentences) > 0 {
			text.WriteString("\n" + part.head + "\n")
		}
		for _, sentence := range part.sentences {
			for _, line := range cli.Indented("  ", "    ", cli.Clean(sentence), cli.Width) {
				text.WriteString(line + "\n")
			}
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

func (d *Status) webhooks() string {
	var parts []string
	for _, w := range d.Webhooks {
		kind := strings.ToLower(strings.TrimSuffix(w.Configuration, "WebhookConfiguration"))
		if w.Exists {
			parts = append(parts, strconv.Itoa(w.Webhooks)+" "+kind)
		} else {
			parts = append(parts, "no "+w.Configuration)
		}
	}
	return cli.Joined(parts)
}

func (d *Status) policies() string {
	var parts []string
	for _, p := range d.Policies {
		if p.Policies > 0 {
			parts = append(parts, strconv.Itoa(p.Policies)+" "+cli.Plural(p.Policies, p.Kind, strings.TrimSuffix(p.Kind, "y")+"ies"))
		}
	}
	return cli.Joined(parts)
}

func (d *Status) taints() string {
	var parts []string
	add := func(count int, noun, effect string) {
		if count > 0 {
			parts = append(parts, cli.Counted(count, noun)+" with "+effect)
		}
	}
	add(d.Taints.NodesNoExecute, "node", "NoExecute")
	add(d.Taints.DevicesNoExecute, "device", "NoExecute")
	add(d.Taints.DevicesNoSchedule, "device", "NoSchedule")
	return cli.Joined(parts)
}

func (d *Status) evictions() string {
	var parts []string
	for _, s := range evictions.States() {
		if count := d.Evictions[s]; count > 0 {
			parts = append(parts, strconv.Itoa(count)+" "+string(s))
		}
	}
	if len(parts) == 0 {
		return "no pod has to leave"
	}
	return strings.Join(parts, ", ")
}
