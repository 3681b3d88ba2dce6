package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var (
	fenced    = regexp.MustCompile("(?ms)^```yaml\n# (\\S+)\n(.*?)^```$")
	published = regexp.MustCompile(`github\.com/tollgate-dev/tollgate/(deploy/\S+)\?ref=\S+`)
)

// shown writes the files that a page of docs/ shows, each in a block that begins with its
// name, into a folder. They name this checkout in the place of the repository.
func shown(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(programs.Root, "docs", page))
	require.NoError(t, err)
	folder := t.TempDir()
	root, err := filepath.Rel(folder, programs.Root)
	require.NoError(t, err)
	for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
		require.NoFileExists(t, filepath.Join(folder, block[1]), "a page shows a file once")
		writeFile(t, folder, block[1], published.ReplaceAllString(block[2], root+"/$1"))
	}
	require.FileExists(t, filepath.Join(folder, "kustomization.yaml"))
	require.FileExists(t, filepath.Join(folder, "values.yaml"))
	return folder
}

func values(folder string) string { return "--values=" + filepath.Join(folder, "values.yaml") }

func TestWhatAPageShowsIsTheSameWithHelmAndKustomize(t *testing.T) {
	for _, page := range []string{"callers.md", "certificates.md"} {
		t.Run(page, func(t *testing.T) {
			folder := shown(t, page)
			rendered := kustomize(t, folder)
			requireSame(t, rendered, template(t, values(folder)))
			dryRun(t, rendered)
		})
	}
}

func TestTheAuthoritiesOfCallersAreMountedWhereTollgateLooks(t *testing.T) {
	all := template(t, values(shown(t, "callers.md")))
	accepted := configOf(t, as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config")).Webhook.Authentication.ClientCA
	require.Equal(t, []string{"kube-apiserver-webhook-client"}, accepted.CommonNames)

	pod := deploymentOf(t, all).Spec.Template.Spec
	volume, mount := pod.Volumes[len(pod.Volumes)-1], pod.Containers[0].VolumeMounts[len(pod.Containers[0].VolumeMounts)-1]
	require.Equal(t, volume.Name, mount.Name)
	require.True(t, mount.ReadOnly)
	require.Empty(t, mount.SubPath, "a kubelet does not keep that up to date")
	require.Equal(t, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "tollgate-callers"},
		Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: filepath.Base(accepted.File)}},
	}}, volume.VolumeSource)
	require.Equal(t, filepath.Dir(accepted.File), mount.MountPath)
}

func TestNothingNamesTheNamespaceOfCertManagerWhereItIsAnother(t *testing.T) {
	all := template(t, values(shown(t, "certificates.md")))
	for id, object := range all {
		for _, text := range texts(object.Object) {
			require.NotEqual(t, "cert-manager", text, id)
			require.NotContains(t, text, "cert-manager:", id)
		}
	}
	webhooks := as[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration /tollgate")
	require.Equal(t, []string{"kube-system", "tollgate-system", "pki"}, webhooks.Webhooks[0].NamespaceSelector.MatchExpressions[0].Values)
	require.Equal(t, "'system:serviceaccount:pki:pki-cert-manager-cainjector'", cainjectorOf(t, all, "tollgate-webhooks"))
}

// The patch of the policy that a page shows is good for the policies in files too.
func TestPoliciesInFilesCanNameAnotherCertManager(t *testing.T) {
	folder := shown(t, "certificates.md")
	file := filepath.Join(folder, "kustomization.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var kustomization map[string]any
	require.NoError(t, yaml.Unmarshal(text, &kustomization))
	patches, _ := kustomization["patches"].([]any)
	require.Len(t, patches, 2)
	static, err := filepath.Rel(folder, filepath.Join(programs.Root, "deploy", "protection", "static"))
	require.NoError(t, err)
	kustomization["patches"], kustomization["resources"] = patches[1:], []string{static}
	text, err = yaml.Marshal(kustomization)
	require.NoError(t, err)
	writeFile(t, folder, "kustomization.yaml", string(text))
	require.Equal(t, "'system:serviceaccount:pki:pki-cert-manager-cainjector'",
		cainjectorOf(t, kustomize(t, folder), "tollgate-webhooks.static.k8s.io"))
}

// cainjectorOf is the expression by which a policy names who injects a CA.
func cainjectorOf(t *testing.T, all objects, name string) string {
	t.Helper()
	policy := as[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy /"+name)
	for _, variable := range policy.Spec.Variables {
		if variable.Name == "cainjector" {
			return variable.Expression
		}
	}
	t.Fatalf("%s has no variable cainjector", name)
	return ""
}

// texts are all texts in an object but the names of fields.
func texts(value any) []string {
	var found []string
	switch value := value.(type) {
	case map[string]any:
		for _, below := range value {
			found = append(found, texts(below)...)
		}
	case []any:
		for _, below := range value {
			found = append(found, texts(below)...)
		}
	case string:
		found = append(found, strings.TrimSpace(value))
	}
	return found
}
