package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedadmissionv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// errChanged is returned for an object that changed after it was read; the caller reads
// all again.
var errChanged = errors.New("object changed meanwhile")

// configurationClient reads and patches one named configuration.
type configurationClient interface {
	get(ctx context.Context) (*configuration, error)
	patch(ctx context.Context, patch []byte) error
}

type validatingClient struct {
	api  typedadmissionv1.ValidatingWebhookConfigurationInterface
	name string
}

func (c validatingClient) get(ctx context.Context) (*configuration, error) {
	object, err := c.api.Get(ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := &configuration{resourceVersion: object.ResourceVersion, annotations: object.Annotations}
	for _, w := range object.Webhooks {
		out.hooks = append(out.hooks, hook{name: w.Name, client: w.ClientConfig})
	}
	return out, nil
}

func (c validatingClient) patch(ctx context.Context, patch []byte) error {
	_, err := c.api.Patch(ctx, c.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

type mutatingClient struct {
	api  typedadmissionv1.MutatingWebhookConfigurationInterface
	name string
}

func (c mutatingClient) get(ctx context.Context) (*configuration, error) {
	object, err := c.api.Get(ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := &configuration{resourceVersion: object.ResourceVersion, annotations: object.Annotations}
	for _, w := range object.Webhooks {
		out.hooks = append(out.hooks, hook{name: w.Name, client: w.ClientConfig})
	}
	return out, nil
}

func (c mutatingClient) patch(ctx context.Context, patch []byte) error {
	_, err := c.api.Patch(ctx, c.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// publisher writes the bundle into the configurations.
type publisher struct {
	targets  []target
	base     *url.URL
	reporter *reporter
}

type target struct {
	// object is Kind/name, for logs.
	object string
	client configurationClient
}

func newPublisher(client kubernetes.Interface, o *Options, base *url.URL, r *reporter) *publisher {
	p := &publisher{base: base, reporter: r}
	api := client.AdmissionregistrationV1()
	for _, name := range o.ValidatingWebhooks {
		p.targets = append(p.targets, target{
			object: "ValidatingWebhookConfiguration/" + name,
			client: validatingClient{api: api.ValidatingWebhookConfigurations(), name: name},
		})
	}
	for _, name := range o.MutatingWebhooks {
		p.targets = append(p.targets, target{
			object: "MutatingWebhookConfiguration/" + name,
			client: mutatingClient{api: api.MutatingWebhookConfigurations(), name: name},
		})
	}
	return p
}

// reading is the result of reading the targets: nil for a missing configuration.
type reading struct {
	configurations []*configuration
	err            error
}

// read reads the configurations. It must be called before the bundle to be written is
// read: a configuration that got a newer bundle since then rejects the older one by its
// resourceVersion.
func (p *publisher) read(ctx context.Context) *reading {
	out := &reading{configurations: make([]*configuration, len(p.targets))}
	var errs []error
	for i, t := range p.targets {
		c, err := t.client.get(ctx)
		switch {
		case err == nil:
			out.configurations[i] = c
			p.reporter.well(ctx, t.object, reasonConfigurationRead, reasonConfigurationMissing)
		case apierrors.IsNotFound(err):
			// It may be installed later; until then no request comes through it.
			p.reporter.report(ctx, reasonConfigurationMissing, t.object, err)
		default:
			err = fmt.Errorf("get %s: %w", t.object, err)
			p.reporter.report(ctx, reasonConfigurationRead, t.object, err)
			errs = append(errs, err)
		}
	}
	out.err = errors.Join(errs...)
	return out
}

// trusted returns the CAs of Tollgate in the configurations. It ignores an invalid bundle,
// which verifies nothing.
func (r *reading) trusted() []*x509.Certificate {
	var out []*x509.Certificate
	var last []byte
	for _, c := range r.configurations {
		if c == nil {
			continue
		}
		for _, h := range c.hooks {
			if bytes.Equal(last, h.client.CABundle) {
				continue
			}
			last = h.client.CABundle
			certs, err := parseCertificates(last)
			if err != nil {
				continue
			}
			out = append(out, slices.DeleteFunc(certs, func(cert *x509.Certificate) bool {
				return !cert.IsCA || !strings.HasPrefix(cert.Subject.CommonName, caNamePrefix)
			})...)
		}
	}
	return out
}

// write writes the bundle where it is missing. If it returns nil, all existing
// configurations hold the bundle.
func (p *publisher) write(ctx context.Context, found *reading, bundle []byte) error {
	errs := []error{found.err}
	for i, t := range p.targets {
		if found.configurations[i] == nil {
			continue
		}
		patch, err := amend(found.configurations[i], bundle, p.base)
		if err == nil && patch != nil {
			err = t.client.patch(ctx, patch)
		}
		switch {
		case err == nil:
			p.reporter.well(ctx, t.object, reasonConfigurationWrite)
		case isChanged(err):
			errs = append(errs, fmt.Errorf("patch %s: %w: %w", t.object, errChanged, err))
		default:
			err = fmt.Errorf("patch %s: %w", t.object, err)
			p.reporter.report(ctx, reasonConfigurationWrite, t.object, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// isChanged reports whether an error is a lost race. The API server answers a JSON patch
// whose test fails with 422 and no further reason.
func isChanged(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		status.Status().Code == http.StatusUnprocessableEntity
}
