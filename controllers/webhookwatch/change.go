package webhookwatch

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/certs"
)

// settings are the fields of a webhook, except its name, by field name.
type settings map[string]any

// entries are the settings of webhooks by their names.
type entries map[string]settings

// fieldClientConfig is the field that Tollgate writes too.
const fieldClientConfig = "clientConfig"

func validatingEntries(c *admissionregistrationv1.ValidatingWebhookConfiguration) entries {
	out, replaced := entries{}, certs.ReplacedServices(c.Annotations)
	for _, w := range c.Webhooks {
		out[w.Name] = settings{
			fieldClientConfig: addressOf(w.Name, w.ClientConfig, replaced), "rules": w.Rules, "failurePolicy": w.FailurePolicy, "matchPolicy": w.MatchPolicy,
			"namespaceSelector": w.NamespaceSelector, "objectSelector": w.ObjectSelector, "matchConditions": w.MatchConditions,
			"timeoutSeconds": w.TimeoutSeconds, "sideEffects": w.SideEffects, "admissionReviewVersions": w.AdmissionReviewVersions,
		}
	}
	return out
}

func mutatingEntries(c *admissionregistrationv1.MutatingWebhookConfiguration) entries {
	out, replaced := entries{}, certs.ReplacedServices(c.Annotations)
	for _, w := range c.Webhooks {
		out[w.Name] = settings{
			fieldClientConfig: addressOf(w.Name, w.ClientConfig, replaced), "rules": w.Rules, "failurePolicy": w.FailurePolicy, "matchPolicy": w.MatchPolicy,
			"namespaceSelector": w.NamespaceSelector, "objectSelector": w.ObjectSelector, "matchConditions": w.MatchConditions,
			"timeoutSeconds": w.TimeoutSeconds, "sideEffects": w.SideEffects, "admissionReviewVersions": w.AdmissionReviewVersions,
			"reinvocationPolicy": w.ReinvocationPolicy,
		}
	}
	return out
}

// address is the endpoint of a webhook, without its caBundle.
type address struct {
	Service *admissionregistrationv1.ServiceReference
	URL     *string
	// Shipped is the installed Service: Service itself, or the one that a URL replaced.
	Shipped *admissionregistrationv1.ServiceReference
}

func addressOf(name string, config admissionregistrationv1.WebhookClientConfig, replaced map[string]admissionregistrationv1.ServiceReference) address {
	a := address{Service: config.Service, URL: config.URL, Shipped: config.Service}
	if s, known := replaced[name]; known && a.Service == nil {
		a.Shipped = &s
	}
	return a
}

// isTollgates reports whether Tollgate writes this address in place of before: the URL at
// base or, without a base, the installed Service. The field manager is not checked: any
// client can use Tollgate's.
func (a address) isTollgates(before address, base string) bool {
	if base == "" {
		return a.Service != nil
	}
	at, err := url.Parse(base)
	if err != nil || a.URL == nil {
		return false
	}
	var path *string
	if a.Shipped != nil {
		path = a.Shipped.Path
	}
	return *a.URL == certs.URLAt(at, path, before.URL)
}

// differences describes the changed webhooks and fields, except the address that Tollgate
// itself writes for base (empty: a Service). It leaves out values: rules alone may exceed
// the size of an event.
func differences(before, after entries, base string) []string {
	var out []string
	for _, name := range sortedNames(before, after) {
		old, wasThere := before[name]
		now, isThere := after[name]
		switch {
		case !isThere:
			out = append(out, "webhook "+name+" removed")
		case !wasThere:
			out = append(out, "webhook "+name+" added")
		default:
			if fields := changedFields(old, now, base); len(fields) > 0 {
				out = append(out, fmt.Sprintf("webhook %s: %s changed", name, strings.Join(fields, ", ")))
			}
		}
	}
	return out
}

func sortedNames(a, b entries) []string {
	names := slices.Collect(maps.Keys(a))
	names = slices.AppendSeq(names, maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

func changedFields(old, now settings, base string) []string {
	var fields []string
	for _, field := range slices.Sorted(maps.Keys(now)) {
		if equality.Semantic.DeepEqual(old[field], now[field]) || field == fieldClientConfig && isOwnChange(old[field], now[field], base) {
			continue
		}
		fields = append(fields, field)
	}
	return fields
}

// isOwnChange reports whether Tollgate replaced the Service or another URL by its URL, or
// restored the Service.
func isOwnChange(old, now any, base string) bool {
	before, wasThere := old.(address)
	after, isThere := now.(address)
	return wasThere && isThere && equality.Semantic.DeepEqual(before.Shipped, after.Shipped) && after.isTollgates(before, base)
}

// lastWriter returns the field manager of the last write, such as kubectl-edit.
func lastWriter(managers []metav1.ManagedFieldsEntry) string {
	writer, at := "unknown", metav1.Time{}
	for _, m := range managers {
		if m.Time != nil && !m.Time.Before(&at) {
			writer, at = m.Manager, *m.Time
		}
	}
	return writer
}
