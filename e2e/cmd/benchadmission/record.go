package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/webhook"
)

// register is the name of the webhook configurations of this program.
const register = "benchadmission"

// podsCreated is the rule of a webhook that judges the creation of pods.
func podsCreated() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
}

// validating has the API server ask a URL about the creation of pods.
func validating(url string, ca []byte) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: register},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.bench.example.com", Rules: podsCreated(), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			SideEffects:  new(admissionregistrationv1.SideEffectClassNone),
		}},
	}
}

// mutating is validating for the other kind of webhook.
func mutating(url string, ca []byte) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: register},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.bench.example.com", Rules: podsCreated(), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			SideEffects:  new(admissionregistrationv1.SideEffectClassNone),
		}},
	}
}

// recorder keeps the last review of each path, and allows everything.
type recorder struct {
	mu      sync.Mutex // guards reviews
	reviews map[string][]byte
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.reviews[request.URL.Path] = body
	r.mu.Unlock()
	request.Body = io.NopCloser(bytes.NewReader(body))
	allow := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })
	(&admission.Webhook{Handler: allow}).ServeHTTP(w, request)
}

// record returns the reviews, by the paths of Tollgate, that the API server sends when the
// controller of ReplicaSets creates a guarded pod.
func (s *stage) record(ctx context.Context) (map[string][]byte, error) {
	r := &recorder{reviews: map[string][]byte{}}
	listens := httptest.NewTLSServer(r)
	defer listens.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listens.Certificate().Raw})
	configurations := []client.Object{
		validating(listens.URL+webhook.PathValidate, ca), mutating(listens.URL+webhook.PathMutate, ca),
	}
	if err := s.create(ctx, configurations); err != nil {
		return nil, err
	}
	const controller = "system:serviceaccount:kube-system:replicaset-controller"
	access := s.cp.As(controller, "system:serviceaccounts", "system:serviceaccounts:kube-system")
	as, err := client.New(access, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	made := pod(granted, true)
	made.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d", UID: "4b1c8d0e-36a5-4b0e-9a39-5b5f0c1ff5e2",
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	err = until(ctx, "the API server asks both webhooks", func(ctx context.Context) error {
		if err := as.Create(ctx, made.DeepCopy(), client.DryRunAll); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.reviews) < 2 {
			return errors.New("it has not")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, configuration := range configurations {
		if err := s.client.Delete(ctx, configuration); err != nil {
			return nil, fmt.Errorf("unregister the recorder: %w", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reviews, nil
}

// caOfTollgate returns what the certificate of Tollgate is trusted by.
func (s *stage) caOfTollgate(ctx context.Context) ([]byte, error) {
	var found admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := s.client.List(ctx, &found); err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	for i := range found.Items {
		for j := range found.Items[i].Webhooks {
			if bundle := found.Items[i].Webhooks[j].ClientConfig.CABundle; found.Items[i].Name != register && len(bundle) > 0 {
				return bundle, nil
			}
		}
	}
	return nil, errors.New("find the CA of tollgate: no webhook is registered with one")
}
