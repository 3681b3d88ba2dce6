package handlers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// entry is what of an entry of a webhook configuration says whether it is called.
type entry struct {
	Name            string                                       `json:"name"`
	Rules           []admissionregistrationv1.RuleWithOperations `json:"rules"`
	MatchConditions []admissionregistrationv1.MatchCondition     `json:"matchConditions"`

	matcher matchconditions.Matcher
}

// entries returns the entries of the configurations in deploy/webhooks, with the API
// server's own evaluator for their conditions.
func entries(t *testing.T) []entry {
	t.Helper()
	compiler := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	var all []entry
	for _, file := range []string{"mutating.yaml", "validating.yaml"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "webhooks", file))
		require.NoError(t, err)
		var configuration struct {
			Webhooks []entry `json:"webhooks"`
		}
		require.NoError(t, yaml.Unmarshal(raw, &configuration))
		for _, e := range configuration.Webhooks {
			accessors := make([]plugincel.ExpressionAccessor, 0, len(e.MatchConditions))
			for i := range e.MatchConditions {
				accessors = append(accessors, (*matchconditions.MatchCondition)(&e.MatchConditions[i]))
			}
			evaluator := compiler.CompileCondition(accessors, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
			e.matcher = matchconditions.NewMatcher(evaluator, nil, "webhook", "admit", e.Name)
			all = append(all, e)
		}
	}
	return all
}

// calls returns the names of the entries that the API server would call.
func calls(t *testing.T, all []entry, attributes apiserveradmission.Attributes) []string {
	t.Helper()
	var called []string
	for i := range all {
		if all[i].covers(attributes) && all[i].matches(t, attributes) {
			called = append(called, all[i].Name)
		}
	}
	return called
}

func (e *entry) covers(a apiserveradmission.Attributes) bool {
	resource := a.GetResource().Resource
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	for _, r := range e.Rules {
		if slices.Contains(r.APIGroups, a.GetResource().Group) && slices.Contains(r.Resources, resource) &&
			slices.Contains(r.Operations, admissionregistrationv1.OperationType(a.GetOperation())) {
			return true
		}
	}
	return false
}

func (e *entry) matches(t *testing.T, a apiserveradmission.Attributes) bool {
	t.Helper()
	versioned := &apiserveradmission.VersionedAttributes{Attributes: a, VersionedKind: a.GetKind()}
	if a.GetObject() != nil {
		versioned.VersionedObject = apiserveradmission.NewLazyObject(a.GetObject())
	}
	if a.GetOldObject() != nil {
		versioned.VersionedOldObject = apiserveradmission.NewLazyObject(a.GetOldObject())
	}
	result := e.matcher.Match(t.Context(), versioned, nil, nil)
	require.NoError(t, result.Error)
	return result.Matches
}

// seenBy returns a request as the API server has it; an empty object is none.
func seenBy(t *testing.T, kind schema.GroupVersionKind, resource, subresource, object, old, username string) apiserveradmission.Attributes {
	t.Helper()
	read := func(text string) runtime.Object {
		if text == "" {
			return nil
		}
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
		u.SetGroupVersionKind(kind)
		return u
	}
	operation := apiserveradmission.Update
	switch {
	case old == "":
		operation = apiserveradmission.Create
	case object == "":
		operation = apiserveradmission.Delete
	}
	return apiserveradmission.NewAttributesRecord(read(object), read(old), kind, "", "x", kind.GroupVersion().WithResource(resource),
		subresource, operation, nil, false, &user.DefaultInfo{Name: username})
}

func TestTheAPIServerCallsOutForWhatIsGoverned(t *testing.T) {
	const (
		mutate, validate, registration, drivers = "mutate.tollgate.dev", "validate.tollgate.dev", "node-registration.tollgate.dev", "device-drivers.tollgate.dev"

		plain   = `{"metadata":{"labels":{"a":"b"}},"spec":{}}`
		tainted = `{"metadata":{"labels":{"a":"b"}},"spec":{"taints":[{"key":"k","effect":"NoExecute"}]}}`
		labeled = `{"metadata":{"labels":{"a":"c"}},"spec":{}}`
		owned   = `{"metadata":{"labels":{"a":"b"},"ownerReferences":[{"name":"x"}]},"spec":{}}`

		rule      = `{"metadata":{},"spec":{"taint":{"key":"k","effect":"None","timeAdded":"2026-11-20T12:00:00Z"}}}`
		evicting  = `{"metadata":{},"spec":{"taint":{"key":"k","effect":"NoExecute","timeAdded":"2026-11-20T13:00:00Z"}}}`
		marked    = `{"metadata":{"labels":{"tollgate.dev/pair":"rule"}},"spec":{"taint":{"key":"k","effect":"None","timeAdded":"2026-11-20T12:00:00Z"}}}`
		adopted   = `{"metadata":{"labels":{"tollgate.dev/pair":"rule"},"ownerReferences":[{"name":"x"}]},"spec":{"taint":{"key":"k","effect":"None","timeAdded":"2026-11-20T12:00:00Z"}}}`
		written   = `{"metadata":{"labels":{"tollgate.dev/resource-slice-patch":"1"}},"spec":{"taint":{"key":"k","effect":"None","timeAdded":"2026-11-20T12:00:00Z"}}}`
		possessed = `{"metadata":{"labels":{"tollgate.dev/resource-slice-patch":"1"},"ownerReferences":[{"name":"x"}]},"spec":{"taint":{"key":"k","effect":"None","timeAdded":"2026-11-20T12:00:00Z"}}}`
		effective = `{"metadata":{"annotations":{"tollgate.dev/patch-effect":"NoExecute"}},"spec":{"taint":{"key":"k","effect":"None","timeAdded":"2026-11-20T12:00:00Z"}}}`
		kept      = `{"metadata":{"ownerReferences":[{"name":"x"}]},"spec":{"taint":{"key":"k","effect":"None","timeAdded":"2026-11-20T12:00:00Z"}}}`
		annotated = `{"metadata":{"annotations":{"a":"b"}},"spec":{"taint":{"key":"k","effect":"None","timeAdded":"2026-11-20T12:00:00Z"}}}`

		slice     = `{"spec":{"devices":[{"name":"a"},{"name":"b"}]}}`
		hot       = `{"spec":{"devices":[{"name":"a","taints":[{"key":"k","effect":"NoExecute","timeAdded":"2026-11-20T12:00:00Z"}]},{"name":"b"}]}}`
		hotMoved  = `{"spec":{"devices":[{"name":"b"},{"name":"a","taints":[{"key":"k","effect":"NoExecute","timeAdded":"2026-11-20T12:00:00Z"}]}]}}`
		noDevices = `{"spec":{}}`

		patch        = `{"spec":{"devices":{"attributes":{"d/a":{"int":1}}}}}`
		taintedPatch = `{"spec":{"devices":{"taints":[{"key":"k","effect":"NoExecute"}]}}}`

		kubelet, controller, driver = "system:node:n1", "system:serviceaccount:kube-system:node-controller", "system:serviceaccount:gpu:driver"
	)
	tests := map[string]struct {
		resource, subresource string
		object, old, user     string
		want                  []string
	}{
		"a node is created":                           {"nodes", "", plain, "", kubelet, []string{mutate, registration}},
		"a node is tainted":                           {"nodes", "", tainted, plain, "bob", []string{mutate, validate}},
		"a node is untainted":                         {"nodes", "", plain, tainted, "bob", []string{validate}},
		"a node is tainted by its controller":         {"nodes", "", tainted, plain, controller, []string{mutate}},
		"a node is labeled":                           {"nodes", "", labeled, plain, "bob", nil},
		"a node labels itself":                        {"nodes", "", labeled, plain, kubelet, []string{validate}},
		"C22 a node says who owns it":                 {"nodes", "", owned, plain, kubelet, []string{validate}},
		"C05 a node labels itself by its status":      {"nodes", "status", labeled, plain, kubelet, []string{validate}},
		"C05 a node says who owns it by its status":   {"nodes", "status", owned, plain, kubelet, []string{validate}},
		"a node writes its status":                    {"nodes", "status", plain, plain, kubelet, nil},
		"taints that the API server drops are no use": {"nodes", "status", tainted, plain, "bob", nil},

		"a rule is created":          {"devicetaintrules", "", rule, "", "bob", []string{validate}},
		"a rule evicts":              {"devicetaintrules", "", evicting, rule, "bob", []string{validate}},
		"a rule is annotated":        {"devicetaintrules", "", annotated, rule, "bob", nil},
		"a rule is marked":           {"devicetaintrules", "", marked, rule, "bob", []string{validate}},
		"a rule is unmarked":         {"devicetaintrules", "", rule, marked, "bob", []string{validate}},
		"a marked rule is owned":     {"devicetaintrules", "", adopted, marked, "bob", []string{validate}},
		"a marked rule is annotated": {"devicetaintrules", "", marked, marked, "bob", nil},
		"a rule is deleted":          {"devicetaintrules", "", "", rule, "bob", []string{validate}},

		"a rule is labeled as that of a patch":        {"devicetaintrules", "", written, rule, "bob", []string{validate}},
		"a rule is no longer labeled as one":          {"devicetaintrules", "", rule, written, "bob", []string{validate}},
		"a rule of a patch is owned":                  {"devicetaintrules", "", possessed, written, "bob", []string{validate}},
		"a rule of a patch is disowned":               {"devicetaintrules", "", written, possessed, "bob", []string{validate}},
		"a rule of a patch is as it was":              {"devicetaintrules", "", possessed, possessed, "bob", nil},
		"a rule is annotated with another effect":     {"devicetaintrules", "", effective, rule, "bob", []string{validate}},
		"a rule is no longer annotated with one":      {"devicetaintrules", "", rule, effective, "bob", []string{validate}},
		"a rule with another effect is as it was":     {"devicetaintrules", "", effective, effective, "bob", nil},
		"a rule that nobody marked is owned":          {"devicetaintrules", "", kept, rule, "bob", []string{validate}},
		"a rule that is owned is as it was":           {"devicetaintrules", "", kept, kept, "bob", nil},
		"a rule of a patch is created":                {"devicetaintrules", "", possessed, "", "bob", []string{validate}},
		"a rule of a patch is deleted by a collector": {"devicetaintrules", "", "", possessed, controller, []string{validate}},

		"a patch is created":                      {"resourceslicepatches", "", patch, "", "bob", []string{validate}},
		"a patch is tainted":                      {"resourceslicepatches", "", taintedPatch, patch, "bob", []string{validate}},
		"a patch is written without taints":       {"resourceslicepatches", "", patch, patch, "bob", []string{validate}},
		"a patch with taints is deleted":          {"resourceslicepatches", "", "", taintedPatch, "bob", []string{validate}},
		"a patch without taints is deleted":       {"resourceslicepatches", "", "", patch, "bob", nil},
		"a patch without anything is deleted":     {"resourceslicepatches", "", "", `{"spec":{}}`, "bob", nil},
		"the status of a patch is written":        {"resourceslicepatches", "status", taintedPatch, taintedPatch, "bob", nil},
		"another object of that group is deleted": {"taintpolicies", "", "", `{"spec":{"taints":[{"key":"k"}]}}`, "bob", nil},

		"a driver taints":            {"resourceslices", "", hot, slice, driver, []string{drivers}},
		"a driver lifts a taint":     {"resourceslices", "", slice, hot, driver, []string{mutate, drivers}},
		"a driver publishes again":   {"resourceslices", "", hot, hot, driver, nil},
		"a driver publishes":         {"resourceslices", "", slice, "", driver, nil},
		"a person taints":            {"resourceslices", "", hot, slice, "bob", []string{validate}},
		"a person creates a taint":   {"resourceslices", "", hot, "", "bob", []string{validate}},
		"a person lifts a taint":     {"resourceslices", "", slice, hot, "bob", []string{mutate, validate}},
		"a person removes devices":   {"resourceslices", "", noDevices, hot, "bob", []string{mutate, validate}},
		"a person moves devices":     {"resourceslices", "", hotMoved, hot, "bob", nil},
		"a person changes no taints": {"resourceslices", "", noDevices, slice, "bob", nil},
	}
	kinds := map[string]schema.GroupVersionKind{
		"nodes":            corev1.SchemeGroupVersion.WithKind("Node"),
		"devicetaintrules": resourcev1.SchemeGroupVersion.WithKind("DeviceTaintRule"),
		"resourceslices":   resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"),

		"resourceslicepatches": v1alpha1.GroupVersion.WithKind("ResourceSlicePatch"),
		"taintpolicies":        v1alpha1.GroupVersion.WithKind("TaintPolicy"),
	}
	all := entries(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, calls(t, all, seenBy(t, kinds[tt.resource], tt.resource, tt.subresource, tt.object, tt.old, tt.user)))
		})
	}
}
