package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/policy/toleration"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// answer returns the response to a request.
func answer(ctx context.Context, handle Handler, req *review.Request) (admission.Response, error) {
	result, err := handle(ctx, req)
	if err != nil {
		return admission.Response{}, err
	}
	return result.Response(), nil
}

// fixedPolicies are policies that do not change.
type fixedPolicies struct{ set *toleration.Set }

func (f fixedPolicies) Current() *policyset.Set {
	if f.set == nil {
		return nil
	}
	return &policyset.Set{Tolerations: f.set}
}

// fixedNamespaces are namespaces with their labels.
type fixedNamespaces map[string]map[string]string

func (f fixedNamespaces) Namespace(_ context.Context, name string) (*corev1.Namespace, error) {
	labels, ok := f[name]
	if !ok {
		return nil, io.ErrUnexpectedEOF
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
}

func (f fixedNamespaces) Confirmed(ctx context.Context, name string) (*corev1.Namespace, error) {
	return f.Namespace(ctx, name)
}

// stored are the objects that the API server has.
type stored struct {
	client.Reader

	mu      sync.Mutex // guards what is below
	objects []client.Object
	fault   error
	reads   int
}

func storing(objects ...client.Object) *stored { return &stored{objects: objects} }

func (s *stored) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.fault != nil {
		return s.fault
	}
	for _, object := range s.objects {
		if reflect.TypeOf(object) == reflect.TypeOf(into) && client.ObjectKeyFromObject(object) == key {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
}

// store puts an object in the place of the one with its name, if there is one.
func (s *stored) store(object client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = slices.DeleteFunc(s.objects, func(o client.Object) bool {
		return reflect.TypeOf(o) == reflect.TypeOf(object) && client.ObjectKeyFromObject(o) == client.ObjectKeyFromObject(object)
	})
	s.objects = append(s.objects, object)
}

// asked returns how many reads there were.
func (s *stored) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// permitting authorizes by "user verb name".
func permitting(grants ...string) authorizer.AuthorizerFunc {
	return func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "broken" {
			return authorizer.DecisionNoOpinion, "", io.ErrUnexpectedEOF
		}
		if slices.Contains(grants, a.GetUser().GetName()+" "+a.GetVerb()+" "+a.GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// fixedRuntimeClasses are RuntimeClasses with their tolerations.
type fixedRuntimeClasses map[string][]corev1.Toleration

func (f fixedRuntimeClasses) Tolerations(_ context.Context, name string) ([]corev1.Toleration, error) {
	if name == "broken" {
		return nil, io.ErrUnexpectedEOF
	}
	return f[name], nil
}

// guarded is a policy under which only banana may tolerate the taint dedicated.
func guarded() *toleration.Set {
	return toleration.Compile([]v1alpha1.TolerationPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "dedicated"},
		Spec: v1alpha1.TolerationPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}},
			Grants: []v1alpha1.TolerationGrant{
				{Namespaces: []string{"banana"}},
				{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "system"}}},
			},
			ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Deny},
		},
	}})
}

func testConfig() Config {
	return Config{
		Clock: clock.RealClock{}, ServerClock: clock.RealClock{},
		Readers: Readers{
			Policies:       fixedPolicies{guarded()},
			Namespaces:     fixedNamespaces{"apple": nil, "banana": nil, "cherry": {"tier": "system"}},
			Live:           storing(),
			RuntimeClasses: fixedRuntimeClasses{"gpu": {{Key: "dedicated", Operator: corev1.TolerationOpExists}}},
		},
		Authorizers: Authorizers{Authorizer: permitting()},
		APIServer:   APIServer{DefaultSeconds: toleration.DefaultSeconds{NotReady: 300, Unreachable: 300}, MaxTimeAddedSkew: time.Minute},
		Features:    Features{NodeTaintTimestamps: true, SchedulingDirectives: true, DeviceTaintAdmission: true},
	}
}

// Endpoint answers reviews by handlers as the endpoints of package webhook do, without
// transport.
type Endpoint struct{ handlers map[Resource]Handler }

// Mutate returns the endpoint that fills in missing fields.
func Mutate(c Config) *Endpoint { return &Endpoint{Mutating(c)} }

// Validate returns the endpoint that refuses.
func Validate(c Config) *Endpoint { return &Endpoint{Validating(c)} }

// Review decides about a request.
func (e *Endpoint) Review(ctx context.Context, req *review.Request) (Result, error) {
	handle, ok := e.handlers[Resource{req.Resource.Group, req.Resource.Resource, req.SubResource}]
	if !ok {
		return Result{}, &review.BadError{Err: errors.New("this path does not judge " + req.Resource.Resource)}
	}
	result, err := handle(ctx, req)
	if err == nil {
		err = ctx.Err()
	}
	return result, err
}

// podReview returns the review of a pod that an API server would send.
func podReview(t *testing.T, operation admissionv1.Operation, object, old string) admissionv1.AdmissionReview {
	t.Helper()
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "705ab4f5-6393-11e8-b7cc-42010a800002",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Name:      "p",
			Namespace: "apple",
			Operation: operation,
			UserInfo:  authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}},
			Object:    runtime.RawExtension{Raw: []byte(object)},
		},
	}
	if old != "" {
		review.Request.OldObject = runtime.RawExtension{Raw: []byte(old)}
	}
	return review
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return data
}

// readRequest returns the request of a review.
func readRequest(body []byte) (*review.Request, error) { return new(review.Reader).Read(body) }

// parsed returns the value that raw is.
func parsed(t *testing.T, raw []byte) review.Value {
	t.Helper()
	v, err := review.Parse(raw)
	require.NoError(t, err)
	return v
}

// badReviewError is the error about a review that no API server would send.
type badReviewError = review.BadError

// typicalPod is a pod as a Deployment makes them.
func typicalPod() *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    "web-7d4b9c6f5d-",
			Namespace:       "banana",
			Labels:          map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d", UID: "5f1a", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "web",
			Tolerations: []corev1.Toleration{
				{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "banana", Effect: corev1.TaintEffectNoSchedule},
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
		},
	}
	for _, name := range []string{"web", "proxy"} {
		container := corev1.Container{
			Name:  name,
			Image: "registry.example.com/team/" + name + ":v1.2.3",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: quantity.MustParse("100m"), corev1.ResourceMemory: quantity.MustParse("128Mi"),
			}},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
		}
		for i := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: "SETTING_" + string(rune('A'+i)), Value: strings.Repeat("v", 24)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}
