package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// What values make the chart what an overlay is.
var overlays = map[string][]string{
	"self-signed":            nil,
	"issued-by-cert-manager": {"--set=certificates.mode=CertManager"},
	"window":                 {"--set=mode=Window"},
	"observe":                {"--set=mode=Observe"},
	"manual":                 {"--set=webhooks.registration=Manual"},
	"high-availability":      {"--set=replicas=3,spread.nodes=DoNotSchedule,components=Apart"},
}

func TestTheChartIsTheSameAsTheManifests(t *testing.T) {
	for name, values := range overlays {
		t.Run(name, func(t *testing.T) { requireSame(t, kustomize(t, overlay(name)), template(t, values...)) })
	}
	t.Run("with components that are put together", func(t *testing.T) {
		folder := together(t, "components/window", "components/high-availability", "components/managed", "monitoring")
		requireSame(t, kustomize(t, folder), template(t, "--set=mode=Window,replicas=3,spread.nodes=DoNotSchedule",
			"--set=monitoring.metrics=true,monitoring.monitor=ServiceMonitor,monitoring.rules=true,monitoring.dashboard=true"))
	})
	t.Run("with components apart and all webhooks", func(t *testing.T) {
		requireSame(t, kustomize(t, together(t, "components/apart")), template(t, "--set=components=Apart,webhooks.registration=Manual"))
	})
	t.Run("with components in another order", func(t *testing.T) {
		requireSame(t, kustomize(t, together(t, "components/managed", "components/apart")), template(t, "--set=components=Apart"))
	})
	t.Run("with Reports of OpenReports", func(t *testing.T) {
		requireSame(t, kustomize(t, together(t, "components/managed", "components/open-reports")), template(t, "--set=audit.openReports=true"))
	})
	t.Run("with Reports of OpenReports and components apart", func(t *testing.T) {
		requireSame(t, kustomize(t, together(t, "components/apart", "components/open-reports")),
			template(t, "--set=components=Apart,webhooks.registration=Manual,audit.openReports=true"))
	})
	t.Run("with monitoring and cert-manager", func(t *testing.T) {
		folder := together(t, "components/cert-manager", "components/certificate-files", "monitoring", "monitoring/cert-manager")
		requireSame(t, kustomize(t, folder), template(t, "--set=certificates.mode=CertManager",
			"--set=monitoring.metrics=true,monitoring.monitor=ServiceMonitor,monitoring.rules=true,monitoring.dashboard=true"))
	})
	t.Run("with pods that are monitored, and cert-manager", func(t *testing.T) {
		folder := together(t, "monitoring/endpoint", "monitoring/podmonitor", "monitoring/cert-manager", "components/cert-manager", "components/certificate-files")
		requireSame(t, kustomize(t, folder), template(t, "--set=certificates.mode=CertManager,monitoring.metrics=true,monitoring.monitor=PodMonitor"))
	})
	t.Run("with components apart that are monitored", func(t *testing.T) {
		folder := together(t, "components/apart", "components/managed", "monitoring")
		requireSame(t, kustomize(t, folder), template(t, "--set=components=Apart",
			"--set=monitoring.metrics=true,monitoring.monitor=ServiceMonitor,monitoring.rules=true,monitoring.dashboard=true"))
	})
	t.Run("with components apart that are monitored, and cert-manager", func(t *testing.T) {
		folder := together(t, "components/apart", "monitoring/endpoint", "monitoring/podmonitor", "monitoring/cert-manager",
			"components/cert-manager", "components/certificate-files")
		requireSame(t, kustomize(t, folder), template(t, "--set=components=Apart,certificates.mode=CertManager,monitoring.metrics=true,monitoring.monitor=PodMonitor"))
	})
	t.Run("with pods that are monitored", func(t *testing.T) {
		folder := together(t, "components/managed", "monitoring/endpoint", "monitoring/podmonitor")
		requireSame(t, kustomize(t, folder), template(t, "--set=monitoring.metrics=true,monitoring.monitor=PodMonitor"))
	})
}

// together writes an overlay of a user's own: the base with components of deploy/.
func together(t *testing.T, components ...string) string {
	t.Helper()
	folder := t.TempDir()
	deploy, err := filepath.Rel(folder, filepath.Join(programs.Root, "deploy"))
	require.NoError(t, err)
	for i := range components {
		components[i] = filepath.Join(deploy, components[i])
	}
	text, err := yaml.Marshal(map[string]any{
		"kind": "Kustomization", "resources": []string{filepath.Join(deploy, "base")}, "components": components,
	})
	require.NoError(t, err)
	writeFile(t, folder, "kustomization.yaml", string(text))
	return folder
}

func requireSame(t *testing.T, manifests, chart objects) {
	t.Helper()
	want, got := normalized(manifests), normalized(chart)
	// Helm makes the namespace, and cannot without one.
	require.Contains(t, want, "Namespace /tollgate-system")
	delete(want, "Namespace /tollgate-system")
	for id := range want {
		require.Contains(t, got, id)
		require.Equal(t, want[id].Object, got[id].Object, id)
	}
	require.Len(t, got, len(want))
}

var hashed = regexp.MustCompile(`^tollgate-config-[0-9a-z]{10}$`)

// normalized takes away by what pods notice that their configuration changed, which is a
// name with one tool and an annotation with the other, how settings are laid out in their
// files, what keeps Helm from deleting, and the labels that only a release has.
func normalized(all objects) objects {
	result := objects{}
	for _, object := range all {
		object = object.DeepCopy()
		if hashed.MatchString(object.GetName()) {
			object.SetName("tollgate-config")
		}
		unlabel(object.Object, "metadata", "labels")
		switch object.GetKind() {
		case "Deployment":
			unlabel(object.Object, "spec", "template", "metadata", "labels")
			unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "annotations", "checksum/config")
			volumes, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "volumes")
			for _, volume := range volumes {
				if source, ok := volume.(map[string]any)["configMap"].(map[string]any); ok && hashed.MatchString(source["name"].(string)) {
					source["name"] = "tollgate-config"
				}
			}
			_ = unstructured.SetNestedSlice(object.Object, volumes, "spec", "template", "spec", "volumes")
		case "CustomResourceDefinition":
			unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "helm.sh/resource-policy")
		case "ConfigMap":
			if object.GetName() == "tollgate-config" {
				_ = unstructured.SetNestedStringMap(object.Object, laidOut(object), "data")
			}
		}
		result[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = object
	}
	return result
}

// unlabel takes away the labels of a release, and the name where it is the only label that is left.
func unlabel(object map[string]any, path ...string) {
	labels, found, _ := unstructured.NestedStringMap(object, path...)
	if !found {
		return
	}
	for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version"} {
		delete(labels, label)
	}
	// Objects of kustomize without any label have this one with Helm.
	if labels["app.kubernetes.io/name"] == "tollgate" && path[0] == "metadata" {
		delete(labels, "app.kubernetes.io/name")
	}
	if len(labels) == 0 {
		unstructured.RemoveNestedField(object, path...)
		return
	}
	_ = unstructured.SetNestedStringMap(object, labels, path...)
}

// laidOut are the files of a ConfigMap as JSON, which is YAML too.
func laidOut(files *unstructured.Unstructured) map[string]string {
	data, _, _ := unstructured.NestedStringMap(files.Object, "data")
	for name, text := range data {
		if settings, err := yaml.YAMLToJSON([]byte(text)); err == nil {
			data[name] = string(settings)
		}
	}
	return data
}

func TestTheChartHasNoFaultsThatHelmFinds(t *testing.T) {
	_, err := helm(t, "lint", "--strict", chart())
	require.NoError(t, err)
}

func TestTheChartRefusesValuesThatItDoesNotUnderstand(t *testing.T) {
	tests := map[string]struct{ set, names string }{
		"a value that is none":                        {"replica=3", "replica"},
		"a value that is none, deeper down":           {"webhooks.failPolicy=Ignore", "failPolicy"},
		"a failure policy in another case":            {"webhooks.failurePolicy=ignore", "failurePolicy"},
		"no failure policy":                           {"webhooks.failurePolicy=null", "failurePolicy"},
		"an empty failure policy":                     {"webhooks.failurePolicy=", "failurePolicy"},
		"a mode that is none":                         {"mode=window", "mode"},
		"a mode by two ways":                          {"config.eviction.mode=Window", "mode"},
		"certificates by two ways":                    {"config.certificates.mode=Files", "mode"},
		"a namespace by two ways":                     {"config.namespace=x", "namespace"},
		"no replicas":                                 {"replicas=0", "replicas"},
		"a text where a switch is":                    {"protection.install=enabled", "install"},
		"no limit of memory, which the collector has": {"resources.limits.memory=null", "memory"},
		"a monitor of metrics that are not served":    {"monitoring.monitor=PodMonitor", "monitoring"},
		"an address that is none":                     {"networkPolicy.apiServer.cidrs={10.0.0.1}", "cidrs"},
		"a digest that is cut off":                    {"image.digest=sha256:abc", "digest"},
		"a registration in another case":              {"webhooks.registration=managed", "registration"},
		"a namespace that cannot be":                  {"webhooks.excludedNamespaces={*}", "excludedNamespaces"},
		"no namespace of cert-manager":                {"certificates.certManager.namespace=", "namespace"},
		"an account of cert-manager's in quotes":      {"certificates.certManager.cainjector='a'", "cainjector"},
		"a ConfigMap that cannot be":                  {"callers.clientCA.configMap=a/b", "configMap"},
		"a port of the system":                        {"ports.webhook=443", "/ports/webhook"},
		"a port that is none":                         {"ports.api=9443", "api"},
		"a text where the network of the node is":     {"hostNetwork=node", "hostNetwork"},
		"a policy of DNS that is none":                {"dnsPolicy=Host", "dnsPolicy"},
		"a level of the log that is none":             {"log.level=trace", "/log/level"},
		"a format of the log in another case":         {"log.format=JSON", "/log/format"},
		"a variable without a name":                   {"extraEnv[0].value=a", "/extraEnv/0"},
		"a source of variables that is none":          {"extraEnvFrom[0].configMap=a", "/extraEnvFrom/0"},
		"a volume without a name":                     {"extraVolumes[0].emptyDir.medium=Memory", "/extraVolumes/0"},
		"a mount without a path":                      {"extraVolumeMounts[0].name=a", "/extraVolumeMounts/0"},
		"arguments in one text":                       {"extraArgs=--a --b", "extraArgs"},
		"a label that cannot be":                      {"commonLabels.team=a b", "/commonLabels/team"},
		"an account that cannot be":                   {"serviceAccount.name=A", "/serviceAccount/name"},
		"a constraint without a topology":             {"topologySpreadConstraints[0].maxSkew=1", "/topologySpreadConstraints/0"},
		"more new pods than the quota has room for":   {"rollingUpdate.maxSurge=2", "/rollingUpdate/maxSurge"},
		"a share of pods that may be missing":         {"rollingUpdate.maxUnavailable=25%", "/rollingUpdate/maxUnavailable"},
		"an interval without a unit":                  {"monitoring.interval=30", "/monitoring/interval"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, "template", "tollgate", chart(), "--set="+tt.set)
			require.ErrorContains(t, err, tt.names)
			require.ErrorContains(t, err, "schema")
		})
	}
}

func TestTheChartRefusesValuesThatDoNotBelongTogether(t *testing.T) {
	const mounted, settings = "--set=callers.clientCA.configMap=tollgate-callers", "--set=config.webhook.authentication.clientCA."
	tests := map[string]struct {
		set   []string
		names string
	}{
		"authorities of callers without a name that is accepted": {
			[]string{mounted}, "callers.clientCA.configMap: needs config.webhook.authentication.clientCA.commonNames or organizations",
		},
		"a URL, which the policies of the chart refuse": {
			[]string{"--set=config.webhook.url=https://10.0.0.7:9443"}, "config.webhook.url: the chart installs a Tollgate that is called by its Service",
		},
		"webhooks that the leader registers with certificates that cert-manager issues": {
			[]string{"--set=webhooks.registration=Managed,certificates.mode=CertManager"}, "webhooks.registration: Managed needs certificates.mode SelfSigned",
		},
		"a namespace by the name that cert-manager's has elsewhere": {
			[]string{"--namespace=cert-manager", "--set=certificates.certManager.namespace=pki"}, "namespace cert-manager: that is the name of cert-manager's own",
		},
		"the port of the kubelet in the network of the node": {
			[]string{"--set=hostNetwork=true,ports.webhook=10250"}, "ports.webhook: 10250 is the port of the kubelet",
		},
		"a rollout that could replace no pod": {
			[]string{"--set=rollingUpdate.maxSurge=0"}, "rollingUpdate: maxSurge and maxUnavailable are both 0",
		},
		"two ports that are the same": {
			[]string{"--set=ports.health=9443"}, "ports: webhook 9443, health 9443 and metrics 8080: each needs a port of its own",
		},
		"a standard label as a common one": {
			[]string{`--set=commonLabels.helm\.sh/chart=a`}, "commonLabels: helm.sh/chart is set by the chart: leave it out",
		},
		"an argument for which there is a value": {
			[]string{"--set=extraArgs={--log-format=text}"}, "extraArgs[0]: --log-format is set by the chart: write the value log.format",
		},
		"an argument that the chart sets": {
			[]string{"--set=extraArgs={--config=/etc/tollgate.yaml}"}, "extraArgs[0]: --config is set by the chart: write the value config",
		},
		"the limit of Go's collector": {
			[]string{"--set=extraEnv[0].name=GOMEMLIMIT"}, "extraEnv[0].name: GOMEMLIMIT is set by the chart: write the value resources.limits.memory",
		},
		"a volume by the name of another": {
			[]string{"--set=extraVolumes[0].name=config"}, "extraVolumes[0].name: config is the name of another volume of the pod",
		},
		"authorities of callers from two files": {
			[]string{mounted, settings + "commonNames={a}", settings + "file=/ca.crt"}, "config.webhook.authentication.clientCA.file: callers.clientCA.configMap says",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, append([]string{"template", "tollgate", chart(), "--namespace=tollgate-system"}, tt.set...)...)
			require.ErrorContains(t, err, tt.names)
		})
	}
	t.Run("but organizations will do", func(t *testing.T) { template(t, mounted, settings+"organizations={a}") })
}

// With --reuse-values, Helm puts the values of the chart before in the place of the defaults.
// testdata/values.yaml are those of the first chart, and stay as they are.
func TestTheChartDoesWithValuesOfAnOlderOne(t *testing.T) {
	const file = "testdata/values.yaml"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	older := chartWith(t, "values.yaml", string(text))
	tests := map[string][]string{
		"as they are":                {},
		"with cert-manager":          {"--set=certificates.mode=CertManager"},
		"with a part of what is new": {"--set=certificates.certManager.namespace=pki"},
		"with what is new, and callers": {
			"--set=callers.clientCA.configMap=tollgate-callers",
			"--set=config.webhook.authentication.clientCA.commonNames={a}",
		},
	}
	for name, set := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, template(t, append([]string{"--values=" + file}, set...)...), templateOf(t, older, set...))
		})
	}
	t.Run("and with none of what is new", func(t *testing.T) {
		require.Equal(t, template(t), template(t, "--set=callers=null,certificates.certManager=null"))
		require.Equal(t, template(t), template(t, "--set=callers.clientCA=null,certificates.certManager.cainjector=null"))
	})
}

func TestTheNamespaceOfTheReleaseIsEverywhere(t *testing.T) {
	for _, mode := range []string{"SelfSigned", "CertManager"} {
		out, err := helm(t, "template", "tollgate", chart(), "--namespace=taints", "--set=certificates.mode="+mode)
		require.NoError(t, err)
		require.NotContains(t, string(out), "tollgate-system")
		all := parse(t, out)
		for id, object := range all {
			if namespace := object.GetNamespace(); namespace != "" && namespace != "kube-system" {
				require.Equal(t, "taints", namespace, id)
			}
		}
		config := as[corev1.ConfigMap](t, all, "ConfigMap taints/tollgate-config")
		require.Equal(t, "taints", configOf(t, config).Namespace)
		if mode == "CertManager" {
			webhooks := as[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration /tollgate")
			require.Contains(t, webhooks.Webhooks[0].NamespaceSelector.MatchExpressions[0].Values, "taints")
			require.Equal(t, "taints", webhooks.Webhooks[0].ClientConfig.Service.Namespace)
		}
	}
}

func TestTheReleaseHasANamespaceOfItsOwn(t *testing.T) {
	for _, namespace := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		_, err := helm(t, "template", "tollgate", chart(), "--namespace", namespace)
		require.ErrorContains(t, err, "namespace "+namespace+": Tollgate needs one of its own")
	}
}

func TestValuesChangeWhatTheyAreNamedFor(t *testing.T) {
	all := template(t, "--set=image.repository=registry.example.com/t,image.digest=sha256:"+strings.Repeat("a", 64),
		"--set=mode=Window,config.eviction.workers=7,config.featureGates.GatePolicies=false",
		"--set=webhooks.failurePolicy=Ignore,webhooks.excludedNamespaces={storage},podAnnotations.a=b,podLabels.c=d",
		"--set=networkPolicy.apiServer.cidrs={10.0.0.0/28},networkPolicy.apiServer.ports={6443}",
		"--set=protection.install=false,resourceQuota.install=false,crds.keep=false,imagePullSecrets[0].name=registry")

	deployment := as[appsv1.Deployment](t, all, "Deployment tollgate-system/tollgate")
	pod := deployment.Spec.Template
	require.Equal(t, "registry.example.com/t@sha256:"+strings.Repeat("a", 64), pod.Spec.Containers[0].Image)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.Spec.ImagePullSecrets)
	require.Equal(t, "b", pod.Annotations["a"])
	require.Equal(t, map[string]string{
		"app.kubernetes.io/name": "tollgate", "app.kubernetes.io/part-of": "tollgate", "c": "d",
		"app.kubernetes.io/instance": "tollgate", "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "v0.1.0",
	}, pod.Labels)

	config := configOf(t, as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config"))
	require.Equal(t, configv1alpha1.EvictionWindow, config.Eviction.Mode)
	require.Equal(t, 7, config.Eviction.Workers)
	require.Equal(t, map[string]bool{"GatePolicies": false}, config.FeatureGates)
	require.Equal(t, configv1alpha1.RegistrationManaged, config.Webhook.Registration)
	require.Equal(t, configv1alpha1.FailurePolicyIgnore, config.Webhook.FailurePolicy)
	require.Equal(t, []string{"storage"}, config.Webhook.ExcludedNamespaces)

	for id, object := range all {
		require.NotContains(t, id, "ValidatingAdmissionPolicy")
		require.NotContains(t, id, "ResourceQuota")
		require.NotContains(t, object.GetAnnotations(), "helm.sh/resource-policy")
	}

	all = template(t, "--set=webhooks.registration=Manual,webhooks.failurePolicy=Ignore,webhooks.excludedNamespaces={storage}")
	webhooks := as[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration /tollgate")
	require.Equal(t, admissionregistrationv1.Ignore, *webhooks.Webhooks[0].FailurePolicy)
	require.Equal(t, []string{"kube-system", "tollgate-system", "storage"}, webhooks.Webhooks[0].NamespaceSelector.MatchExpressions[0].Values)
}

func TestADefinitionIsKeptUnlessSaidOtherwise(t *testing.T) {
	all := template(t)
	kept := 0
	for _, object := range all {
		if object.GetKind() == "CustomResourceDefinition" {
			require.Equal(t, "keep", object.GetAnnotations()["helm.sh/resource-policy"])
			kept++
		}
	}
	require.Equal(t, 7, kept)
}

func TestPodsAreReplacedWhenTheirConfigurationChanges(t *testing.T) {
	checksum := func(chart string, values ...string) string {
		return deploymentOf(t, templateOf(t, chart, values...)).Spec.Template.Annotations["checksum/config"]
	}
	require.NotEmpty(t, checksum(chart()))
	for _, set := range []string{"mode=Window", "config.eviction.workers=7", "monitoring.metrics=true"} {
		require.NotEqual(t, checksum(chart()), checksum(chart(), "--set="+set), set)
	}
	for folder, mode := range map[string]string{"self-signed": "SelfSigned", "cert-manager": "CertManager"} {
		file, set := filepath.Join("files", folder, "configmap.yaml"), "--set=certificates.mode="+mode
		text, err := os.ReadFile(filepath.Join(chart(), file))
		require.NoError(t, err)
		another := chartWith(t, file, strings.ReplaceAll(string(text), ":8081", ":8082"))
		require.NotEqual(t, checksum(chart(), set), checksum(another, set), "what the chart itself says, with "+mode)
	}
}

// configOf reads the files of the ConfigMap as Tollgate does.
func configOf(t *testing.T, files *corev1.ConfigMap) *configv1alpha1.TollgateConfiguration {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files.Data {
		writeFile(t, folder, name, text)
	}
	config, err := configv1alpha1.LoadPath(folder)
	require.NoError(t, err)
	return config
}

func TestTollgateUnderstandsTheConfigurationOfEachOverlay(t *testing.T) {
	modes := map[string]configv1alpha1.EvictionMode{"window": configv1alpha1.EvictionWindow, "observe": configv1alpha1.EvictionObserve}
	for name := range overlays {
		t.Run(name, func(t *testing.T) {
			all := normalized(kustomize(t, overlay(name)))
			config := configOf(t, as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config"))
			want := configv1alpha1.EvictionReplace
			if mode, ok := modes[name]; ok {
				want = mode
			}
			require.Equal(t, want, config.Eviction.Mode)
			wantRegistration := configv1alpha1.RegistrationManaged
			if name == "manual" || name == "issued-by-cert-manager" {
				wantRegistration = configv1alpha1.RegistrationManual
			}
			require.Equal(t, wantRegistration, config.Webhook.Registration)
			require.Equal(t, "tollgate-system", config.Namespace)
			require.Equal(t, ":8081", config.Health.BindAddress)
			wantCertificates := configv1alpha1.CertificatesSecret
			if name == "issued-by-cert-manager" {
				wantCertificates = configv1alpha1.CertificatesFiles
			}
			require.Equal(t, wantCertificates, config.Certificates.Mode)
		})
	}
}

// One version: the chart, its app, and the image of the manifests.
func TestTheVersionIsTheSameEverywhere(t *testing.T) {
	out, err := helm(t, "show", "chart", chart())
	require.NoError(t, err)
	var meta struct{ Version, AppVersion string }
	require.NoError(t, yaml.Unmarshal(out, &meta))
	require.Equal(t, "v"+meta.Version, meta.AppVersion)
	deployment := as[appsv1.Deployment](t, kustomize(t, overlay("self-signed")), "Deployment tollgate-system/tollgate")
	require.Equal(t, "ghcr.io/tollgate-dev/tollgate:"+meta.AppVersion, deployment.Spec.Template.Spec.Containers[0].Image)
}
