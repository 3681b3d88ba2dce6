package registration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/certs"
)

// settings are the fields of a webhook, except its name, by the name of the field.
type settings map[string]any

// entries are the settings of webhooks by their names.
type entries map[string]settings

// fieldClientConfig is the field that Tollgate writes too.
const fieldClientConfig = "clientConfig"

// entriesOf returns the webhooks of a configuration.
func entriesOf(object any) entries {
	out := entries{}
	_, webhooks := webhooksOf(object)
	replaced := certs.ReplacedServices(object.(metav1.Object).GetAnnotations())
	for i := range webhooks {
		w := &webhooks[i]
		fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(w) // The types of the API can be converted.
		delete(fields, "name")
		a := address{Service: w.ClientConfig.Service, URL: w.ClientConfig.URL, Shipped: w.ClientConfig.Service}
		if s, ok := replaced[w.Name]; ok && a.Service == nil {
			a.Shipped = &s
		}
		fields[fieldClientConfig] = a
		out[w.Name] = fields
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

// differences describes the changed webhooks and fields, except the address that Tollgate
// itself writes for base (empty: a Service). It leaves out values: rules alone may exceed
// the size of an event.
func differences(before, after entries, base string) []string {
	var out []string
	for _, name := range sortedKeys(before, after) {
		old, wasThere := before[name]
		now, isThere := after[name]
		switch {
		case !isThere:
			out = append(out, "webhook "+name+" removed")
		case !wasThere:
			out = append(out, "webhook "+name+" added")
		default:
			fields := slices.DeleteFunc(sortedKeys(old, now), func(field string) bool {
				return equality.Semantic.DeepEqual(old[field], now[field]) || field == fieldClientConfig && isOwnChange(old[field], now[field], base)
			})
			if len(fields) > 0 {
				out = append(out, fmt.Sprintf("webhook %s: %s changed", name, strings.Join(fields, ", ")))
			}
		}
	}
	return out
}

// sortedKeys returns the keys of two maps.
func sortedKeys[V any](a, b map[string]V) []string {
	return sets.List(sets.KeySet(a).Union(sets.KeySet(b)))
}

// isOwnChange reports whether Tollgate replaced the Service or another URL by its URL at base,
// or, without a base, restored the Service. The field manager is not checked: any client can
// use Tollgate's.
func isOwnChange(old, now any, base string) bool {
	before, after := old.(address), now.(address)
	switch {
	case !equality.Semantic.DeepEqual(before.Shipped, after.Shipped):
		return false
	case base == "":
		return after.Service != nil
	}
	var path *string
	if after.Shipped != nil {
		path = after.Shipped.Path
	}
	return after.URL != nil && *after.URL == certs.URLAt(base, path, before.URL)
}

// lastWriter returns the field manager of the last write, such as kubectl-edit.
func lastWriter(object any) string {
	writer, at := "unknown", metav1.Time{}
	if object, ok := object.(metav1.Object); ok {
		for _, m := range object.GetManagedFields() {
			if m.Time != nil && !m.Time.Before(&at) {
				writer, at = m.Manager, *m.Time
			}
		}
	}
	return writer
}
