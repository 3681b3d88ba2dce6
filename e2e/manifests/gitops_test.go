package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// written are the fields of a webhook configuration that the leader writes, with Managed.
var written = []string{"/metadata/annotations/tollgate.dev~1ca-bundle", "/metadata/annotations/tollgate.dev~1registered-for", "/webhooks"}

// manifestOf is a block of YAML that a page shows, by the name of its file.
func manifestOf(t *testing.T, path, file string) map[string]any {
	t.Helper()
	for _, block := range fenced.FindAllStringSubmatch(page(t, path), -1) {
		if block[1] == file {
			var content map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(block[2]), &content), "%s of %s", file, path)
			return content
		}
	}
	t.Fatalf("%s shows no %s", path, file)
	return nil
}

// templateWith renders the chart with values as a file has them.
func templateWith(t *testing.T, values any) objects {
	t.Helper()
	text, err := yaml.Marshal(values)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return template(t, "--values="+file)
}

// field is what is at a path.
func field(t *testing.T, from map[string]any, path ...string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(from, path...)
	require.NoError(t, err)
	require.True(t, found, strings.Join(path, "."))
	return value
}

// requireIgnored tells that the paths are those that the leader writes, and that the chart renders
// nothing there.
func requireIgnored(t *testing.T, all objects, kind string, paths any) {
	t.Helper()
	require.ElementsMatch(t, written, paths)
	rendered := all[kind+" /tollgate"]
	require.NotNil(t, rendered)
	require.NotContains(t, rendered.Object, "webhooks")
	for _, annotation := range []string{"tollgate.dev/ca-bundle", "tollgate.dev/registered-for"} {
		require.NotContains(t, rendered.GetAnnotations(), annotation)
	}
}

func configMapOf(t *testing.T, all objects) *corev1.ConfigMap {
	t.Helper()
	return as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config")
}

func modeOf(t *testing.T, all objects) configv1alpha1.EvictionMode {
	t.Helper()
	return configOf(t, configMapOf(t, all)).Eviction.Mode
}

func TestArgoCDIgnoresWhatTheLeaderWrites(t *testing.T) {
	const path = "docs/argo-cd.md"
	application := manifestOf(t, path, "tollgate.yaml")
	all := templateWith(t, field(t, application, "spec", "source", "helm", "valuesObject"))
	require.Equal(t, configv1alpha1.EvictionObserve, modeOf(t, all))
	require.Equal(t, "registry.example.com/tollgate:v1.2.3", deploymentOf(t, all).Spec.Template.Spec.Containers[0].Image)
	require.DirExists(t, filepath.Join(programs.Root, field(t, application, "spec", "source", "path").(string)))

	differences, _ := field(t, application, "spec", "ignoreDifferences").([]any)
	require.Len(t, differences, 2)
	for _, difference := range differences {
		rule, _ := difference.(map[string]any)
		requireIgnored(t, all, rule["kind"].(string), rule["jsonPointers"])
	}

	manual := template(t, "--set=webhooks.registration=Manual")
	differences, _ = manifestOf(t, path, "manual.yaml")["ignoreDifferences"].([]any)
	require.Len(t, differences, 2)
	for _, difference := range differences {
		rule, _ := difference.(map[string]any)
		rendered := manual[rule["kind"].(string)+" /tollgate"]
		require.NotEmpty(t, rendered.Object["webhooks"])
		require.Contains(t, rule["jqPathExpressions"], ".webhooks[]?.clientConfig.caBundle")
		for _, webhook := range rendered.Object["webhooks"].([]any) {
			require.NotContains(t, field(t, webhook.(map[string]any), "clientConfig"), "caBundle")
		}
	}
}

func TestFluxIgnoresWhatTheLeaderWrites(t *testing.T) {
	release := manifestOf(t, "docs/flux.md", "release.yaml")
	all := templateWith(t, field(t, release, "spec", "values"))
	require.Equal(t, configv1alpha1.EvictionObserve, modeOf(t, all))
	require.DirExists(t, filepath.Join(programs.Root, field(t, release, "spec", "chart", "spec", "chart").(string)))
	source := manifestOf(t, "docs/flux.md", "source.yaml")
	require.Equal(t, field(t, source, "metadata", "name"), field(t, release, "spec", "chart", "spec", "sourceRef", "name"))

	rules, _ := field(t, release, "spec", "driftDetection", "ignore").([]any)
	require.Len(t, rules, 2)
	for _, each := range rules {
		rule, _ := each.(map[string]any)
		requireIgnored(t, all, field(t, rule, "target", "kind").(string), rule["paths"])
	}
}

func TestTheValuesForManagedClustersRender(t *testing.T) {
	const path = "docs/managed-clusters.md"
	require.Equal(t, configv1alpha1.EvictionWindow, modeOf(t, templateWith(t, manifestOf(t, path, "values.yaml"))))
	require.True(t, deploymentOf(t, templateWith(t, manifestOf(t, path, "overlay.yaml"))).Spec.Template.Spec.HostNetwork)

	nodes := templateWith(t, manifestOf(t, path, "private-nodes.yaml"))
	require.Equal(t, int32(10250), deploymentOf(t, nodes).Spec.Template.Spec.Containers[0].Ports[0].ContainerPort)
	require.Equal(t, ":10250", configOf(t, configMapOf(t, nodes)).Webhook.BindAddress)

	aks := templateWith(t, manifestOf(t, path, "aks.yaml"))
	require.Equal(t, "true", aks["MutatingWebhookConfiguration /tollgate"].GetAnnotations()["admissions.enforcer/disabled"])

	autopilot := templateWith(t, manifestOf(t, path, "autopilot.yaml"))
	require.Equal(t, configv1alpha1.RegistrationManual, configOf(t, configMapOf(t, autopilot)).Webhook.Registration)
	rules, err := yaml.Marshal(autopilot["ValidatingWebhookConfiguration /tollgate"].Object["webhooks"])
	require.NoError(t, err)
	require.NotContains(t, string(rules), "- '*'", "each resource is named")
}

// What is not rendered is read: every block is one or more whole objects, or values, and what one names is there.
func TestWhatTheGitOpsPagesShowNamesWhatIsThere(t *testing.T) {
	for _, path := range []string{"docs/argo-cd.md", "docs/flux.md"} {
		t.Run(path, func(t *testing.T) {
			shown := map[string]map[string]any{}
			for _, block := range fenced.FindAllStringSubmatch(page(t, path), -1) {
				for document := range strings.SplitSeq(block[2], "\n---\n") {
					var object map[string]any
					require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object), "%s of %s", block[1], path)
					if kind, ok := object["kind"].(string); ok {
						require.NotEmpty(t, object["apiVersion"], "%s of %s", block[1], path)
						shown[kind+" "+field(t, object, "metadata", "name").(string)] = object
					}
				}
			}
			require.GreaterOrEqual(t, len(shown), 2)
			for id, object := range shown {
				needs, _, err := unstructured.NestedSlice(object, "spec", "dependsOn")
				require.NoError(t, err, id)
				for _, need := range needs {
					kind, _, _ := strings.Cut(id, " ")
					require.Contains(t, shown, kind+" "+need.(map[string]any)["name"].(string), "%s depends on what %s does not show", id, path)
				}
			}
		})
	}
}
