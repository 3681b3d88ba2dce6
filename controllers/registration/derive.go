package registration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/deploy/webhooks"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// Settings are the part of the derivation that does not change while a process runs.
type Settings struct {
	// Namespace is the namespace of Tollgate, in which nothing is judged, and of its Service.
	Namespace, Service string
	// URL is the address without a path at which the API server calls a Tollgate outside of
	// its cluster. It replaces the Service.
	URL string
	// FailurePolicy replaces Fail, and ExcludedNamespaces are not judged, besides kube-system
	// and Namespace.
	FailurePolicy      admissionregistrationv1.FailurePolicyType
	ExcludedNamespaces []string
	// DefaultSeconds are those of the tolerations that plain pods have.
	DefaultSeconds toleration.DefaultSeconds
	// Window says that the mode is Window.
	Window bool
	// NodeTaintTimestamps and DeviceTaintAdmission are the feature gates.
	NodeTaintTimestamps, DeviceTaintAdmission bool
	// WarnsOfComparisons says that templates with the operators Lt and Gt bring a warning.
	WarnsOfComparisons bool
}

// Kind is a kind of webhook configurations, as metrics name it.
type Kind string

// The kinds of webhook configurations.
const (
	Validating Kind = "validating"
	Mutating   Kind = "mutating"
)

// Webhook is an entry of a configuration. A mutating one has all fields of a validating one.
type Webhook = admissionregistrationv1.MutatingWebhook

// Deriver derives webhooks. It does not change and is safe for concurrent use.
type Deriver struct {
	Settings

	// entries are those of both manifests, by their names.
	entries map[string]Webhook
	// expressions are the match conditions of all entries, by their names, which are unique.
	expressions map[string]string
}

// NewDeriver returns a deriver, or an error if the manifests are not as it expects them.
func NewDeriver(settings Settings) (*Deriver, error) {
	d := &Deriver{Settings: settings, entries: map[string]Webhook{}, expressions: map[string]string{}}
	for kind, manifest := range map[Kind][]byte{Validating: webhooks.Validating, Mutating: webhooks.Mutating} {
		var configuration admissionregistrationv1.MutatingWebhookConfiguration
		if err := yaml.UnmarshalStrict(manifest, &configuration); err != nil {
			return nil, fmt.Errorf("read the manifest of the %s webhooks: %w", kind, err)
		}
		for _, w := range configuration.Webhooks {
			d.entries[w.Name] = w
			for _, c := range w.MatchConditions {
				d.expressions[c.Name] = c.Expression
			}
		}
	}
	return d, nil
}

// suffix ends the names of all entries.
const suffix = ".tollgate.dev"

// part describes an entry: which part of an entry of a manifest it is.
type part struct {
	// name is the name of the entry without its suffix, and of its condition where several
	// are joined.
	name string
	// of is the name of the entry in the manifest, without its suffix; empty for validate or mutate.
	of string
	// resources, separated by spaces, and operations are those that it takes of the rules; empty
	// for all of them.
	resources  string
	operations []admissionregistrationv1.OperationType
	// conditions are the names, separated by spaces, of the conditions that are about these, in
	// any entry of the manifests or added.
	conditions string
	// with are reasons and settings of which the entry needs one; zero for none. without are those
	// for which there is no such entry.
	with, without Reasons
}

// The settings on which entries depend, as bits beside those of the reasons.
const (
	inWindow Reasons = (All + 1) << iota
	timestamps
	deviceTaints
)

// The conditions that are in no manifest.
const (
	notPlain = "pods-are-not-plain"
	warned   = "templates-bring-warnings"
)

var (
	create = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
	update = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
)

const (
	// workloads are the resources with a template of pods that users write, and spreading those
	// of them whose pods a scheduler spreads.
	workloads = spreading + " daemonsets"
	spreading = "replicationcontrollers podtemplates deployments replicasets statefulsets jobs cronjobs"
	// ownKinds are the resources of tollgate.dev.
	ownKinds = "tolerationpolicies placementpolicies taintpolicies gatepolicies evictionpolicies evictionapprovals resourceslicepatches"
)

// parts are the entries of both configurations. The API server compares each request with all of
// them, so what the same conditions may be about is one entry.
var parts = map[Kind][]part{Validating: {
	{name: "pods", resources: "pods", operations: create, conditions: notPlain, without: Pods},
	// A pod without what a PlacementPolicy gives is refused, whatever it has.
	{name: "pods", resources: "pods", operations: create, with: Pods},
	// Kubelets write the status of their pods all the time: this is the one condition then.
	{
		name: "pod-updates", resources: "pods pods/status", operations: update,
		conditions: "pods-change-what-is-judged",
	},
	{
		name: "bindings", resources: "pods/binding bindings", conditions: "not-the-scheduler",
		// In mode Window a binding could list windows that Tollgate did not give.
		with: Tolerations | inWindow,
	},
	{
		name: "templates", resources: "controllerrevisions " + workloads,
		conditions: "templates-change-what-is-judged", with: Tolerations,
	},
	{
		name: "jobs", resources: "jobs", operations: update,
		conditions: "templates-change-what-is-judged", with: Gates, without: Tolerations,
	},
	// These are only warned about. Where templates are judged, those are too.
	{
		name: "template-warnings", of: "spread", resources: workloads,
		conditions: "templates-change-what-is-judged " + warned, without: Tolerations,
	},
	{
		name: "namespaces", resources: "namespaces namespaces/status namespaces/finalize",
		conditions: "namespaces-change-labels", with: NamespaceLabels,
	},
	{
		name: "nodes", resources: "nodes nodes/status", operations: update,
		conditions: "not-the-node-controllers nodes-change-taints",
	},
	{name: "policies", resources: ownKinds, conditions: "patches-are-deleted-with-taints"},
	{
		name: "device-taints", resources: "devicetaintrules resourceslices",
		conditions: "rules-change-their-spec slices-change-taints-by-others-than-drivers", with: deviceTaints,
	},
	{
		name: "claims", resources: "resourceclaims resourceclaimtemplates",
		conditions: "claims-are-new-or-change-their-window claims-have-tolerations",
	},
	{
		name: "reservations", resources: "resourceclaims/status",
		conditions: "allocated-claims-gain-consumers", with: deviceTaints,
	},
	{name: "node-registration", of: "node-registration"},
	// Which nodes a constraint counts depends on taints, not on policies.
	{
		name: "spread", of: "spread", resources: spreading,
		conditions: "not-made-by-a-controller templates-change-how-they-spread",
	},
	{
		name: "daemonsets", of: "spread", resources: "daemonsets",
		conditions: "not-made-by-a-controller templates-change-how-they-spread", with: Pods,
	},
	{name: "device-drivers", of: "device-drivers", conditions: "by-drivers slices-change-taints", with: deviceTaints},
}, Mutating: {
	{name: "mutate-pods", resources: "pods", conditions: "not-mirrors", with: Pods | PodWindows},
	{
		name: "mutate-claims", resources: "resourceclaims resourceclaimtemplates",
		conditions: "claims-request-devices", with: Claims | ClaimWindows,
	},
	{name: "mutate-nodes", resources: "nodes", conditions: "taints-are-written", with: timestamps},
	// New nodes get the taints that policies register, with or without a time.
	{name: "mutate-nodes", resources: "nodes", operations: create, without: timestamps},
	{
		name: "mutate-device-taints", resources: "devicetaintrules resourceslices",
		conditions: "rules-change-their-effect-and-not-its-time slices-with-taints-change-them", with: deviceTaints,
	},
}}

// Derive returns the webhooks of a configuration for some reasons, which verify Tollgate by a bundle
// of CAs. Every field that the API server sets by default is set, so that they are equal to what it
// returns.
func (d *Deriver) Derive(kind Kind, reasons Reasons, caBundle []byte) []Webhook {
	most := map[Kind]string{Validating: "validate", Mutating: "mutate"}[kind]
	given := reasons
	for setting, on := range map[Reasons]bool{
		inWindow: d.Window, timestamps: d.NodeTaintTimestamps, deviceTaints: d.DeviceTaintAdmission,
	} {
		if on {
			given |= setting
		}
	}
	var out []Webhook
	for i := range parts[kind] {
		p := &parts[kind][i]
		if p.with != 0 && given&p.with == 0 || given&p.without != 0 {
			continue
		}
		from := d.entries[cmp.Or(p.of, most)+suffix]
		w := *from.DeepCopy()
		w.Name, w.Rules, w.MatchConditions = p.name+suffix, p.rules(w.Rules), d.condition(p, reasons)
		w.NamespaceSelector, w.ObjectSelector = d.namespaces(w.Rules, w.NamespaceSelector), &metav1.LabelSelector{}
		service := w.ClientConfig.Service
		service.Namespace, service.Name, service.Port = d.Namespace, d.Service, new(int32(443))
		w.ClientConfig.CABundle = caBundle
		if d.URL != "" {
			w.ClientConfig.URL, w.ClientConfig.Service = new(d.URL+*service.Path), nil
		}
		if *w.FailurePolicy == admissionregistrationv1.Fail {
			*w.FailurePolicy = cmp.Or(d.FailurePolicy, *w.FailurePolicy)
		}
		out = append(out, w)
	}
	return out
}

// rules returns the part of rules that an entry has.
func (p *part) rules(all []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	var out []admissionregistrationv1.RuleWithOperations
	resources := strings.Fields(p.resources)
	for _, r := range all {
		if len(resources) > 0 {
			r.Resources = slices.DeleteFunc(r.Resources, func(name string) bool { return !slices.Contains(resources, name) })
		}
		if p.operations != nil {
			r.Operations = slices.DeleteFunc(r.Operations, func(o admissionregistrationv1.OperationType) bool { return !slices.Contains(p.operations, o) })
		}
		if len(r.Resources) > 0 && len(r.Operations) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// condition returns the conditions of an entry as one, which ends at its first false part: the
// API server evaluates all conditions, whatever the first of them says.
func (d *Deriver) condition(p *part, reasons Reasons) []admissionregistrationv1.MatchCondition {
	names := strings.Fields(p.conditions)
	texts := make([]string, len(names))
	for i, name := range names {
		switch name {
		case notPlain:
			texts[i] = d.plainPod(reasons)
		case warned:
			texts[i] = d.templateWarnings(reasons)
		default:
			texts[i] = d.expressions[name]
		}
	}
	switch len(texts) {
	case 0:
		return nil
	case 1:
		return []admissionregistrationv1.MatchCondition{{Name: names[0], Expression: texts[0]}}
	}
	return []admissionregistrationv1.MatchCondition{{Name: p.name, Expression: "(" + strings.Join(texts, ") && (") + ")"}}
}

// templateWarnings returns the condition of templates that may bring a warning.
func (d *Deriver) templateWarnings(reasons Reasons) string {
	texts := []string{`request.resource.resource != 'daemonsets' && s.?topologySpreadConstraints.orValue([]).exists(c,
c.whenUnsatisfiable == 'DoNotSchedule' && c.?nodeTaintsPolicy.orValue('Ignore') == 'Ignore')`}
	if d.WarnsOfComparisons {
		texts = append(texts, `s.?tolerations.orValue([]).exists(t, t.?operator.orValue('') in ['Lt', 'Gt'])`)
	}
	if reasons&Pods != 0 {
		texts = append(texts, `request.resource.resource == 'daemonsets'`)
	}
	return `[request.resource.resource == 'podtemplates' ? object.?template.?spec.orValue({}) :
request.resource.resource == 'cronjobs' ? object.?spec.?jobTemplate.?spec.?template.?spec.orValue({}) :
object.?spec.?template.?spec.orValue({})].exists(s,
` + strings.Join(texts, " ||\n") + ")"
}

// plainPod returns the condition of pods that are not plain. A pod is plain if it tolerates nothing
// but nodes that are not ready or unreachable, has no node, no constraint that brings a warning,
// and in mode Window no annotation of windows: then neither a rule of Kubernetes nor a
// TolerationPolicy, GatePolicy or EvictionPolicy has anything to judge.
//
// Every plain pod of the cluster pays for each step of it in the API server.
func (d *Deriver) plainPod(reasons Reasons) string {
	plain := "has(t.key) && t.key in ['node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable']"
	if reasons&DefaultTolerations != 0 {
		// DefaultTolerationSeconds adds these. The API server has made sure before that a toleration
		// with seconds is one of NoExecute, and that one that Exists has no value (AV-23).
		plain = fmt.Sprintf(`has(t.tolerationSeconds) && has(t.operator) && t.operator == 'Exists' && has(t.key) &&
(t.key == 'node.kubernetes.io/not-ready' && t.tolerationSeconds == %d || t.key == 'node.kubernetes.io/unreachable' && t.tolerationSeconds == %d)`,
			d.DefaultSeconds.NotReady, d.DefaultSeconds.Unreachable)
	}
	texts := []string{
		"has(object.spec.tolerations) && !object.spec.tolerations.all(t, " + plain + ")",
		"has(object.spec.nodeName) && object.spec.nodeName != ''",
	}
	if d.Window {
		texts = append(texts, "has(object.metadata.annotations) && '"+v1alpha1.AnnotationWindow+"' in object.metadata.annotations")
	}
	return strings.Join(append(texts, `has(object.spec.topologySpreadConstraints) && object.spec.topologySpreadConstraints.exists(c,
c.whenUnsatisfiable == 'DoNotSchedule' && c.?nodeTaintsPolicy.orValue('Ignore') == 'Ignore') &&
!object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))`), " ||\n")
}

// namespaces returns the selector of an entry with rules: the namespaces outside are kube-system,
// Tollgate's own and the excluded ones. An entry for cluster-scoped resources has none: the API server
// would look up the namespace of every request for it, whatever its resource is.
func (d *Deriver) namespaces(rules []admissionregistrationv1.RuleWithOperations, of *metav1.LabelSelector) *metav1.LabelSelector {
	if of == nil || !slices.ContainsFunc(rules, hasNamespace) {
		return &metav1.LabelSelector{}
	}
	outside := []string{metav1.NamespaceSystem, d.Namespace}
	for _, name := range d.ExcludedNamespaces {
		if !slices.Contains(outside, name) {
			outside = append(outside, name)
		}
	}
	of.MatchExpressions[0].Values = outside
	return of
}

// hasNamespace reports whether objects that a rule is about are in a namespace, or are one.
func hasNamespace(rule admissionregistrationv1.RuleWithOperations) bool {
	return rule.Scope == nil || *rule.Scope != admissionregistrationv1.ClusterScope || slices.Contains(rule.Resources, "namespaces")
}
