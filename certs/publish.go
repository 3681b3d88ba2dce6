package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedadmissionv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	certutil "k8s.io/client-go/util/cert"
)

// AnnotationServices stores, in a webhook configuration, the Services that URLs replaced:
// their paths are needed when the URL changes, and the whole references when Tollgate
// moves into the cluster.
const AnnotationServices = "tollgate.dev/replaced-services"

// AnnotationBundle has the CA bundle, in a webhook configuration whose webhooks another writer
// owns. That writer copies it.
const AnnotationBundle = "tollgate.dev/ca-bundle"

// errNotCopied is returned while webhooks do not have the bundle of the annotation.
var errNotCopied = errors.New("the webhooks do not have the annotated CA bundle yet")

// errChanged is returned for an object that changed after it was read; the caller reads
// all again.
var errChanged = errors.New("object changed meanwhile")

// configuration is a validating webhook configuration, or the part of a mutating one that
// both have: metadata, and the names and client configurations of webhooks.
type configuration = admissionregistrationv1.ValidatingWebhookConfiguration

// publisher reads the named configurations and writes the bundle into them.
type publisher struct {
	api      typedadmissionv1.AdmissionregistrationV1Interface
	targets  []target
	annotate bool
	base     string
	reporter *reporter
}

// target is one configuration. Its kind is validating or mutating.
type target struct{ kind, name string }

const (
	validating = "ValidatingWebhookConfiguration"
	mutating   = "MutatingWebhookConfiguration"
)

// String returns Kind/name, for logs.
func (t target) String() string {
	return t.kind + "/" + t.name
}

func newPublisher(o *Options, r *reporter) *publisher {
	p := &publisher{base: o.URL, annotate: o.Annotate, reporter: r}
	if o.Client != nil {
		p.api = o.Client.AdmissionregistrationV1()
	}
	for _, name := range o.ValidatingWebhooks {
		p.targets = append(p.targets, target{kind: validating, name: name})
	}
	for _, name := range o.MutatingWebhooks {
		p.targets = append(p.targets, target{kind: mutating, name: name})
	}
	return p
}

func (p *publisher) get(ctx context.Context, t target) (*configuration, error) {
	if t.kind == validating {
		return p.api.ValidatingWebhookConfigurations().Get(ctx, t.name, metav1.GetOptions{})
	}
	object, err := p.api.MutatingWebhookConfigurations().Get(ctx, t.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	c := &configuration{ObjectMeta: object.ObjectMeta}
	for _, w := range object.Webhooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: w.Name, ClientConfig: w.ClientConfig})
	}
	return c, nil
}

func (p *publisher) patch(ctx context.Context, t target, patch []byte) (err error) {
	if t.kind == validating {
		_, err = p.api.ValidatingWebhookConfigurations().Patch(ctx, t.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = p.api.MutatingWebhookConfigurations().Patch(ctx, t.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	}
	return err
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
	for i, t := range p.targets {
		c, err := p.get(ctx, t)
		switch {
		case apierrors.IsNotFound(err):
			// It may be installed later; until then no request comes through it.
			_ = p.reporter.check(ctx, reasonConfigurationMissing, t.String(), err)
		case err != nil:
			err = p.reporter.check(ctx, reasonConfigurationRead, t.String(), fmt.Errorf("get %s: %w", t, err))
			out.err = errors.Join(out.err, err)
		default:
			out.configurations[i] = c
			_ = p.reporter.check(ctx, reasonConfigurationRead, t.String(), nil)
			_ = p.reporter.check(ctx, reasonConfigurationMissing, t.String(), nil)
		}
	}
	return out
}

// webhooks returns the webhooks of all existing configurations.
func (r *reading) webhooks() []admissionregistrationv1.ValidatingWebhook {
	var out []admissionregistrationv1.ValidatingWebhook
	for _, c := range r.configurations {
		if c != nil {
			out = append(out, c.Webhooks...)
		}
	}
	return out
}

// trusted returns the CAs of Tollgate in the configurations. It ignores an invalid bundle,
// which verifies nothing.
func (r *reading) trusted() []*x509.Certificate {
	var out []*x509.Certificate
	var bundles [][]byte
	for _, w := range r.webhooks() {
		bundles = append(bundles, w.ClientConfig.CABundle)
	}
	for _, c := range r.configurations {
		if c != nil {
			bundles = append(bundles, []byte(c.Annotations[AnnotationBundle]))
		}
	}
	for _, bundle := range slices.CompactFunc(bundles, bytes.Equal) {
		certs, _ := parseCertificates(bundle)
		out = append(out, slices.DeleteFunc(certs, func(c *x509.Certificate) bool {
			return !c.IsCA || !strings.HasPrefix(c.Subject.CommonName, caNamePrefix)
		})...)
	}
	return out
}

// write writes the bundle where it is missing. If it returns nil, all webhooks of all existing
// configurations hold the bundle.
func (p *publisher) write(ctx context.Context, found *reading, bundle []*x509.Certificate) error {
	data, err := certutil.EncodeCertificates(bundle...)
	if err != nil {
		return fmt.Errorf("encode bundle: %w", err)
	}
	errs := []error{found.err}
	for i, t := range p.targets {
		if found.configurations[i] == nil {
			continue
		}
		patch, err := p.change(found.configurations[i], data)
		if err == nil && patch != nil {
			err = p.patch(ctx, t, patch)
		}
		if isChanged(err) {
			errs = append(errs, fmt.Errorf("patch %s: %w: %w", t, errChanged, err))
			continue
		}
		if err != nil {
			err = fmt.Errorf("patch %s: %w", t, err)
		}
		errs = append(errs, p.reporter.check(ctx, reasonConfigurationWrite, t.String(), err))
		if p.annotate && slices.ContainsFunc(found.configurations[i].Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return !bytes.Equal(w.ClientConfig.CABundle, data)
		}) {
			errs = append(errs, fmt.Errorf("%s: %w", t, errNotCopied))
		}
	}
	return errors.Join(errs...)
}

// change returns the JSON patch by which a configuration gets the bundle, or nil if it has
// it. It is pure. The patch changes single fields, so that fields of newer API versions
// survive, and tests the resourceVersion.
func (p *publisher) change(c *configuration, bundle []byte) ([]byte, error) {
	ops := []jsonpatch.Operation{jsonpatch.NewOperation("test", "/metadata/resourceVersion", c.ResourceVersion)}
	key, value := AnnotationBundle, string(bundle)
	if !p.annotate {
		var services map[string]admissionregistrationv1.ServiceReference
		key, value = AnnotationServices, ""
		if ops, services = amend(ops, c, bundle, p.base); len(services) != 0 {
			encoded, err := json.Marshal(services)
			if err != nil {
				return nil, fmt.Errorf("encode services: %w", err)
			}
			value = string(encoded)
		}
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
	before, annotated := c.Annotations[key]
	switch {
	case value == before && annotated == (value != ""):
	case value == "":
		ops = append(ops, jsonpatch.NewOperation("remove", path, nil))
	case c.Annotations == nil:
		ops = append(ops, jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{key: value}))
	default:
		ops = append(ops, jsonpatch.NewOperation("add", path, value))
	}
	if len(ops) == 1 {
		return nil, nil
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}

// isChanged reports whether an error is a lost race. The API server answers a JSON patch
// whose test fails with 422 and no further reason.
func isChanged(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		status.Status().Code == http.StatusUnprocessableEntity)
}

// amend appends the operations that set bundle, and base if not empty, in all webhooks, and
// returns the Services that URLs then have replaced.
func amend(ops []jsonpatch.Operation, c *configuration, bundle []byte, base string) ([]jsonpatch.Operation, map[string]admissionregistrationv1.ServiceReference) {
	add := func(op, path string, value any) { ops = append(ops, jsonpatch.NewOperation(op, path, value)) }
	before, after := ReplacedServices(c.Annotations), map[string]admissionregistrationv1.ServiceReference{}
	for i, w := range c.Webhooks {
		client, at := w.ClientConfig, "/webhooks/"+strconv.Itoa(i)+"/clientConfig"
		if !bytes.Equal(client.CABundle, bundle) {
			add("add", at+"/caBundle", bundle)
		}
		replaced, found := before[w.Name]
		switch {
		case base != "":
			if client.Service != nil {
				replaced, found = *client.Service, true
				add("remove", at+"/service", nil)
			}
			if found {
				after[w.Name] = replaced
			}
			if want := URLAt(base, replaced.Path, client.URL); client.URL == nil || *client.URL != want {
				add("add", at+"/url", want)
			}
		case found && client.URL != nil:
			add("remove", at+"/url", nil)
			add("add", at+"/service", replaced)
		}
	}
	return ops, after
}

// URLAt returns the URL that Tollgate, called at base, which has no path, sets for a webhook.
// path is the path of the installed Service; a webhook that never had one keeps the path of
// its URL, former. Both may be nil.
func URLAt(base string, path, former *string) string {
	if path != nil {
		return base + *path
	}
	if former != nil {
		if u, err := url.Parse(*former); err == nil {
			return base + u.EscapedPath()
		}
	}
	return base
}

// ReplacedServices returns the Services that URLs replaced, by the names of their
// webhooks, which are unique, from the annotations of a webhook configuration. It returns
// nil for an invalid annotation.
func ReplacedServices(annotations map[string]string) map[string]admissionregistrationv1.ServiceReference {
	var s map[string]admissionregistrationv1.ServiceReference
	if json.Unmarshal([]byte(annotations[AnnotationServices]), &s) != nil {
		return nil
	}
	return s
}
