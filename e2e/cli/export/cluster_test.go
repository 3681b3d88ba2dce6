package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
)

// patience is far above what anything here takes.
const patience = time.Minute

// eventually returns when check does without an error, and fails the test with the last one
// if that takes too long.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	config := shared.RESTConfig()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return clients
}

// warnings are what the API server warns of.
type warnings struct {
	mu    sync.Mutex // guards heard
	heard []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, text)
}

func (w *warnings) taken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.heard
	w.heard = nil
	return heard
}

// person sends requests.
type person struct {
	dynamic.Interface

	heard *warnings
}

// crowd is everybody who has sent a request, by name and groups.
type crowd map[string]*person

func (c crowd) of(t *testing.T, r *request) *person {
	t.Helper()
	name := r.user + " " + strings.Join(r.groups, " ")
	if c[name] == nil {
		config := shared.As(r.user, r.groups...)
		config.QPS = -1
		p := &person{heard: &warnings{}}
		config.WarningHandler = p.heard
		var err error
		p.Interface, err = dynamic.NewForConfig(config)
		require.NoError(t, err)
		c[name] = p
	}
	return c[name]
}

// answer is what is said of a request.
type answer struct {
	denied, warned bool
	text           string
}

// send sends a request, and returns the object of the answer.
func (c crowd) send(t *testing.T, r *request) (*unstructured.Unstructured, answer) {
	t.Helper()
	p := c.of(t, r)
	p.heard.taken()
	var to dynamic.ResourceInterface = p.Resource(r.resource)
	if r.namespace != "" {
		to = p.Resource(r.resource).Namespace(r.namespace)
	}
	var seen *unstructured.Unstructured
	var err error
	if r.operation == admissionv1.Create {
		seen, err = to.Create(t.Context(), r.object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	} else {
		seen, err = to.Update(t.Context(), r.object, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	said := answer{denied: err != nil}
	for _, warning := range p.heard.taken() {
		// What could not be evaluated is warned of without the words of the policy.
		if strings.Contains(warning, "Policy/") || strings.Contains(warning, "ValidatingAdmissionPolicy '") {
			said.warned, said.text = true, said.text+warning+"\n"
		}
	}
	if err != nil {
		// The API server calls it invalid where an expression could not be evaluated.
		refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) && strings.Contains(err.Error(), "resulted in error")
		require.True(t, refused, "%v: %s", err, text(t, r.object))
		said.text += err.Error()
	}
	return seen, said
}

// policies are those that a cluster has.
type policies struct {
	tolerations []v1alpha1.TolerationPolicy
	taints      []v1alpha1.TaintPolicy
}

// known is what Tollgate's handler knows, read from the API server.
type known struct {
	client.Reader

	policies policyset.Set
	cluster  kubernetes.Interface
}

func (k *known) Current() *policyset.Set { return &k.policies }

func (k *known) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return k.cluster.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}

func (k *known) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	return k.Namespace(ctx, name)
}

func (k *known) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
}

func (k *known) Tolerations(context.Context, string) ([]corev1.Toleration, error) { return nil, nil }

// authorize asks the API server.
func (k *known) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	review, err := k.cluster.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: a.GetUser().GetName(), Groups: a.GetUser().GetGroups(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: a.GetAPIGroup(), Version: a.GetAPIVersion(), Resource: a.GetResource(), Name: a.GetName(), Verb: a.GetVerb(),
		},
	}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		return authorizer.DecisionNoOpinion, "", err
	}
	return authorizer.DecisionAllow, "", nil
}

// handler returns Tollgate's validating webhook, in this process.
func handler(t *testing.T, found *policies) http.Handler {
	t.Helper()
	config := shared.RESTConfig()
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	k := &known{
		policies: policyset.Set{Tolerations: toleration.Compile(found.tolerations), Taints: taint.Compile(found.taints)},
		cluster:  clients,
	}
	return webhook.Validate(webhook.Config{
		Options: webhook.Options{
			Clock: clock.RealClock{}, Metrics: webhook.NewMetrics(prometheus.NewPedanticRegistry()), Budget: patience, Bodies: webhook.NewBodies(64 << 20),
		},
		Handlers: handlers.Config{
			Clock: clock.RealClock{}, ServerClock: clock.RealClock{},
			Readers:     handlers.Readers{Policies: k, Namespaces: k, Live: k, Cache: k, RuntimeClasses: k},
			Authorizers: handlers.Authorizers{Authorizer: authorizer.AuthorizerFunc(k.authorize)},
			APIServer:   handlers.APIServer{DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 300}, MaxTimeAddedSkew: time.Minute},
			Features:    handlers.Features{SchedulingDirectives: true, DeviceTaintAdmission: true},
		},
	})
}

// judge returns what Tollgate says of a request.
func judge(t *testing.T, by http.Handler, r *request) answer {
	t.Helper()
	kind := metav1.GroupVersionKind(r.kind)
	resource := metav1.GroupVersionResource(r.resource)
	asked := &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
		Name: r.object.GetName(), Namespace: r.namespace, Operation: r.operation, DryRun: new(true),
		UserInfo: authenticationv1.UserInfo{Username: r.user, Groups: r.groups},
		Object:   runtime.RawExtension{Raw: []byte(text(t, r.seen))},
	}
	if r.old != nil {
		asked.OldObject.Raw = []byte(text(t, r.old))
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: asked})
	require.NoError(t, err)
	post := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", bytes.NewReader(body))
	post.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	by.ServeHTTP(recorder, post)
	require.Equal(t, http.StatusOK, recorder.Code, recorder.Body.String())
	var review admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &review))
	said := answer{denied: !review.Response.Allowed}
	for _, warning := range review.Response.Warnings {
		if strings.Contains(warning, "Policy/") {
			said.warned, said.text = true, said.text+warning+"\n"
		}
	}
	if said.denied {
		said.text += review.Response.Result.Message
	}
	return said
}

func text(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return string(data)
}
