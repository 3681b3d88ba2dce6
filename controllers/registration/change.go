package registration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settings are what the API server goes by when it calls a webhook, by the names of the
// fields. The caBundle is left out.
type settings map[string]any

// entries are the settings of webhooks by their names.
type entries map[string]settings

func validatingEntries(c *admissionregistrationv1.ValidatingWebhookConfiguration) entries {
	out := entries{}
	for _, w := range c.Webhooks {
		out[w.Name] = settings{
			"clientConfig": called(w.ClientConfig), "rules": w.Rules, "failurePolicy": w.FailurePolicy, "matchPolicy": w.MatchPolicy,
			"namespaceSelector": w.NamespaceSelector, "objectSelector": w.ObjectSelector, "matchConditions": w.MatchConditions,
			"timeoutSeconds": w.TimeoutSeconds, "sideEffects": w.SideEffects, "admissionReviewVersions": w.AdmissionReviewVersions,
		}
	}
	return out
}

func mutatingEntries(c *admissionregistrationv1.MutatingWebhookConfiguration) entries {
	out := entries{}
	for _, w := range c.Webhooks {
		out[w.Name] = settings{
			"clientConfig": called(w.ClientConfig), "rules": w.Rules, "failurePolicy": w.FailurePolicy, "matchPolicy": w.MatchPolicy,
			"namespaceSelector": w.NamespaceSelector, "objectSelector": w.ObjectSelector, "matchConditions": w.MatchConditions,
			"timeoutSeconds": w.TimeoutSeconds, "sideEffects": w.SideEffects, "admissionReviewVersions": w.AdmissionReviewVersions,
			"reinvocationPolicy": w.ReinvocationPolicy,
		}
	}
	return out
}

// called is where a webhook is, without by what it is trusted.
func called(config admissionregistrationv1.WebhookClientConfig) admissionregistrationv1.WebhookClientConfig {
	config.CABundle = nil
	return config
}

// differences says in words what is another in after than it was; nothing if all is the
// same. Values are left out: rules alone may be longer than an event.
func differences(before, after entries) []string {
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
			if fields := changed(old, now); len(fields) > 0 {
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

func changed(old, now settings) []string {
	var fields []string
	for _, field := range slices.Sorted(maps.Keys(now)) {
		if !equality.Semantic.DeepEqual(old[field], now[field]) {
			fields = append(fields, field)
		}
	}
	return fields
}

// lastWriter is the field manager that wrote an object last, such as kubectl-edit.
func lastWriter(managers []metav1.ManagedFieldsEntry) string {
	writer, at := "unknown", metav1.Time{}
	for _, m := range managers {
		if m.Time != nil && !m.Time.Before(&at) {
			writer, at = m.Manager, *m.Time
		}
	}
	return writer
}
