package certs

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	k8stesting "k8s.io/client-go/testing"
)

const (
	testNamespace = "tollgate-system"
	testSecret    = "tollgate-certificates"
	testConfig    = "tollgate"
	testHost      = "tollgate.tollgate-system.svc"
)

// cluster is client-go's fake API server with resource versions; like the real one, it
// rejects writes that are based on an older version.
type cluster struct {
	mu      sync.Mutex
	tracker k8stesting.ObjectTracker
	version int
	// written are "verb resource" of all successful writes.
	written []string
	// observe, if not nil, is called with each written object.
	observe func(runtime.Object)
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	t.Helper()
	c := &cluster{tracker: k8stesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())}
	for _, o := range objects {
		require.NoError(t, c.tracker.Add(c.stamped(o)))
	}
	return c
}

// fault returns the error of a request that fails before it reaches the server, or nil.
type fault func(action k8stesting.Action) error

// client returns the client of one replica, with its own faults.
func (c *cluster) client(f fault) *fake.Clientset {
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if f != nil {
			if err := f(a); err != nil {
				return true, nil, err
			}
		}
		return c.react(a)
	})
	client.AddWatchReactor("*", func(a k8stesting.Action) (bool, watch.Interface, error) {
		if f != nil {
			if err := f(a); err != nil {
				return true, nil, err
			}
		}
		w, err := c.tracker.Watch(a.GetResource(), a.GetNamespace(), a.(k8stesting.WatchActionImpl).ListOptions)
		return true, w, err
	})
	return client
}

func (c *cluster) react(a k8stesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var object runtime.Object
	var err error
	switch a := a.(type) {
	case k8stesting.CreateActionImpl:
		object = c.stamped(a.GetObject())
		err = c.tracker.Create(a.GetResource(), object, a.GetNamespace())
	case k8stesting.UpdateActionImpl:
		object, err = c.update(a)
	case k8stesting.PatchActionImpl:
		object, err = c.patch(a)
	default:
		return k8stesting.ObjectReaction(c.tracker)(a)
	}
	if err != nil {
		return true, nil, err
	}
	c.written = append(c.written, a.GetVerb()+" "+a.GetResource().Resource)
	if c.observe != nil {
		c.observe(object)
	}
	return true, object, nil
}

func (c *cluster) stamped(object runtime.Object) runtime.Object {
	c.version++
	object = object.DeepCopyObject()
	object.(metav1.Object).SetResourceVersion(strconv.Itoa(c.version))
	return object
}

func (c *cluster) update(a k8stesting.UpdateActionImpl) (runtime.Object, error) {
	given := a.GetObject().(metav1.Object)
	current, err := c.tracker.Get(a.GetResource(), a.GetNamespace(), given.GetName())
	if err != nil {
		return nil, err
	}
	if v := given.GetResourceVersion(); v != "" && v != current.(metav1.Object).GetResourceVersion() {
		return nil, apierrors.NewConflict(a.GetResource().GroupResource(), given.GetName(), errors.New("object has been modified"))
	}
	object := c.stamped(a.GetObject())
	return object, c.tracker.Update(a.GetResource(), object, a.GetNamespace())
}

func (c *cluster) patch(a k8stesting.PatchActionImpl) (runtime.Object, error) {
	current, err := c.tracker.Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(a.GetPatch())
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	object := reflect.New(reflect.TypeOf(current).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal(after, object); err != nil {
		return nil, err
	}
	object = c.stamped(object)
	return object, c.tracker.Update(a.GetResource(), object, a.GetNamespace())
}

func (c *cluster) writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.written...)
}

// secret returns the Secret, or nil.
func (c *cluster) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s, err := c.client(nil).CoreV1().Secrets(testNamespace).Get(t.Context(), testSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return s
}

// edit changes the Secret as an administrator would.
func (c *cluster) edit(t *testing.T, change func(*corev1.Secret)) {
	t.Helper()
	s := c.secret(t)
	change(s)
	_, err := c.client(nil).CoreV1().Secrets(testNamespace).Update(t.Context(), s, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func (c *cluster) validating(t *testing.T) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	return validatingOf(t, c.client(nil))
}

func validatingOf(t *testing.T, client kubernetes.Interface) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	v, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), testConfig, metav1.GetOptions{})
	require.NoError(t, err)
	return v
}

func (c *cluster) mutating(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	m, err := c.client(nil).AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), testConfig, metav1.GetOptions{})
	require.NoError(t, err)
	return m
}

func serviceConfig(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{
			Namespace: testNamespace, Name: "tollgate", Path: new(path), Port: new(int32(443)),
		},
	}
}

func validatingConfiguration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: testConfig},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "validate.tollgate.dev", ClientConfig: serviceConfig("/validate")},
			{Name: "nodes.tollgate.dev", ClientConfig: serviceConfig("/validate/nodes")},
		},
	}
}

func mutatingConfiguration() *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: testConfig, Annotations: map[string]string{"team": "platform"}},
		Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "mutate.tollgate.dev", ClientConfig: serviceConfig("/mutate")},
		},
	}
}
