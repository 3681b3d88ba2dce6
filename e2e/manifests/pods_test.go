package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func deploymentOf(t *testing.T, all objects) *appsv1.Deployment {
	t.Helper()
	return as[appsv1.Deployment](t, all, "Deployment tollgate-system/tollgate")
}

// deploymentsOf are the Deployment of the webhook and, if it is another, that of the evictor.
func deploymentsOf(t *testing.T, all objects) []*appsv1.Deployment {
	t.Helper()
	found := []*appsv1.Deployment{deploymentOf(t, all)}
	const apart = "Deployment tollgate-system/tollgate-evictor"
	if all[apart] != nil {
		found = append(found, as[appsv1.Deployment](t, all, apart))
	}
	return found
}

func TestL08PodsHaveNoMoreRightsThanTheyNeed(t *testing.T) {
	for name := range overlays {
		for _, deployment := range deploymentsOf(t, kustomize(t, overlay(name))) {
			t.Run(name+", "+deployment.Name, func(t *testing.T) {
				pod := deployment.Spec.Template.Spec
				require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
				require.True(t, *pod.SecurityContext.RunAsNonRoot)
				require.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser)
				require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
				require.Len(t, pod.Containers, 1)
				container := pod.Containers[0]
				require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
				require.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
				require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
				require.Empty(t, container.SecurityContext.Capabilities.Add)
				for _, mount := range container.VolumeMounts {
					require.True(t, mount.ReadOnly, mount.Name)
				}
				for _, volume := range pod.Volumes {
					require.Nil(t, volume.HostPath, volume.Name)
				}
			})
		}
	}
}

// The Service is the webhook's, which cannot delete a pod, and each Deployment has its pods to
// itself.
func TestF09ComponentsApartShareNothing(t *testing.T) {
	all := kustomize(t, overlay("high-availability"))
	deployments := deploymentsOf(t, all)
	require.Len(t, deployments, 2)
	webhook, evictor := deployments[0], deployments[1]
	require.Equal(t, "tollgate-webhook", webhook.Spec.Template.Spec.ServiceAccountName)
	require.Contains(t, webhook.Spec.Template.Spec.Containers[0].Args, "--components=webhook")
	require.Contains(t, webhook.Spec.Template.Spec.Containers[0].Args, "--evictor-user=system:serviceaccount:tollgate-system:tollgate")
	require.Equal(t, "tollgate", evictor.Spec.Template.Spec.ServiceAccountName)
	require.Contains(t, evictor.Spec.Template.Spec.Containers[0].Args, "--components=evictor")
	require.Equal(t, webhook.Spec.Template.Spec.Containers[0].Image, evictor.Spec.Template.Spec.Containers[0].Image)
	for _, selector := range []map[string]string{
		webhook.Spec.Selector.MatchLabels,
		as[corev1.Service](t, all, "Service tollgate-system/tollgate").Spec.Selector,
		as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget tollgate-system/tollgate").Spec.Selector.MatchLabels,
		as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy tollgate-system/tollgate").Spec.PodSelector.MatchLabels,
	} {
		require.True(t, labels.SelectorFromSet(selector).Matches(labels.Set(webhook.Spec.Template.Labels)), selector)
		require.False(t, labels.SelectorFromSet(selector).Matches(labels.Set(evictor.Spec.Template.Labels)), selector)
	}
	for _, selector := range []map[string]string{
		evictor.Spec.Selector.MatchLabels,
		evictor.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
		as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget tollgate-system/tollgate-evictor").Spec.Selector.MatchLabels,
		as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy tollgate-system/tollgate-evictor").Spec.PodSelector.MatchLabels,
	} {
		require.True(t, labels.SelectorFromSet(selector).Matches(labels.Set(evictor.Spec.Template.Labels)), selector)
		require.False(t, labels.SelectorFromSet(selector).Matches(labels.Set(webhook.Spec.Template.Labels)), selector)
	}
	require.Empty(t, as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy tollgate-system/tollgate-evictor").Spec.Ingress, "nobody calls the evictor")
}

func TestReplicasEndAndStartWithoutAReviewThatFails(t *testing.T) {
	for name := range overlays {
		t.Run(name, func(t *testing.T) {
			all := normalized(kustomize(t, overlay(name)))
			deployment := deploymentOf(t, all)
			config := configOf(t, as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config"))
			require.GreaterOrEqual(t, *deployment.Spec.Replicas, int32(2))
			require.Zero(t, deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
			// What the program waits for at most when it is told to end: cmd/tollgate/internal/app/run.go.
			const shutdown = 30
			grace := *deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
			require.Greater(t, grace, int64(config.Webhook.DrainPeriod.Seconds())+shutdown)
			budget := as[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget tollgate-system/tollgate")
			require.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
			require.Equal(t, deployment.Spec.Selector, budget.Spec.Selector)
		})
	}
}

func TestResourcesAreAskedForAndTheCPUIsNotThrottled(t *testing.T) {
	container := deploymentOf(t, kustomize(t, overlay("self-signed"))).Spec.Template.Spec.Containers[0]
	require.False(t, container.Resources.Requests.Cpu().IsZero())
	require.False(t, container.Resources.Requests.Memory().IsZero())
	require.False(t, container.Resources.Limits.Memory().IsZero())
	require.True(t, container.Resources.Limits.Cpu().IsZero())
	at := slices.IndexFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	require.Equal(t, "$(MEMORY_LIMIT_MI)000000B", container.Env[at].Value)
	require.Equal(t, "MEMORY_LIMIT_MI", container.Env[at-1].Name, "what is referred to comes first")
}

// In a rollout all replicas run, one starts, and as many that were replaced may not be gone.
func TestTheQuotaIsEnoughForARolloutOfAllReplicas(t *testing.T) {
	for _, components := range []string{"Together", "Apart"} {
		for _, replicas := range []int64{1, 2, 9, 10, 40} {
			all := template(t, "--set=components="+components+",replicas="+strconv.FormatInt(replicas, 10))
			needed := int64(0)
			for _, deployment := range deploymentsOf(t, all) {
				needed += 2*int64(*deployment.Spec.Replicas) + int64(deployment.Spec.Strategy.RollingUpdate.MaxSurge.IntValue())
			}
			quota := as[corev1.ResourceQuota](t, all, "ResourceQuota tollgate-system/tollgate-critical-pods")
			require.GreaterOrEqual(t, quota.Spec.Hard.Pods().Value(), needed, "with %d replicas, %s", replicas, components)
		}
	}
}

func TestPortsOfThePodAreThoseOfTheConfiguration(t *testing.T) {
	all := normalized(kustomize(t, overlay("self-signed")))
	config := configOf(t, as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config"))
	ports := map[string]string{}
	for _, port := range deploymentOf(t, all).Spec.Template.Spec.Containers[0].Ports {
		ports[port.Name] = fmtPort(port.ContainerPort)
	}
	require.Equal(t, config.Webhook.BindAddress, ports["webhook"])
	require.Equal(t, config.Health.BindAddress, ports["health"])
	service := as[corev1.Service](t, all, "Service tollgate-system/tollgate")
	require.Equal(t, ports["webhook"], fmtPort(service.Spec.Ports[0].TargetPort.IntVal))
	require.Equal(t, service.Spec.Selector, deploymentOf(t, all).Spec.Selector.MatchLabels)
	require.Equal(t, config.Certificates.ServiceName, service.Name)
	webhooks := as[admissionregistrationv1.MutatingWebhookConfiguration](t, kustomize(t, overlay("manual")), "MutatingWebhookConfiguration /tollgate")
	require.Equal(t, service.Name, webhooks.Webhooks[0].ClientConfig.Service.Name)
}

// Nothing else goes in, and nothing goes out but to what may be an API server.
func TestF11TheNetworkIsClosedButForTheAPIServer(t *testing.T) {
	policies := []objects{kustomize(t, overlay("self-signed")), template(t, "--set=networkPolicy.apiServer.cidrs={10.0.0.0/28,10.1.0.0/28}")}
	for i, all := range policies {
		policy := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy tollgate-system/tollgate")
		require.Equal(t, deploymentOf(t, all).Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels)
		require.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
		require.Len(t, policy.Spec.Ingress, 1)
		require.Equal(t, []string{"9443"}, portsOf(policy.Spec.Ingress[0].Ports))
		require.Len(t, policy.Spec.Egress, 1)
		require.Equal(t, []string{"443", "6443", "8443", "16443"}, portsOf(policy.Spec.Egress[0].Ports))
		if i == 0 {
			continue // kustomize cannot know the addresses
		}
		want := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/28"}}, {IPBlock: &networkingv1.IPBlock{CIDR: "10.1.0.0/28"}}}
		require.Equal(t, want, policy.Spec.Ingress[0].From)
		require.Equal(t, want, policy.Spec.Egress[0].To)
	}
}

func portsOf(ports []networkingv1.NetworkPolicyPort) []string {
	var result []string
	for _, port := range ports {
		result = append(result, port.Port.String())
	}
	return result
}

func writeFile(t *testing.T, folder, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
}

// fmtPort writes a port as an address on all interfaces.
func fmtPort(port int32) string { return fmt.Sprintf(":%d", port) }
