package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// dryRun has the API server judge the objects as if they were applied, unknown fields
// included. It leaves out those for programs that are not there: cert-manager and the
// Prometheus operator.
func dryRun(t *testing.T, all objects) {
	t.Helper()
	require.NotContains(t, dryRunOutput(t, all), "Warning")
}

// dryRunOutput is what kubectl prints, warnings of the API server included.
func dryRunOutput(t *testing.T, all objects) string {
	t.Helper()
	var text strings.Builder
	for _, object := range all {
		if group := object.GroupVersionKind().Group; group == "cert-manager.io" || group == "monitoring.coreos.com" {
			continue
		}
		part, err := yaml.Marshal(object.Object)
		require.NoError(t, err)
		text.WriteString("---\n" + string(part))
	}
	file := filepath.Join(t.TempDir(), "all.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	out, err := install.Kubectl(t.Context(), shared, "apply", "--dry-run=server", "--validate=strict", "-f", file)
	require.NoError(t, err, "%s", out)
	return string(out)
}

func TestTheAPIServerAcceptsEveryOverlay(t *testing.T) {
	for name := range overlays {
		t.Run(name, func(t *testing.T) { dryRun(t, kustomize(t, overlay(name))) })
	}
	t.Run("outside", func(t *testing.T) { dryRun(t, kustomize(t, overlay("outside"))) })
}

// With other values it is the same as the overlays.
func TestTheAPIServerAcceptsTheChartWithAllThatValuesCanChange(t *testing.T) {
	dryRun(t, template(t, "--set=webhooks.excludedNamespaces={storage},networkPolicy.apiServer.cidrs={10.0.0.0/28}",
		"--set=podDisruptionBudget.maxUnavailable=50%,image.pullPolicy=Always,imagePullSecrets[0].name=a,config.eviction.workers=7",
		"--set=monitoring.metrics=true,monitoring.monitor=ServiceMonitor,monitoring.rules=true,monitoring.dashboard=true",
		"--set=monitoring.monitorLabels.release=stack,monitoring.ruleLabels.release=stack,monitoring.interval=15s",
		"--set=ports.webhook=10260,ports.health=10261,ports.metrics=10262,rollingUpdate.maxSurge=0,rollingUpdate.maxUnavailable=1",
		"--set=components=Apart,commonLabels.team=platform,serviceAccount.name=gate,serviceAccount.annotations.role=evicts",
		"--set=log.level=debug,log.format=text,extraArgs={--kubeconfig=/etc/extra/kubeconfig}",
		"--set=extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://proxy.example.com:3128,extraEnvFrom[0].secretRef.name=settings",
		"--set=extraVolumes[0].name=extra,extraVolumes[0].secret.secretName=extra",
		"--set=extraVolumeMounts[0].name=extra,extraVolumeMounts[0].mountPath=/etc/extra",
		"--set=topologySpreadConstraints[0].maxSkew=1,topologySpreadConstraints[0].topologyKey=rack,topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway"))
}

// The namespace of the test admits restricted pods only.
func TestTheAPIServerWarnsOfTheNetworkOfTheNodesAndOfNothingElse(t *testing.T) {
	out := dryRunOutput(t, template(t, "--set=hostNetwork=true,monitoring.metrics=true"))
	require.Equal(t, 1, strings.Count(out, "Warning"), out)
	require.Contains(t, out, `would violate PodSecurity "restricted:latest": host namespaces (hostNetwork=true)`+"\n")
}

// The webhooks of the overlay call Tollgate, of which no replica runs.
func TestTheTestOfAReleaseFailsWhereNobodyAnswers(t *testing.T) {
	out, err := helm(t, "template", "tollgate", chart(), "--namespace=tollgate-system", "--show-only=templates/tests/policy.yaml")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, out, 0o600))
	out, err = install.Kubectl(t.Context(), shared, "create", "--dry-run=server", "-f", file)
	require.Error(t, err)
	require.Contains(t, string(out), `failed calling webhook "validate.tollgate.dev"`)
}

// The namespace admits restricted pods only, and the controllers of Kubernetes make these.
func TestL08RestrictedPodsRunOnNodesOfTheirOwn(t *testing.T) {
	client := clientOf(t, shared.RESTConfig())
	pods := client.CoreV1().Pods("tollgate-system")
	require.Eventually(t, func() bool {
		list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=tollgate"})
		nodes := map[string]bool{}
		for i := range list.Items {
			nodes[list.Items[i].Spec.NodeName] = true
		}
		delete(nodes, "")
		return err == nil && len(list.Items) == 2 && len(nodes) == 2
	}, patience, 200*time.Millisecond)

	pod := podIn("tollgate-system")
	pod.Spec.HostNetwork = true
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.ErrorContains(t, err, "violates PodSecurity")
}

func podIn(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: namespace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
}

// What deploy/README.md says of webhooks that are installed as a whole, until Tollgate answers, which it
// never does here.
func TestUntilTollgateAnswersPodsElsewhereAreRefused(t *testing.T) {
	client := clientOf(t, shared.RESTConfig())
	create := func(namespace string) error {
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), podIn(namespace), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually(t, patience, func() error {
		// At first the API server may know neither the webhooks nor the account of pods.
		if err := create("default"); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("no webhook is asked: %w", err)
		}
		if err := create("tollgate-system"); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
			return fmt.Errorf("in the namespace of Tollgate, which is not asked: %w", err)
		}
		return create("kube-system")
	})

	_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "registers"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
}

func TestTheWebhooksCanBeAppliedLastAndDeletedFirst(t *testing.T) {
	const webhooks = "webhookconfiguration.admissionregistration.k8s.io/tollgate"
	all := kustomize(t, overlay(installed))
	out, err := install.Kubectl(t.Context(), shared, "apply", "--dry-run=server", "-k", overlay(installed), "-l", "app.kubernetes.io/component!=webhooks")
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), webhooks)
	require.Len(t, strings.Split(strings.TrimSpace(string(out)), "\n"), len(all)-2, "%s", out)

	out, err = install.Kubectl(t.Context(), shared, "delete", "--dry-run=server", "-k", overlay(installed), "-l", "app.kubernetes.io/component=webhooks")
	require.NoError(t, err, "%s", out)
	require.Equal(t, 2, strings.Count(string(out), "deleted"), "%s", out)
	require.Contains(t, string(out), "validatingwebhookconfiguration")
	require.Contains(t, string(out), "mutatingwebhookconfiguration")
}

func TestAllButTheDefinitionsCanBeAppliedAndDeleted(t *testing.T) {
	const selector, definition = "app.kubernetes.io/component!=definitions", "customresourcedefinition"
	rest := 0
	for _, object := range kustomize(t, overlay(installed)) {
		if object.GetKind() != "CustomResourceDefinition" {
			rest++
		}
	}
	for _, args := range [][]string{{"apply"}, {"delete", "--ignore-not-found"}} {
		out, err := install.Kubectl(t.Context(), shared, append(args, "--dry-run=server", "-k", overlay(installed), "-l", selector)...)
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), definition)
		require.Len(t, strings.Split(strings.TrimSpace(string(out)), "\n"), rest, "%s", out)
	}
}

// What docs/upgrade.md says of definitions that kubectl has left there.
func TestHelmTakesOverWhatKubectlInstalledIfItIsTold(t *testing.T) {
	args := []string{"install", "tollgate", chart(), "--namespace=tollgate-system", "--dry-run=server", "--kubeconfig=" + shared.Kubeconfig()}
	_, err := helm(t, args...)
	require.ErrorContains(t, err, "invalid ownership metadata")
	_, err = helm(t, append(args, "--take-ownership")...)
	require.NoError(t, err)
}

func TestEveryObjectIsLabelledAsTollgates(t *testing.T) {
	for id, object := range template(t, "--set=certificates.mode=SelfSigned") {
		require.Equal(t, "tollgate", object.GetLabels()["app.kubernetes.io/name"], id)
	}
}
