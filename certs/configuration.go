package certs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// AnnotationServices stores, in a webhook configuration, the Services that URLs replaced:
// their paths are needed when the URL changes, and the whole references when Tollgate
// moves into the cluster.
const AnnotationServices = "tollgate.dev/replaced-services"

// configuration is the common part of validating and mutating webhook configurations.
type configuration struct {
	resourceVersion string
	annotations     map[string]string
	hooks           []hook
}

type hook struct {
	name   string
	client admissionregistrationv1.WebhookClientConfig
}

// services are ServiceReferences by the names of webhooks, which are unique within a
// configuration.
type services map[string]admissionregistrationv1.ServiceReference

// amend returns the JSON patch that sets bundle, and base if not nil, in all webhooks, or
// nil if nothing differs. It is pure. The patch changes single fields, so that fields of
// newer API versions survive, and tests the resourceVersion.
func amend(c *configuration, bundle []byte, base *url.URL) ([]byte, error) {
	var ops []jsonpatch.Operation
	before := c.replacedServices()
	after := services{}
	for i, h := range c.hooks {
		at := "/webhooks/" + strconv.Itoa(i) + "/clientConfig"
		if !bytes.Equal(h.client.CABundle, bundle) {
			ops = append(ops, jsonpatch.NewOperation("add", at+"/caBundle", bundle))
		}
		replaced, known := before[h.name]
		switch {
		case base != nil:
			if h.client.Service != nil {
				replaced, known = *h.client.Service, true
			}
			if known {
				after[h.name] = replaced
			}
			ops = append(ops, pointAt(at, &h.client, base, replaced.Path)...)
		case known && h.client.URL != nil:
			ops = append(ops,
				jsonpatch.NewOperation("remove", at+"/url", nil),
				jsonpatch.NewOperation("add", at+"/service", replaced))
		}
	}
	remember, err := rememberServices(c, before, after)
	if err != nil {
		return nil, err
	}
	ops = append(ops, remember...)
	if len(ops) == 0 {
		return nil, nil
	}
	ops = append([]jsonpatch.Operation{jsonpatch.NewOperation("test", "/metadata/resourceVersion", c.resourceVersion)}, ops...)
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}

// pointAt returns the operations that set the URL of one webhook.
func pointAt(at string, client *admissionregistrationv1.WebhookClientConfig, base *url.URL, path *string) []jsonpatch.Operation {
	var ops []jsonpatch.Operation
	if client.Service != nil {
		ops = append(ops, jsonpatch.NewOperation("remove", at+"/service", nil))
	}
	if want := URLAt(base, path, client.URL); client.URL == nil || *client.URL != want {
		ops = append(ops, jsonpatch.NewOperation("add", at+"/url", want))
	}
	return ops
}

// URLAt returns the URL that Tollgate, called at base, sets for a webhook. path is the
// path of the installed Service; a webhook that never had one keeps the path of its URL,
// former. Both may be nil.
func URLAt(base *url.URL, path, former *string) string {
	target := ""
	switch {
	case path != nil:
		target = *path
	case former != nil:
		if u, err := url.Parse(*former); err == nil {
			target = strings.TrimPrefix(u.Path, strings.TrimSuffix(base.Path, "/"))
		}
	}
	return base.JoinPath(target).String()
}

func (c *configuration) replacedServices() services {
	return ReplacedServices(c.annotations)
}

// ReplacedServices returns the Services that URLs replaced, by the names of their
// webhooks, from the annotations of a webhook configuration. It returns nil for an invalid
// annotation.
func ReplacedServices(annotations map[string]string) map[string]admissionregistrationv1.ServiceReference {
	var s services
	if json.Unmarshal([]byte(annotations[AnnotationServices]), &s) != nil {
		return nil
	}
	return s
}

func rememberServices(c *configuration, before, after services) ([]jsonpatch.Operation, error) {
	_, annotated := c.annotations[AnnotationServices]
	path := "/metadata/annotations/" + strings.ReplaceAll(AnnotationServices, "/", "~1")
	if len(after) == 0 {
		if !annotated {
			return nil, nil
		}
		return []jsonpatch.Operation{jsonpatch.NewOperation("remove", path, nil)}, nil
	}
	if maps.EqualFunc(before, after, equalService) {
		return nil, nil
	}
	value, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encode services: %w", err)
	}
	var ops []jsonpatch.Operation
	if c.annotations == nil {
		ops = append(ops, jsonpatch.NewOperation("add", "/metadata/annotations", map[string]string{}))
	}
	return append(ops, jsonpatch.NewOperation("add", path, string(value))), nil
}

func equalService(a, b admissionregistrationv1.ServiceReference) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && equal(a.Path, b.Path) && equal(a.Port, b.Port)
}

func equal[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}
