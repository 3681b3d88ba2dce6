package certmanager

import (
	"fmt"
	"os"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// writeKustomization writes what a user writes who adds the component, and what a
// Tollgate needs that runs beside its cluster: it is called by an address. It returns the
// directory.
func writeKustomization(dir, address string) (string, error) {
	deploy, err := filepath.Rel(dir, filepath.Join(programs.Root, "deploy"))
	if err != nil {
		return "", err
	}
	patches := []map[string]any{{
		"target": map[string]any{"kind": "Certificate", "name": servingName},
		"patch":  `[{"op": "add", "path": "/spec/ipAddresses", "value": ["127.0.0.1"]}]`,
	}}
	for file, kind := range map[string]string{
		"mutating.yaml": "MutatingWebhookConfiguration", "validating.yaml": "ValidatingWebhookConfiguration",
	} {
		paths, err := webhookPaths(filepath.Join(programs.Root, "deploy", "webhooks", file))
		if err != nil {
			return "", err
		}
		for i, path := range paths {
			patches = append(patches, map[string]any{
				"target": map[string]any{"kind": kind},
				"patch": fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/%d/clientConfig", "value": {"url": "https://%s%s"}}]`,
					i, address, path),
			})
		}
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources": []string{
			filepath.Join(deploy, "base", "rights"), filepath.Join(deploy, "webhooks"), filepath.Join(deploy, "protection"),
		},
		"components": []string{filepath.Join(deploy, "components", "cert-manager")},
		"patches":    patches,
	})
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), content, 0o600)
}

// webhookPaths are those of the Services in a webhook configuration of either kind.
func webhookPaths(file string) ([]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.Unmarshal(content, &configuration); err != nil {
		return nil, fmt.Errorf("decode %s: %w", file, err)
	}
	var paths []string
	for _, webhook := range configuration.Webhooks {
		if webhook.ClientConfig.Service == nil || webhook.ClientConfig.Service.Path == nil {
			return nil, fmt.Errorf("webhook %s in %s has no path", webhook.Name, file)
		}
		paths = append(paths, *webhook.ClientConfig.Service.Path)
	}
	return paths, nil
}
