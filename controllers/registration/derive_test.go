package registration_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/controllers/registration"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

func settings() registration.Settings {
	return registration.Settings{
		Namespace: "tollgate-system", Service: "tollgate", DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 60},
		NodeTaintTimestamps: true, DeviceTaintAdmission: true, WarnsOfComparisons: true,
	}
}

func derive(t *testing.T, reasons registration.Reasons, change func(*registration.Settings)) []registration.Webhook {
	t.Helper()
	s := settings()
	if change != nil {
		change(&s)
	}
	d, err := registration.NewDeriver(s)
	require.NoError(t, err)
	return append(d.Derive(registration.Validating, reasons, []byte("bundle")), d.Derive(registration.Mutating, reasons, []byte("bundle"))...)
}

const (
	defaults = `{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, ` +
		`{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}`
	dedicated  = `{key: dedicated, operator: Exists}`
	greater    = `{key: gpus, operator: Gt, value: "3"}`
	plain      = `{metadata: {}, spec: {tolerations: [` + defaults + `]}}`
	tolerant   = `{metadata: {}, spec: {tolerations: [` + defaults + `, ` + dedicated + `]}}`
	constraint = `topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]`
	window     = `annotations: {tollgate.dev/window: x}`
	controlled = `ownerReferences: [{controller: true}]`

	kubelet, controllers, scheduler, driver = "system:node:n1", "system:kube-controller-manager", "system:kube-scheduler", "system:serviceaccount:gpu:driver"
)

// template returns a workload with a template of pods.
func template(spec string) string {
	return "{metadata: {}, spec: {template: {spec: {" + spec + "}}}}"
}

// judged are requests by what there is to judge in them, with the entries that the API server
// calls for it.
var judged = map[string]struct {
	request request
	// always are the entries that are called without policies, and with those that are called
	// besides for a reason. A name after a dash is called no more.
	always string
	reason registration.Reasons
	with   string
}{
	"a plain pod": {request{"pods", "", plain, "", "bob"}, "", registration.Tolerations | registration.Gates | registration.DefaultTolerations, ""},
	"a plain pod that a PlacementPolicy may change": {request{"pods", "", plain, "", "bob"}, "", registration.Pods, "pods mutate-pods"},
	"a plain pod that a window may change":          {request{"pods", "", plain, "", "bob"}, "", registration.PodWindows, "mutate-pods"},
	"a pod without tolerations":                     {request{"pods", "", `{metadata: {}, spec: {}}`, "", "bob"}, "", registration.Tolerations | registration.DefaultTolerations, ""},
	"a tolerant pod":                                {request{"pods", "", tolerant, "", "bob"}, "pods", 0, ""},
	"a pod that tolerates everything":               {request{"pods", "", `{metadata: {}, spec: {tolerations: [{operator: Exists}]}}`, "", "bob"}, "pods", registration.DefaultTolerations, ""},
	"one that does so for a while":                  {request{"pods", "", `{metadata: {}, spec: {tolerations: [{operator: Exists, effect: NoExecute, tolerationSeconds: 300}]}}`, "", "bob"}, "pods", registration.DefaultTolerations, ""},
	"default tolerations for another time":          {request{"pods", "", strings.ReplaceAll(plain, "300", "301"), "", "bob"}, "", registration.DefaultTolerations, "pods"},
	"default tolerations for ever":                  {request{"pods", "", strings.ReplaceAll(plain, ", tolerationSeconds: 300", ""), "", "bob"}, "", registration.DefaultTolerations, "pods"},
	"default seconds exchanged":                     {request{"pods", "", strings.ReplaceAll(plain, "300", "60"), "", "bob"}, "", registration.DefaultTolerations, "pods"},
	"a default toleration with a value":             {request{"pods", "", strings.ReplaceAll(plain, "operator: Exists", `operator: Equal, value: ""`), "", "bob"}, "", registration.DefaultTolerations, "pods"},
	"a pod on a node":                               {request{"pods", "", `{metadata: {}, spec: {nodeName: n}}`, "", "bob"}, "pods", 0, ""},
	"a pod behind a gate":                           {request{"pods", "", `{metadata: {}, spec: {schedulingGates: [{name: a}]}}`, "", "bob"}, "", registration.Gates, ""},
	"a pod with windows in another mode":            {request{"pods", "", `{metadata: {` + window + `}, spec: {}}`, "", "bob"}, "", 0, ""},
	"a pod that counts nodes":                       {request{"pods", "", `{metadata: {}, spec: {` + constraint + `}}`, "", "bob"}, "pods", 0, ""},
	"a pod of a workload that counts nodes":         {request{"pods", "", `{metadata: {` + controlled + `}, spec: {` + constraint + `}}`, "", "bob"}, "", 0, ""},
	"a mirror":                                      {request{"pods", "", `{metadata: {annotations: {kubernetes.io/config.mirror: x}}, spec: {tolerations: [` + dedicated + `]}}`, "", kubelet}, "pods", registration.Pods, ""},
	"a pod tolerates more":                          {request{"pods", "", tolerant, plain, "bob"}, "pod-updates", 0, ""},
	"a gate goes":                                   {request{"pods", "", plain, `{metadata: {}, spec: {tolerations: [` + defaults + `], schedulingGates: [{name: a}]}}`, "bob"}, "pod-updates", 0, ""},
	"a pod is labeled":                              {request{"pods", "", `{metadata: {labels: {a: b}}, spec: {}}`, `{metadata: {}, spec: {}}`, "bob"}, "", 0, ""},
	"a kubelet writes the status of a pod":          {request{"pods", "status", plain, plain, kubelet}, "", registration.All, ""},
	"windows are written by a status":               {request{"pods", "status", `{metadata: {` + window + `}, spec: {}}`, `{metadata: {}, spec: {}}`, kubelet}, "pod-updates", 0, ""},
	"a pod is bound":                                {request{"pods", "binding", `{metadata: {}, target: {name: n}}`, "", "bob"}, "", registration.Tolerations, "bindings"},
	"a pod is bound by the scheduler":               {request{"pods", "binding", `{metadata: {}, target: {name: n}}`, "", scheduler}, "", registration.Tolerations, ""},
	"a binding":                                     {request{"bindings", "", `{metadata: {}, target: {name: n}}`, "", "bob"}, "", registration.Tolerations, "bindings"},

	"a tolerant template":                    {request{"deployments", "", template("tolerations: [" + dedicated + "]"), "", "bob"}, "", registration.Tolerations, "templates"},
	"a template on a node":                   {request{"deployments", "", template("nodeName: n"), "", "bob"}, "", registration.Tolerations, "templates"},
	"a template without either":              {request{"deployments", "", template(""), "", "bob"}, "", registration.Tolerations, ""},
	"a template that counts nodes":           {request{"deployments", "", template(constraint), "", "bob"}, "spread", registration.Tolerations, "spread"},
	"a tolerant template that counts nodes":  {request{"deployments", "", template("tolerations: [" + dedicated + "], " + constraint), "", "bob"}, "template-warnings", registration.Tolerations, "-template-warnings templates"},
	"a template that compares":               {request{"deployments", "", template("tolerations: [" + greater + "]"), "", "bob"}, "template-warnings", registration.Tolerations, "-template-warnings templates"},
	"a tolerant cron job":                    {request{"cronjobs", "", "{metadata: {}, spec: {jobTemplate: {spec: {template: {spec: {tolerations: [" + dedicated + "]}}}}}}", "", "bob"}, "", registration.Tolerations, "templates"},
	"a cron job that compares":               {request{"cronjobs", "", "{metadata: {}, spec: {jobTemplate: {spec: {template: {spec: {tolerations: [" + greater + "]}}}}}}", "", "bob"}, "template-warnings", registration.Tolerations, "-template-warnings templates"},
	"a tolerant template of pods":            {request{"podtemplates", "", "{metadata: {}, template: {spec: {tolerations: [" + dedicated + "]}}}", "", "bob"}, "", registration.Tolerations, "templates"},
	"a template of pods that compares":       {request{"podtemplates", "", "{metadata: {}, template: {spec: {tolerations: [" + greater + "]}}}", "", "bob"}, "template-warnings", registration.Tolerations, "-template-warnings templates"},
	"a revision":                             {request{"controllerrevisions", "", "{metadata: {}, data: {}}", "", "bob"}, "", registration.Tolerations, "templates"},
	"a suspended job is tightened":           {request{"jobs", "", template("nodeSelector: {a: b}"), template(""), "queue"}, "", registration.Gates, "jobs"},
	"a job is created":                       {request{"jobs", "", template("nodeSelector: {a: b}"), "", "bob"}, "", registration.Gates, ""},
	"a daemon that lacks tolerations":        {request{"daemonsets", "", template(""), "", "bob"}, "", registration.Pods, "daemonsets"},
	"a tolerant daemon that may lack others": {request{"daemonsets", "", template("tolerations: [" + dedicated + "]"), "", "bob"}, "", registration.Pods, "template-warnings"},
	"a deployment is scaled":                 {request{"deployments", "", "{metadata: {}, spec: {replicas: 3, template: {spec: {}}}}", "{metadata: {}, spec: {replicas: 1, template: {spec: {}}}}", "bob"}, "", registration.All, ""},

	"a namespace is labeled":   {request{"namespaces", "", "{metadata: {labels: {a: b}}}", "{metadata: {}}", "bob"}, "", registration.NamespaceLabels, "namespaces"},
	"a namespace is annotated": {request{"namespaces", "", "{metadata: {annotations: {a: b}}}", "{metadata: {}}", "bob"}, "", registration.NamespaceLabels, ""},
	"labels by the status":     {request{"namespaces", "status", "{metadata: {labels: {a: b}}}", "{metadata: {}}", "bob"}, "", registration.NamespaceLabels, "namespaces"},

	"a node is created":                   {request{"nodes", "", "{metadata: {}, spec: {}}", "", kubelet}, "node-registration mutate-nodes", 0, ""},
	"a node is tainted":                   {request{"nodes", "", "{metadata: {}, spec: {taints: [{key: a}]}}", "{metadata: {}, spec: {}}", "bob"}, "nodes mutate-nodes", 0, ""},
	"a node is untainted":                 {request{"nodes", "", "{metadata: {}, spec: {}}", "{metadata: {}, spec: {taints: [{key: a}]}}", "bob"}, "nodes", 0, ""},
	"a node is tainted by its controller": {request{"nodes", "", "{metadata: {}, spec: {taints: [{key: a}]}}", "{metadata: {}, spec: {}}", controllers}, "mutate-nodes", 0, ""},
	"a heartbeat":                         {request{"nodes", "status", "{metadata: {}, spec: {}, status: {a: 1}}", "{metadata: {}, spec: {}}", kubelet}, "", registration.All, ""},
	"a node labels itself by its status":  {request{"nodes", "status", "{metadata: {labels: {a: b}}, spec: {}}", "{metadata: {}, spec: {}}", kubelet}, "nodes", 0, ""},
	"a node labels itself":                {request{"nodes", "", "{metadata: {labels: {a: b}}, spec: {}}", "{metadata: {}, spec: {}}", kubelet}, "nodes", 0, ""},

	"a rule":              {request{"devicetaintrules", "", "{metadata: {}, spec: {taint: {key: a, effect: None}}}", "", "bob"}, "device-taints mutate-device-taints", 0, ""},
	"a rule is deleted":   {request{"devicetaintrules", "", "", "{metadata: {}, spec: {taint: {key: a, effect: None}}}", "bob"}, "device-taints", 0, ""},
	"a rule is annotated": {request{"devicetaintrules", "", "{metadata: {annotations: {a: b}}, spec: {taint: {key: a, timeAdded: x}}}", "{metadata: {}, spec: {taint: {key: a, timeAdded: x}}}", "bob"}, "", 0, ""},
	"a driver taints":     {request{"resourceslices", "", "{spec: {devices: [{name: a, taints: [{key: a, timeAdded: x}]}]}}", "{spec: {}}", driver}, "device-drivers", 0, ""},
	"a person taints":     {request{"resourceslices", "", "{spec: {devices: [{name: a, taints: [{key: a, timeAdded: x}]}]}}", "{spec: {}}", "bob"}, "device-taints", 0, ""},
	"a taint goes":        {request{"resourceslices", "", "{spec: {devices: [{name: a}]}}", "{spec: {devices: [{name: a, taints: [{key: a, timeAdded: x}]}]}}", driver}, "device-drivers mutate-device-taints", 0, ""},
	"a driver publishes":  {request{"resourceslices", "", "{spec: {devices: [{name: a}]}}", "", driver}, "", registration.All, ""},

	"a tolerant claim": {
		request{"resourceclaims", "", "{metadata: {}, spec: {devices: {requests: [{exactly: {tolerations: [{key: a}]}}]}}}", "", "bob"},
		"claims", registration.Claims, "claims mutate-claims",
	},
	"a claim": {
		request{"resourceclaims", "", "{metadata: {}, spec: {devices: {requests: [{exactly: {}}]}}}", "", "bob"},
		"", registration.ClaimWindows, "mutate-claims",
	},
	"a claim without requests": {request{"resourceclaims", "", "{metadata: {}, spec: {devices: {}}}", "", "bob"}, "", registration.All, ""},
	"a tolerant template of claims": {
		request{"resourceclaimtemplates", "", "{metadata: {}, spec: {spec: {devices: {requests: [{firstAvailable: [{tolerations: [{key: a}]}]}]}}}}", "", "bob"},
		"claims", registration.Claims, "claims mutate-claims",
	},
	"a claim gains a consumer": {
		request{"resourceclaims", "status", "{spec: {devices: {}}, status: {allocation: {}, reservedFor: [{uid: a}]}}", "{spec: {devices: {}}, status: {allocation: {}}}", scheduler},
		"reservations", 0, "",
	},
	"a claim is allocated": {
		request{"resourceclaims", "status", "{spec: {devices: {}}, status: {allocation: {}, reservedFor: [{uid: a}]}}", "{spec: {devices: {}}, status: {}}", scheduler},
		"", registration.All, "",
	},

	"a policy":                    {request{"tolerationpolicies", "", "{metadata: {}, spec: {}}", "", "bob"}, "policies", 0, ""},
	"a policy is deleted":         {request{"tolerationpolicies", "", "", "{metadata: {}, spec: {}}", "bob"}, "", registration.All, ""},
	"a patch":                     {request{"resourceslicepatches", "", "{metadata: {}, spec: {}}", "", "bob"}, "policies", 0, ""},
	"a patch with taints goes":    {request{"resourceslicepatches", "", "", "{spec: {devices: {taints: [{key: a}]}}}", "bob"}, "policies", 0, ""},
	"a patch without taints goes": {request{"resourceslicepatches", "", "", "{spec: {devices: {}}}", "bob"}, "", registration.All, ""},
}

func namesOf(entries []*entry) []string {
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = strings.TrimSuffix(e.Name, ".tollgate.dev")
	}
	slices.Sort(out)
	return out
}

func TestTheAPIServerCallsForEachReasonToJudge(t *testing.T) {
	none := entriesOf(derive(t, 0, nil))
	for name, tt := range judged {
		t.Run(name, func(t *testing.T) {
			want := strings.Fields(tt.always)
			slices.Sort(want)
			got, _ := called(t, none, &tt.request)
			require.Equal(t, append([]string{}, want...), namesOf(got), "without policies")
			for name := range strings.FieldsSeq(tt.with) {
				if gone, ok := strings.CutPrefix(name, "-"); ok {
					want = slices.DeleteFunc(want, func(n string) bool { return n == gone })
				} else if !slices.Contains(want, name) {
					want = append(want, name)
				}
			}
			slices.Sort(want)
			got, _ = called(t, entriesOf(derive(t, tt.reason, nil)), &tt.request)
			require.Equal(t, append([]string{}, want...), namesOf(got), "for %s", tt.reason)
		})
	}
}

func TestPodsWithWindowsAreJudgedInModeWindow(t *testing.T) {
	entries := entriesOf(derive(t, 0, func(s *registration.Settings) { s.Window = true }))
	for object, want := range map[string][]string{
		`{metadata: {` + window + `}, spec: {}}`:      {"pods"},
		`{metadata: {annotations: {a: b}}, spec: {}}`: {},
		plain: {},
	} {
		got, _ := called(t, entries, &request{"pods", "", object, "", "bob"})
		require.Equal(t, want, namesOf(got), object)
	}
}

// Entries for resources outside of namespaces select none: the API server looks up the namespace of each
// request for each entry that does, whatever the resource.
func TestOnlyEntriesForWhatIsInNamespacesSelectThem(t *testing.T) {
	for _, e := range entriesOf(derive(t, registration.All, nil)) {
		inside := slices.ContainsFunc(e.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return *r.Scope == admissionregistrationv1.NamespacedScope || slices.Contains(r.Resources, "namespaces")
		})
		require.Equal(t, inside, len(e.NamespaceSelector.MatchExpressions) > 0, e.Name)
	}
}

// With all reasons, the derived entries match the same requests as the manifests, and have the
// same failurePolicy for each.
func TestAllReasonsCallAsTheManifestsDo(t *testing.T) {
	manifests, managed := shipped(t), entriesOf(derive(t, registration.All, func(s *registration.Settings) { s.Window = true }))
	outcomes := func(entries []*entry) []string {
		out := map[string]bool{}
		for _, e := range entries {
			out[fmt.Sprintln(*e.ClientConfig.Service.Path, *e.FailurePolicy, *e.TimeoutSeconds, *e.SideEffects)] = true
		}
		return slices.Sorted(maps.Keys(out))
	}
	for name, tt := range judged {
		t.Run(name, func(t *testing.T) {
			want, _ := called(t, manifests, &tt.request)
			got, _ := called(t, managed, &tt.request)
			require.Equal(t, outcomes(want), outcomes(got))
		})
	}
	t.Run("rules", func(t *testing.T) {
		require.Equal(t, covered(manifests), covered(managed))
	})
}

// namespaces returns the namespaces whose objects of a resource an entry is about. Nil selects all of them, as
// an empty selector does, and so does any selector where the objects are in none and are none.
func namespaces(e *entry, r *admissionregistrationv1.RuleWithOperations, resource string) string {
	if e.NamespaceSelector == nil || *r.Scope == admissionregistrationv1.ClusterScope && !strings.HasPrefix(resource, "namespaces") {
		return metav1.FormatLabelSelector(&metav1.LabelSelector{})
	}
	return metav1.FormatLabelSelector(e.NamespaceSelector)
}

// covered returns all that rules cover, one line for each resource, operation and setting.
func covered(entries []entry) []string {
	var out []string
	for i := range entries {
		e := &entries[i]
		for _, r := range e.Rules {
			for _, group := range r.APIGroups {
				for _, version := range r.APIVersions {
					for _, resource := range r.Resources {
						for _, operation := range r.Operations {
							out = append(out, fmt.Sprint(e.ClientConfig.Service.Name, " ", e.ClientConfig.Service.Namespace, " ", *e.ClientConfig.Service.Path, " ", group, " ", version, " ", resource, " ", operation, " ", *r.Scope, " ",
								*e.FailurePolicy, *e.TimeoutSeconds, *e.MatchPolicy, *e.SideEffects, e.AdmissionReviewVersions, " ",
								namespaces(e, &r, resource), " ", e.ReinvocationPolicy != nil && *e.ReinvocationPolicy == "IfNeeded"))
						}
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestAStatusWriteEvaluatesOneCondition(t *testing.T) {
	entries := entriesOf(derive(t, registration.All, nil))
	for _, r := range []request{
		{"pods", "status", plain, plain, kubelet},
		{"nodes", "status", "{metadata: {}, spec: {}}", "{metadata: {}, spec: {}}", kubelet},
		{"pods", "", plain, "", "bob"}, // one for each configuration
	} {
		_, conditions := called(t, entries, &r)
		require.Equal(t, 1, conditions, r.resource+"/"+r.subresource)
	}
}

func TestSettings(t *testing.T) {
	t.Run("without device admission there is nothing about devices but claims", func(t *testing.T) {
		for _, e := range entriesOf(derive(t, registration.All, func(s *registration.Settings) { s.DeviceTaintAdmission = false })) {
			for _, r := range e.Rules {
				require.NotContains(t, r.Resources, "resourceslices")
				require.NotContains(t, r.Resources, "devicetaintrules")
				require.NotContains(t, r.Resources, "resourceclaims/status")
			}
		}
	})
	t.Run("without times only new nodes are changed", func(t *testing.T) {
		entries := entriesOf(derive(t, 0, func(s *registration.Settings) { s.NodeTaintTimestamps = false }))
		got, _ := called(t, entries, &request{"nodes", "", "{metadata: {}, spec: {taints: [{key: a}]}}", "{metadata: {}, spec: {}}", "bob"})
		require.Equal(t, []string{"nodes"}, namesOf(got))
		got, _ = called(t, entries, &request{"nodes", "", "{metadata: {}, spec: {}}", "", kubelet})
		require.Equal(t, []string{"mutate-nodes", "node-registration"}, namesOf(got))
	})
	t.Run("in mode Window bindings are looked at", func(t *testing.T) {
		entries := entriesOf(derive(t, 0, func(s *registration.Settings) { s.Window = true }))
		got, _ := called(t, entries, &request{"pods", "binding", "{metadata: {}, target: {name: n}}", "", "bob"})
		require.Equal(t, []string{"bindings"}, namesOf(got))
	})
	t.Run("a URL", func(t *testing.T) {
		for _, e := range entriesOf(derive(t, registration.All, func(s *registration.Settings) { s.URL = "https://10.0.0.1:9443" })) {
			require.Nil(t, e.ClientConfig.Service)
			require.Contains(t, []string{"https://10.0.0.1:9443/mutate", "https://10.0.0.1:9443/validate"}, *e.ClientConfig.URL)
			require.Equal(t, "bundle", string(e.ClientConfig.CABundle))
		}
	})
	t.Run("another namespace, others outside, and failures that let through", func(t *testing.T) {
		for _, e := range entriesOf(derive(t, registration.All, func(s *registration.Settings) {
			s.Namespace, s.ExcludedNamespaces, s.FailurePolicy = "gates", []string{"kube-system", "cert-manager"}, admissionregistrationv1.Ignore
		})) {
			require.Equal(t, "gates", e.ClientConfig.Service.Namespace)
			require.Equal(t, admissionregistrationv1.Ignore, *e.FailurePolicy)
			if len(e.NamespaceSelector.MatchExpressions) == 0 {
				for _, r := range e.Rules {
					require.Equal(t, admissionregistrationv1.ClusterScope, *r.Scope, "what is in a namespace has a selector")
				}
				continue
			}
			require.Equal(t, []metav1.LabelSelectorRequirement{{
				Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "gates", "cert-manager"},
			}}, e.NamespaceSelector.MatchExpressions)
		}
	})
}

func TestWhatIsDerivedIsWhole(t *testing.T) {
	w := derive(t, registration.All, nil)
	require.Equal(t, w, derive(t, registration.All, nil), "the same each time")
	seen := map[string]bool{}
	for _, e := range entriesOf(w) {
		require.False(t, seen[e.Name], e.Name)
		seen[e.Name] = true
		require.NotEmpty(t, e.Rules, e.Name)
		require.NotNil(t, e.ObjectSelector)
		require.NotNil(t, e.NamespaceSelector)
		require.Equal(t, int32(443), *e.ClientConfig.Service.Port)
		require.LessOrEqual(t, len(e.MatchConditions), 1)
		for _, c := range e.MatchConditions {
			require.NotEmpty(t, c.Expression, c.Name)
		}
		for _, r := range e.Rules {
			for _, list := range [][]string{r.APIGroups, r.APIVersions, r.Resources} {
				require.NotContains(t, list, "*")
				require.NotContains(t, list, "*/*")
			}
		}
	}
}
