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
// both have: kind, metadata, and the names and client configurations of webhooks.
type configuration = admissionregistrationv1.ValidatingWebhookConfiguration

// publisher reads the configurations and writes the bundle into them.
type publisher struct {
	*Options
	*reporter
}

// The kinds of configurations.
const (
	validating = "ValidatingWebhookConfiguration"
	mutating   = "MutatingWebhookConfiguration"
)

func (p *publisher) get(ctx context.Context, kind string) (*configuration, error) {
	api := p.Client.AdmissionregistrationV1()
	if kind == validating {
		return api.ValidatingWebhookConfigurations().Get(ctx, p.Configurations, metav1.GetOptions{})
	}
	object, err := api.MutatingWebhookConfigurations().Get(ctx, p.Configurations, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	c := &configuration{ObjectMeta: object.ObjectMeta}
	for _, w := range object.Webhooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: w.Name, ClientConfig: w.ClientConfig})
	}
	return c, nil
}

func (p *publisher) patch(ctx context.Context, kind string, patch []byte) (err error) {
	api := p.Client.AdmissionregistrationV1()
	if kind == validating {
		_, err = api.ValidatingWebhookConfigurations().Patch(ctx, p.Configurations, types.JSONPatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = api.MutatingWebhookConfigurations().Patch(ctx, p.Configurations, types.JSONPatchType, patch, metav1.PatchOptions{})
	}
	return err
}

// configurations are the existing webhook configurations that could be read.
type configurations []*configuration

// read reads the configurations. It must be called before the bundle to be written is
// read: a configuration that got a newer bundle since then rejects the older one by its
// resourceVersion.
func (p *publisher) read(ctx context.Context) (found configurations, err error) {
	if p.Configurations == "" {
		return nil, nil
	}
	for _, kind := range []string{validating, mutating} {
		c, failure := p.get(ctx, kind)
		object := kind + "/" + p.Configurations
		switch {
		case apierrors.IsNotFound(failure):
			// It may be installed later; until then no request comes through it.
			_ = p.check(ctx, reasonConfigurationMissing, object, failure)
		case failure != nil:
			err = errors.Join(err, p.check(ctx, reasonConfigurationRead, object, fmt.Errorf("get %s: %w", object, failure)))
		default:
			c.Kind = kind
			found = append(found, c)
			_ = p.check(ctx, reasonConfigurationRead, object, nil)
			_ = p.check(ctx, reasonConfigurationMissing, object, nil)
		}
	}
	return found, err
}

// webhooks returns the webhooks of all configurations.
func (list configurations) webhooks() []admissionregistrationv1.ValidatingWebhook {
	var out []admissionregistrationv1.ValidatingWebhook
	for _, c := range list {
		out = append(out, c.Webhooks...)
	}
	return out
}

// trusted returns the CAs of Tollgate in the configurations. It ignores an invalid bundle,
// which verifies nothing.
func (list configurations) trusted() []*x509.Certificate {
	var out []*x509.Certificate
	var bundles [][]byte
	for _, w := range list.webhooks() {
		bundles = append(bundles, w.ClientConfig.CABundle)
	}
	for _, c := range list {
		bundles = append(bundles, []byte(c.Annotations[AnnotationBundle]))
	}
	for _, bundle := range slices.CompactFunc(bundles, bytes.Equal) {
		certs, _ := parseCertificates(bundle)
		out = append(out, slices.DeleteFunc(certs, func(c *x509.Certificate) bool {
			return !c.IsCA || !strings.HasPrefix(c.Subject.CommonName, caNamePrefix)
		})...)
	}
	return out
}

// write writes the bundle where it is missing. If it returns nil, all webhooks of the
// configurations hold the bundle.
func (p *publisher) write(ctx context.Context, found configurations, bundle []*x509.Certificate) error {
	data := encodeCertificates(bundle...)
	var errs []error
	for _, c := range found {
		object := c.Kind + "/" + c.Name
		var err error
		if patch := p.change(c, data); patch != nil {
			err = p.patch(ctx, c.Kind, patch)
		}
		if isChanged(err) {
			errs = append(errs, fmt.Errorf("patch %s: %w: %w", object, errChanged, err))
			continue
		}
		if err != nil {
			err = fmt.Errorf("patch %s: %w", object, err)
		}
		errs = append(errs, p.check(ctx, reasonConfigurationWrite, object, err))
		if p.Annotate && slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return !bytes.Equal(w.ClientConfig.CABundle, data)
		}) {
			errs = append(errs, fmt.Errorf("%s: %w", object, errNotCopied))
		}
	}
	return errors.Join(errs...)
}

// change returns the JSON patch by which a configuration gets the bundle, or nil if it has
// it. It is pure. The patch changes single fields, so that fields of newer API versions
// survive, and tests the resourceVersion.
func (p *publisher) change(c *configuration, bundle []byte) []byte {
	var ops []jsonpatch.Operation
	add := func(op, path string, value any) { ops = append(ops, jsonpatch.NewOperation(op, path, value)) }
	add("test", "/metadata/resourceVersion", c.ResourceVersion)
	key, value := AnnotationBundle, string(bundle)
	if !p.Annotate {
		key, value = AnnotationServices, ""
		if services := amend(c, bundle, p.URL, add); len(services) != 0 {
			encoded, _ := json.Marshal(services) // Services can always be encoded.
			value = string(encoded)
		}
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
	before, annotated := c.Annotations[key]
	switch {
	case value == before && annotated == (value != ""):
	case value == "":
		add("remove", path, nil)
	case c.Annotations == nil:
		add("add", "/metadata/annotations", map[string]string{key: value})
	default:
		add("add", path, value)
	}
	if len(ops) == 1 {
		return nil
	}
	patch, _ := json.Marshal(ops) // Strings, bytes and Services can always be encoded.
	return patch
}

// isChanged reports whether an error is a lost race. The API server answers a JSON patch
// whose test fails with 422 and no further reason.
func isChanged(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		status.Status().Code == http.StatusUnprocessableEntity)
}

// amend adds the operations that set bundle, and base if not empty, in all webhooks, and
// returns the Services that URLs then have replaced.
func amend(c *configuration, bundle []byte, base string, add func(op, path string, value any)) map[string]admissionregistrationv1.ServiceReference {
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
	return after
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
