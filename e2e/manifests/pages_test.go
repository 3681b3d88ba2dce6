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
	settings  = regexp.MustCompile(`--set image\.\w+=[\w./-]+`)
)

// page is the text of a page, by its path in the repository.
func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(programs.Root, path))
	require.NoError(t, err)
	return string(text)
}

// shown writes the files that a page shows, each in a block that begins with its name, into a
// folder. They name this checkout in the place of the repository, or of one beside the folder.
func shown(t *testing.T, path string) string {
	t.Helper()
	folder := t.TempDir()
	root, err := filepath.Rel(folder, programs.Root)
	require.NoError(t, err)
	for _, block := range fenced.FindAllStringSubmatch(page(t, path), -1) {
		require.NoFileExists(t, filepath.Join(folder, block[1]), "a page shows a file once")
		text := published.ReplaceAllString(block[2], root+"/$1")
		writeFile(t, folder, block[1], strings.ReplaceAll(text, "../tollgate/", root+"/"))
	}
	require.FileExists(t, filepath.Join(folder, "kustomization.yaml"))
	return folder
}

func values(folder string) string { return "--values=" + filepath.Join(folder, "values.yaml") }

func TestWhatAPageShowsIsTheSameWithHelmAndKustomize(t *testing.T) {
	for _, path := range []string{"docs/callers.md", "docs/certificates.md"} {
		t.Run(path, func(t *testing.T) {
			folder := shown(t, path)
			rendered := kustomize(t, folder)
			requireSame(t, rendered, template(t, values(folder)))
			dryRun(t, rendered)
		})
	}
}

// The image of the manifests is not published, so that nobody can pull it.
func TestTheFirstCommandsInstallAnImageOfOnesOwn(t *testing.T) {
	const image = "registry.example.com/tollgate:v1.2.3"
	for _, path := range []string{"README.md", "deploy/README.md"} {
		t.Run(path, func(t *testing.T) {
			rendered := kustomize(t, shown(t, path))
			require.Equal(t, image, deploymentOf(t, rendered).Spec.Template.Spec.Containers[0].Image)

			require.NotContains(t, page(t, path), "-k deploy/overlays/self-signed")

			set := settings.FindAllString(page(t, path), -1)
			require.Len(t, set, 2, "repository and tag")
			requireSame(t, rendered, template(t, strings.Fields(strings.Join(set, " "))...))
			require.Equal(t, set, settings.FindAllString(page(t, "deploy/chart/tollgate/README.md"), -1), "the page of the chart")
		})
	}
}

func TestTheAuthoritiesOfCallersAreMountedWhereTollgateLooks(t *testing.T) {
	all := template(t, values(shown(t, "docs/callers.md")))
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
	all := template(t, values(shown(t, "docs/certificates.md")))
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
	folder := shown(t, "docs/certificates.md")
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
