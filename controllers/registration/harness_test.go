package registration_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserveradmission "k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/controllers/registration"
	"github.com/tollgate-dev/tollgate/deploy/webhooks"
)

// entry is a webhook with the API server's evaluator of match conditions.
type entry struct {
	registration.Webhook

	matcher matchconditions.Matcher
}

func entriesOf(webhooks []registration.Webhook) []entry {
	all := make([]entry, len(webhooks))
	for i := range webhooks {
		all[i].Webhook = webhooks[i]
	}
	compiler := plugincel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	for i := range all {
		e := &all[i]
		accessors := make([]plugincel.ExpressionAccessor, 0, len(e.MatchConditions))
		for k := range e.MatchConditions {
			accessors = append(accessors, (*matchconditions.MatchCondition)(&e.MatchConditions[k]))
		}
		evaluator := compiler.CompileCondition(accessors, plugincel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
		e.matcher = matchconditions.NewMatcher(evaluator, nil, "webhook", "admit", e.Name)
	}
	return all
}

// shipped returns the entries of the manifests.
func shipped(t *testing.T) []entry {
	t.Helper()
	var all []registration.Webhook
	for _, manifest := range [][]byte{webhooks.Validating, webhooks.Mutating} {
		var configuration admissionregistrationv1.MutatingWebhookConfiguration
		require.NoError(t, yaml.UnmarshalStrict(manifest, &configuration))
		all = append(all, configuration.Webhooks...)
	}
	return entriesOf(all)
}

// request is a request to the API server: the object, and the old one, in YAML. An empty one is
// none.
type request struct {
	resource, subresource string
	object, old, user     string
}

var kinds = map[string]schema.GroupVersionKind{
	"pods": {Version: "v1", Kind: "Pod"}, "bindings": {Version: "v1", Kind: "Binding"},
	"nodes": {Version: "v1", Kind: "Node"}, "namespaces": {Version: "v1", Kind: "Namespace"},
	"podtemplates": {Version: "v1", Kind: "PodTemplate"}, "replicationcontrollers": {Version: "v1", Kind: "ReplicationController"},
	"deployments":         {Group: "apps", Version: "v1", Kind: "Deployment"},
	"daemonsets":          {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	"controllerrevisions": {Group: "apps", Version: "v1", Kind: "ControllerRevision"},
	"jobs":                {Group: "batch", Version: "v1", Kind: "Job"}, "cronjobs": {Group: "batch", Version: "v1", Kind: "CronJob"},
	"resourceclaims":         {Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaim"},
	"resourceclaimtemplates": {Group: "resource.k8s.io", Version: "v1", Kind: "ResourceClaimTemplate"},
	"resourceslices":         {Group: "resource.k8s.io", Version: "v1", Kind: "ResourceSlice"},
	"devicetaintrules":       {Group: "resource.k8s.io", Version: "v1", Kind: "DeviceTaintRule"},
	"tolerationpolicies":     {Group: "tollgate.dev", Version: "v1alpha1", Kind: "TolerationPolicy"},
	"resourceslicepatches":   {Group: "tollgate.dev", Version: "v1alpha1", Kind: "ResourceSlicePatch"},
}

// attributes returns the request as webhooks get it.
func (r *request) attributes(t *testing.T) apiserveradmission.Attributes {
	t.Helper()
	kind, ok := kinds[r.resource]
	require.True(t, ok, r.resource)
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
	case r.old == "":
		operation = apiserveradmission.Create
	case r.object == "":
		operation = apiserveradmission.Delete
	}
	return apiserveradmission.NewAttributesRecord(read(r.object), read(r.old), kind, "", "x", kind.GroupVersion().WithResource(r.resource),
		r.subresource, operation, nil, false, &user.DefaultInfo{Name: r.user})
}

// covers reports whether a rule of the entry is about a request.
func (e *entry) covers(a apiserveradmission.Attributes) bool {
	resource := a.GetResource().Resource
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	return slices.ContainsFunc(e.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.APIGroups, a.GetResource().Group) && slices.Contains(r.Resources, resource) &&
			slices.Contains(r.Operations, admissionregistrationv1.OperationType(a.GetOperation()))
	})
}

// called returns the entries that the API server calls for a request, and how many conditions
// it evaluates for that.
func called(t *testing.T, all []entry, r *request) (entries []*entry, conditions int) {
	t.Helper()
	a := r.attributes(t)
	versioned := &apiserveradmission.VersionedAttributes{Attributes: a, VersionedKind: a.GetKind()}
	if a.GetObject() != nil {
		versioned.VersionedObject = apiserveradmission.NewLazyObject(a.GetObject())
	}
	if a.GetOldObject() != nil {
		versioned.VersionedOldObject = apiserveradmission.NewLazyObject(a.GetOldObject())
	}
	for i := range all {
		e := &all[i]
		if !e.covers(a) {
			continue
		}
		conditions += len(e.MatchConditions)
		result := e.matcher.Match(t.Context(), versioned, nil, nil)
		require.NoError(t, result.Error, e.Name)
		if result.Matches {
			entries = append(entries, e)
		}
	}
	return entries, conditions
}
