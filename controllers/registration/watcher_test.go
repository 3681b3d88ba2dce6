package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/evictor/controller"
)

func validatingConfiguration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	hook := func(name string) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, FailurePolicy: new(admissionregistrationv1.Fail),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Name: "tollgate", Namespace: "tollgate-system"}, CABundle: []byte("old"),
			},
		}
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "tollgate", ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "helm", Time: new(metav1.Unix(10, 0))}, {Manager: "kubectl-edit", Time: new(metav1.Unix(20, 0))},
		}},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{hook("a.tollgate.dev"), hook("b.tollgate.dev")},
	}
}

func TestE10WhatIsAnotherIsNamed(t *testing.T) {
	t.Parallel()
	type hooks = []admissionregistrationv1.ValidatingWebhook
	tests := map[string]struct {
		change func(hooks) hooks
		want   []string
	}{
		"nothing":                             {func(h hooks) hooks { return h }, nil},
		"the caBundle, which Tollgate writes": {func(h hooks) hooks { h[0].ClientConfig.CABundle = []byte("new"); return h }, nil},
		"another order":                       {func(h hooks) hooks { return hooks{h[1], h[0]} }, nil},
		"it fails open": {
			func(h hooks) hooks { h[1].FailurePolicy = new(admissionregistrationv1.Ignore); return h },
			[]string{"webhook b.tollgate.dev: failurePolicy changed"},
		},
		"others are asked, about less": {
			func(h hooks) hooks {
				h[0].ClientConfig.Service = nil
				h[0].ClientConfig.URL = new("https://example.com")
				h[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"judged": "yes"}}
				return h
			},
			[]string{"webhook a.tollgate.dev: clientConfig, namespaceSelector changed"},
		},
		"one is gone and one is new": {
			func(h hooks) hooks { h[1].Name = "c.tollgate.dev"; return h },
			[]string{"webhook b.tollgate.dev removed", "webhook c.tollgate.dev added"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := validatingConfiguration()
			after.Webhooks = test.change(after.Webhooks)
			require.Equal(t, test.want, differences(entriesOf(validatingConfiguration()), entriesOf(after), ""))
		})
	}
}

func TestE10OnlyTollgatesOwnURLIsNoChange(t *testing.T) {
	t.Parallel()
	const base = "https://192.0.2.1:9443"
	shipped := func() *admissionregistrationv1.ValidatingWebhookConfiguration {
		c := validatingConfiguration()
		for i := range c.Webhooks {
			c.Webhooks[i].ClientConfig.Service.Path = new("/validate")
		}
		return c
	}
	at := func(url, replaced string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		c := shipped()
		c.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url}
		c.Annotations = map[string]string{certs.AnnotationServices: replaced}
		return c
	}
	const remembered = `{"a.tollgate.dev":{"namespace":"tollgate-system","name":"tollgate","path":"/validate"}}`
	const forged = `{"a.tollgate.dev":{"namespace":"tollgate-system","name":"tollgate","path":"/other"}}`
	said := []string{"webhook a.tollgate.dev: clientConfig changed"}
	for name, test := range map[string]struct {
		before, after *admissionregistrationv1.ValidatingWebhookConfiguration
		base          string
		want          []string
	}{
		"its URL for the Service":             {shipped(), at(base+"/validate", remembered), base, nil},
		"its new URL for the old":             {at("https://192.0.2.2/validate", remembered), at(base+"/validate", remembered), base, nil},
		"the Service again":                   {at(base+"/validate", remembered), shipped(), "", nil},
		"the URL of another":                  {shipped(), at("https://example.com/validate", remembered), base, said},
		"a URL where it has none":             {shipped(), at(base+"/validate", remembered), "", said},
		"another path":                        {at(base+"/validate", remembered), at(base+"/other", remembered), base, said},
		"another path, as if it were shipped": {at(base+"/validate", remembered), at(base+"/other", forged), base, said},
		"what it will write another path by":  {at(base+"/validate", remembered), at(base+"/validate", forged), base, said},
		"the Service where it has a URL":      {at(base+"/validate", remembered), shipped(), base, said},

		// The form of deploy/overlays/outside.
		"a URL that never was a Service, its host corrected":    {at("https://127.0.0.1:9443/validate", ""), at(base+"/validate", ""), base, nil},
		"a URL that never was a Service, another path":          {at("https://127.0.0.1:9443/validate", ""), at(base+"/other", ""), base, said},
		"a URL that never was a Service, the path of its own":   {at(base+"/validate", ""), at(base+"/other", ""), base, said},
		"a URL that never was a Service, the host of another":   {at(base+"/validate", ""), at("https://example.com/validate", ""), base, said},
		"a URL that never was a Service, where Tollgate has no": {at("https://127.0.0.1:9443/validate", ""), at(base+"/validate", ""), "", said},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, differences(entriesOf(test.before), entriesOf(test.after), test.base))
		})
	}
}

func TestTheLastWriterIsNamed(t *testing.T) {
	t.Parallel()
	require.Equal(t, "kubectl-edit", lastWriter(validatingConfiguration()))
	require.Equal(t, "unknown", lastWriter(nil))
}

// recordedEvents records events.
type recordedEvents struct {
	mu     sync.Mutex
	events []string
}

func (r *recordedEvents) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lease, _ := object.(*corev1.ObjectReference)
	r.events = append(r.events, lease.Name+" "+eventType+" "+reason+": "+fmt.Sprintf(format, args...))
}

func (r *recordedEvents) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// watchStands returns a channel that is closed once the client watches the validating
// configuration: the fake drops events between List and Watch.
func watchStands(client *fake.Clientset) <-chan struct{} {
	stands := make(chan struct{})
	var once sync.Once
	client.PrependWatchReactor("validatingwebhookconfigurations", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		once.Do(func() { close(stands) })
		return true, w, err
	})
	return stands
}

// slowRecorder is a recorder that blocks until end.
type slowRecorder struct {
	recordedEvents

	end chan struct{}
}

func (r *slowRecorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.recordedEvents.Eventf(object, eventType, reason, format, args...)
	<-r.end
}

func TestWhoLeadsNoMoreSaysNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ended, leads bool
		want         int
	}{
		"who leads":                        {false, true, 1},
		"who has lost the lease":           {false, false, 0},
		"who is to end, and still leads":   {true, true, 0},
		"who is to end, and leads no more": {true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder, metrics := &recordedEvents{}, NewWatchMetrics(prometheus.NewPedanticRegistry())
			watcher := NewWatcher(controller.Base{Leads: func() bool { return test.leads }, Recorder: recorder}, WatchOptions{
				Name: "tollgate", Lease: &corev1.ObjectReference{Name: "lease"}, Metrics: metrics,
			})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if test.ended {
				stop()
			}
			for _, what := range []change{changeCreated, changeEdited, changeDeleted} {
				before := len(recorder.all())
				watcher.report(ctx, Validating, what, corev1.EventTypeWarning, ": a change", "changes", "a change")
				require.Len(t, recorder.all(), before+test.want)
				require.InDelta(t, test.want, testutil.ToFloat64(metrics.changes.WithLabelValues(string(Validating), what.name)), 0)
			}
		})
	}
}

func TestWhatIsRegisteredIsForgottenOnlyAfterTheLastWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(validatingConfiguration())
		recorder := &slowRecorder{end: make(chan struct{})}
		metrics := NewWatchMetrics(prometheus.NewPedanticRegistry())
		watcher := NewWatcher(controller.Base{Leads: func() bool { return true }, Recorder: recorder}, WatchOptions{
			Client: client, Name: "tollgate", Lease: &corev1.ObjectReference{Name: "lease"}, Metrics: metrics,
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- watcher.Start(ctx) }()
		synctest.Wait()
		open := validatingConfiguration()
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail} {
			open.Webhooks[0].FailurePolicy = &policy
			_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), open, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		require.Len(t, recorder.all(), 1, "the second edit waits for the first to be said")
		stop()
		// Start could reset the metric too early.
		synctest.Wait()
		close(recorder.end)
		require.NoError(t, <-done)
		require.Len(t, recorder.all(), 1)
		require.InDelta(t, 1, testutil.ToFloat64(metrics.changes.WithLabelValues(string(Validating), changeEdited.name)), 0)
		require.Zero(t, testutil.CollectAndCount(metrics.registered))
	})
}

func TestOneConfigurationDoesNotWaitForTheOther(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Validating, Mutating} {
		client := fake.NewClientset()
		client.PrependReactor("list", strings.ToLower(kinds[kind].name)+"s", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("not now")
		})
		metrics := NewWatchMetrics(prometheus.NewPedanticRegistry())
		watcher := NewWatcher(controller.Base{Leads: func() bool { return true }, Recorder: &recordedEvents{}}, WatchOptions{Client: client, Name: "tollgate", Metrics: metrics})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- watcher.Start(ctx) }()
		require.Eventually(t, func() bool { return testutil.CollectAndCount(metrics.registered) == 1 }, time.Minute, 5*time.Millisecond)
		stop()
		require.NoError(t, <-done)
	}
}

func TestE10WebhooksThatAreDeletedOrEditedAreSaid(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(validatingConfiguration())
	stands := watchStands(client)
	registry := prometheus.NewPedanticRegistry()
	recorder := &recordedEvents{}
	watcher := NewWatcher(controller.Base{Leads: func() bool { return true }, Recorder: recorder}, WatchOptions{
		Client: client, Name: "tollgate", Lease: &corev1.ObjectReference{Kind: "Lease", Name: "lease"}, Metrics: NewWatchMetrics(registry),
		Own: func(object any) bool {
			c, ok := object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
			return ok && c.Webhooks[0].TimeoutSeconds != nil
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watcher.Start(ctx) }()
	eventually := func(want ...string) {
		t.Helper()
		deadline := time.Now().Add(time.Minute)
		for !slices.Equal(want, recorder.all()) && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		require.Equal(t, want, recorder.all())
	}
	registered := func(want float64, c string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return testutil.CollectAndCount(watcher.Metrics.registered) == 2 &&
				testutil.ToFloat64(watcher.Metrics.registered.WithLabelValues(c)) == want
		}, time.Minute, 5*time.Millisecond)
	}
	registered(2, "validating")
	registered(0, "mutating")
	eventually()
	<-stands

	api := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	trusted := validatingConfiguration()
	trusted.Webhooks[0].ClientConfig.CABundle = []byte("new")
	_, err := api.Update(t.Context(), trusted, metav1.UpdateOptions{})
	require.NoError(t, err)
	own := trusted.DeepCopy()
	own.Webhooks[0].TimeoutSeconds = new(int32(1))
	_, err = api.Update(t.Context(), own, metav1.UpdateOptions{})
	require.NoError(t, err)
	own.Webhooks[1].FailurePolicy = new(admissionregistrationv1.Ignore)
	_, err = api.Update(t.Context(), own, metav1.UpdateOptions{})
	require.NoError(t, err)
	open := own.DeepCopy()
	open.Webhooks[0].TimeoutSeconds, open.Webhooks[1].FailurePolicy = nil, own.Webhooks[1].FailurePolicy
	open.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
	_, err = api.Update(t.Context(), open, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
	editedEvent := "lease Warning WebhooksEdited: ValidatingWebhookConfiguration tollgate was edited by kubectl-edit: webhook a.tollgate.dev: failurePolicy, timeoutSeconds changed"
	eventually(editedEvent)

	require.NoError(t, api.Delete(t.Context(), "tollgate", metav1.DeleteOptions{}))
	deletedEvent := "lease Warning WebhooksDeleted: ValidatingWebhookConfiguration tollgate was deleted: nothing is refused by policies, and nothing is foretold"
	eventually(editedEvent, deletedEvent)
	registered(0, "validating")

	_, err = api.Create(t.Context(), validatingConfiguration(), metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(editedEvent, deletedEvent, "lease Normal WebhooksCreated: ValidatingWebhookConfiguration tollgate was created")
	registered(2, "validating")

	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tollgate_webhook_configuration_changes_total Changes of a webhook configuration of Tollgate that the leader saw, except for writes by Tollgate.
# TYPE tollgate_webhook_configuration_changes_total counter
tollgate_webhook_configuration_changes_total{change="created",configuration="mutating"} 0
tollgate_webhook_configuration_changes_total{change="created",configuration="validating"} 1
tollgate_webhook_configuration_changes_total{change="deleted",configuration="mutating"} 0
tollgate_webhook_configuration_changes_total{change="deleted",configuration="validating"} 1
tollgate_webhook_configuration_changes_total{change="edited",configuration="mutating"} 0
tollgate_webhook_configuration_changes_total{change="edited",configuration="validating"} 1
`), "tollgate_webhook_configuration_changes_total"))

	stop()
	require.NoError(t, <-done)
	require.Zero(t, testutil.CollectAndCount(watcher.Metrics.registered), "another replica says it")
}
