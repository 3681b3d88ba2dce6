package webhook_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/webhook"
)

// target is what an endpoint judges: a resource, or a subresource of one.
type target struct{ endpoint, group, resource string }

func (t target) String() string {
	return t.endpoint + ": " + t.resource + "." + cmp.Or(t.group, "core")
}

// folder is where the cases of a target are.
func (t target) folder() string { return t.endpoint + "/" + strings.ReplaceAll(t.resource, "/", "-") }

// malformed is the folder of reviews that no API server would send, or not to that path.
const malformed = "malformed"

// neverPatched are targets of the mutating endpoint that nothing is filled in.
var neverPatched = map[string]string{
	"mutate/resourceclaims-status": "nothing is filled in where consumers are written",
}

// sentOperations returns which operations on what the webhook configurations of deploy send.
func sentOperations(t *testing.T) map[target][]admissionregistrationv1.OperationType {
	t.Helper()
	sent := map[target][]admissionregistrationv1.OperationType{}
	take := func(service *admissionregistrationv1.ServiceReference, rules []admissionregistrationv1.RuleWithOperations) {
		require.NotNil(t, service)
		endpoint := strings.TrimPrefix(*service.Path, "/")
		for i := range rules {
			for _, group := range rules[i].APIGroups {
				for _, resource := range rules[i].Resources {
					to := target{endpoint, group, resource}
					sent[to] = append(sent[to], rules[i].Operations...)
				}
			}
		}
	}
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	readManifest(t, "mutating.yaml", &mutating)
	for i := range mutating.Webhooks {
		take(mutating.Webhooks[i].ClientConfig.Service, mutating.Webhooks[i].Rules)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	readManifest(t, "validating.yaml", &validating)
	for i := range validating.Webhooks {
		take(validating.Webhooks[i].ClientConfig.Service, validating.Webhooks[i].Rules)
	}
	require.NotEmpty(t, sent)
	return sent
}

func readManifest(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "webhooks", name))
	require.NoError(t, err)
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	document, err := documents.Read()
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(document, into))
	_, err = documents.Read()
	require.ErrorIs(t, err, io.EOF, "%s has one document", name)
}

// subresources are those that objects of Kubernetes have.
var subresources = []string{
	"", "status", "binding", "finalize", "eviction", "scale", "ephemeralcontainers", "resize", "exec", "attach", "portforward", "proxy", "log", "token", "approval",
}

// servedTargets returns what the endpoints judge, of all kinds of Kubernetes and of Tollgate,
// with all subresources that any has. What is not judged is told so.
func servedTargets(t *testing.T, c *cluster, sent map[target][]admissionregistrationv1.OperationType) []target {
	t.Helper()
	config := c.config(t, nil)
	endpoints := map[string]http.Handler{
		webhook.EndpointMutate: webhook.Mutate(config), webhook.EndpointValidate: webhook.Validate(config),
	}
	resources := map[schema.GroupResource]bool{}
	for kind := range schemeOfCluster(t).AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		resources[plural.GroupResource()] = true
	}
	for to := range sent { // a plural may be another one than is guessed
		name, _, _ := strings.Cut(to.resource, "/")
		resources[schema.GroupResource{Group: to.group, Resource: name}] = true
	}
	var served []target
	for resource := range resources {
		for _, sub := range subresources {
			for name, endpoint := range endpoints {
				if judges(t, endpoint, resource, sub) {
					served = append(served, target{name, resource.Group, path.Join(resource.Resource, sub)})
				}
			}
		}
	}
	require.NotEmpty(t, served)
	return served
}

// judges reports whether an endpoint says anything of a resource but that it does not judge it.
func judges(t *testing.T, endpoint http.Handler, resource schema.GroupResource, sub string) bool {
	t.Helper()
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "probe", Operation: admissionv1.Connect, SubResource: sub,
			Resource: metav1.GroupVersionResource{Group: resource.Group, Version: "v1", Resource: resource.Resource},
		},
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(indented(t, review)))
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	endpoint.ServeHTTP(answer, r)
	return !strings.Contains(answer.Body.String(), "this path does not judge")
}

// seen is what the cases of a target show.
type seen struct {
	operations                          map[admissionv1.Operation]bool
	allowed, denied, patched, unpatched bool
}

func seenTargets(t *testing.T, all []*recording) map[target]*seen {
	t.Helper()
	targets := map[target]*seen{}
	for _, r := range all {
		status, response := r.response(t)
		request := r.request(t)
		if status != http.StatusOK || request == nil || path.Base(path.Dir(r.name)) == malformed {
			continue
		}
		to := target{r.endpoint, request.Resource.Group, path.Join(request.Resource.Resource, request.SubResource)}
		require.Equal(t, to.folder(), path.Dir(r.name), "%s is in the folder of what it is about", r.name)
		s := targets[to]
		if s == nil {
			s = &seen{operations: map[admissionv1.Operation]bool{}}
			targets[to] = s
		}
		s.operations[request.Operation] = true
		s.allowed, s.denied = s.allowed || response.Allowed, s.denied || !response.Allowed
		s.patched, s.unpatched = s.patched || len(response.Patch) > 0, s.unpatched || len(response.Patch) == 0
	}
	return targets
}

func TestTheCorpusHasACaseOfEverythingThatIsServedAndSent(t *testing.T) {
	cases, sent := seenTargets(t, readCorpus(t)), sentOperations(t)
	targets := servedTargets(t, loadCluster(t), sent)
	for to := range sent {
		if !slices.Contains(targets, to) {
			t.Errorf("%s is sent by deploy, and not served", to)
		}
	}
	for to := range cases {
		if !slices.Contains(targets, to) {
			t.Errorf("%s has cases, and is not served", to)
		}
	}
	for _, to := range targets {
		s := cases[to]
		if s == nil {
			t.Errorf("%s has no case", to)
			continue
		}
		for _, operation := range sent[to] {
			if !s.operations[admissionv1.Operation(operation)] {
				t.Errorf("%s has no case of %s", to, operation)
			}
		}
		switch _, never := neverPatched[to.folder()]; {
		case to.endpoint == webhook.EndpointValidate && (!s.allowed || !s.denied):
			t.Errorf("%s has no case that is allowed (%t), or none that is denied (%t)", to, s.allowed, s.denied)
		case to.endpoint == webhook.EndpointMutate && (!s.unpatched || s.patched == never || s.denied):
			t.Errorf("%s has no case with a patch (%t), or none without (%t), or one that is denied (%t)", to, s.patched, s.unpatched, s.denied)
		}
	}
}

// reasonHeadings are the reasons that docs/refusals.md explains.
var reasonHeadings = regexp.MustCompile(`(?m)^### ([A-Za-z]+)$`)

func TestTheCorpusHasEveryReasonStatusAndSetting(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "refusals.md"))
	require.NoError(t, err)
	var reasons []string
	for _, heading := range reasonHeadings.FindAllStringSubmatch(string(text), -1) {
		reasons = append(reasons, heading[1])
	}
	require.NotEmpty(t, reasons)

	found, statuses, settings := map[string]bool{}, map[int]bool{}, map[string]bool{}
	for _, r := range readCorpus(t) {
		status, response := r.response(t)
		statuses[status] = true
		for _, name := range r.Settings {
			settings[name] = true
		}
		if response == nil {
			continue
		}
		for _, cause := range response.Status.Details.Causes {
			found[cause.Reason] = true
		}
		if len(response.Warnings) > 0 {
			found["a warning"] = true
		}
		if response.AuditAnnotations["violations"] != "" {
			found["a violation that is recorded"] = true
		}
	}
	for _, reason := range append(reasons, "a warning", "a violation that is recorded") {
		require.Contains(t, found, reason)
	}
	for _, status := range []int{
		http.StatusOK, http.StatusBadRequest, http.StatusUnauthorized, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusInternalServerError,
	} {
		require.Contains(t, statuses, status)
	}
	for name := range knownSettings() {
		require.Contains(t, settings, name, "a setting is of use")
	}
}

// A policy that is not valid is not in force as it stands, and what is recorded of it is no
// behaviour to rely on.
func TestThePoliciesOfTheCorpusAreValid(t *testing.T) {
	c := loadCluster(t)
	url := serving(t, c, nil)
	scheme := schemeOfCluster(t)
	for _, object := range c.objects {
		kinds, _, err := scheme.ObjectKinds(object)
		require.NoError(t, err)
		kind := kinds[0]
		if kind.Group != v1alpha1.GroupVersion.Group {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		r := &recording{endpoint: webhook.EndpointValidate, recorded: recorded{Review: indented(t, admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request: &admissionv1.AdmissionRequest{
				UID: object.GetUID(), Operation: admissionv1.Create, Name: object.GetName(), Object: raw(t, object),
				Kind:     metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
				Resource: metav1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
			},
		})}}
		answer := r.post(t, url)
		require.Equal(t, http.StatusOK, answer.Status)
		var review struct{ Response response }
		require.NoError(t, json.Unmarshal(answer.Body, &review))
		require.True(t, review.Response.Allowed, "%s: %s", object.GetName(), answer.Body)
	}
}
