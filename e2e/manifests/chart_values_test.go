package manifests

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEveryObjectOfTheChartHasTheStandardLabels(t *testing.T) {
	all := template(t, "--set=components=Apart,commonLabels.team=platform",
		"--set=monitoring.metrics=true,monitoring.monitor=ServiceMonitor,monitoring.rules=true,monitoring.dashboard=true")
	for id, object := range all {
		labels := object.GetLabels()
		require.Equal(t, "tollgate", labels["app.kubernetes.io/name"], id)
		require.Equal(t, "tollgate", labels["app.kubernetes.io/instance"], id)
		require.Equal(t, "v0.1.0", labels["app.kubernetes.io/version"], id)
		require.Equal(t, "Helm", labels["app.kubernetes.io/managed-by"], id)
		require.Equal(t, "tollgate-0.1.0", labels["helm.sh/chart"], id)
		require.Equal(t, "platform", labels["team"], id)
	}
	for _, name := range []string{"tollgate", "tollgate-evictor"} {
		deployment := as[appsv1.Deployment](t, all, "Deployment tollgate-system/"+name)
		require.Equal(t, map[string]string{"app.kubernetes.io/name": name}, deployment.Spec.Selector.MatchLabels, "a selector cannot change")
		labels := deployment.Spec.Template.Labels
		require.Equal(t, name, labels["app.kubernetes.io/name"])
		require.Equal(t, "platform", labels["team"])
		require.NotContains(t, labels, "helm.sh/chart", "a new chart alone replaces no pod")
	}
}

func TestWebhooksAreAnsweredInTheNetworkOfTheNodes(t *testing.T) {
	all := template(t, "--set=hostNetwork=true,components=Apart,ports.webhook=10260,ports.health=10261,ports.metrics=10262",
		"--set=monitoring.metrics=true,monitoring.monitor=ServiceMonitor")
	pod := as[appsv1.Deployment](t, all, "Deployment tollgate-system/tollgate").Spec.Template.Spec
	require.True(t, pod.HostNetwork)
	require.Equal(t, corev1.DNSClusterFirstWithHostNet, pod.DNSPolicy)
	require.Equal(t, []corev1.ContainerPort{
		{Name: "webhook", ContainerPort: 10260, Protocol: corev1.ProtocolTCP},
		{Name: "health", ContainerPort: 10261, Protocol: corev1.ProtocolTCP},
		{Name: "metrics", ContainerPort: 10262, Protocol: corev1.ProtocolTCP},
	}, pod.Containers[0].Ports)
	evictor := as[appsv1.Deployment](t, all, "Deployment tollgate-system/tollgate-evictor").Spec.Template.Spec
	require.False(t, evictor.HostNetwork, "nobody calls the evictor")
	require.Empty(t, evictor.DNSPolicy)

	config := configOf(t, as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config"))
	require.Equal(t, ":10260", config.Webhook.BindAddress)
	require.Equal(t, ":10261", config.Health.BindAddress)
	require.Equal(t, ":10262", config.Metrics.BindAddress)

	service := as[corev1.Service](t, all, "Service tollgate-system/tollgate")
	require.Equal(t, int32(443), service.Spec.Ports[0].Port)
	require.Equal(t, int32(10260), service.Spec.Ports[0].TargetPort.IntVal)
	require.Equal(t, int32(10262), as[corev1.Service](t, all, "Service tollgate-system/tollgate-metrics").Spec.Ports[0].TargetPort.IntVal)

	policy := as[networkingv1.NetworkPolicy](t, all, "NetworkPolicy tollgate-system/tollgate")
	var open []int32
	for _, rule := range policy.Spec.Ingress {
		open = append(open, rule.Ports[0].Port.IntVal)
	}
	require.Equal(t, []int32{10260, 10262}, open)
}

// Where each node has a replica already, no other fits beside it.
func TestARolloutNeedsNoFurtherNodeIfItIsToldSo(t *testing.T) {
	all := template(t, "--set=components=Apart,rollingUpdate.maxSurge=0,rollingUpdate.maxUnavailable=1")
	for _, name := range []string{"tollgate", "tollgate-evictor"} {
		rollout := as[appsv1.Deployment](t, all, "Deployment tollgate-system/"+name).Spec.Strategy.RollingUpdate
		require.Equal(t, int32(0), rollout.MaxSurge.IntVal)
		require.Equal(t, int32(1), rollout.MaxUnavailable.IntVal)
	}
}

func TestASpreadConstraintSelectsThePodsOfItsDeploymentOrWhatItSays(t *testing.T) {
	const constraint = `{"maxSkew":1,"topologyKey":"rack","whenUnsatisfiable":"ScheduleAnyway"`
	all := template(t, "--set=components=Apart",
		"--set-json=topologySpreadConstraints=["+constraint+`},`+constraint+`,"labelSelector":{"matchLabels":{"team":"platform"}}}]`)
	for _, name := range []string{"tollgate", "tollgate-evictor"} {
		constraints := as[appsv1.Deployment](t, all, "Deployment tollgate-system/"+name).Spec.Template.Spec.TopologySpreadConstraints
		require.Equal(t, map[string]string{"app.kubernetes.io/name": name}, constraints[1].LabelSelector.MatchLabels)
		require.Equal(t, map[string]string{"team": "platform"}, constraints[2].LabelSelector.MatchLabels)
	}
}

func TestMetricsThatAreNotServedStayOnLoopbackOnAnyPort(t *testing.T) {
	all := template(t, "--set=ports.metrics=10262")
	config := configOf(t, as[corev1.ConfigMap](t, all, "ConfigMap tollgate-system/tollgate-config"))
	require.Equal(t, "127.0.0.1:10262", config.Metrics.BindAddress)
	require.Equal(t, ":9443", config.Webhook.BindAddress)
}

func TestValuesOfPodsAreInThePodsOfBothComponents(t *testing.T) {
	all := template(t, "--set=components=Apart,log.level=debug,log.format=text,extraArgs={--kubeconfig=/etc/extra/kubeconfig}",
		"--set=extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://proxy.example.com:3128",
		"--set=extraEnvFrom[0].secretRef.name=settings,dnsPolicy=Default,priorityClassName=platform",
		"--set=extraVolumes[0].name=extra,extraVolumes[0].secret.secretName=extra",
		"--set=extraVolumeMounts[0].name=extra,extraVolumeMounts[0].mountPath=/etc/extra",
		"--set=nodeSelector.pool=system,tolerations[0].key=pool,tolerations[0].operator=Exists",
		"--set-json=affinity={\"nodeAffinity\":{\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{\"matchExpressions\":[{\"key\":\"pool\",\"operator\":\"Exists\"}]}]}}}",
		"--set=topologySpreadConstraints[0].maxSkew=1,topologySpreadConstraints[0].topologyKey=rack,topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway")
	for _, name := range []string{"tollgate", "tollgate-evictor"} {
		pod := as[appsv1.Deployment](t, all, "Deployment tollgate-system/"+name).Spec.Template.Spec
		container := pod.Containers[0]
		require.Subset(t, container.Args, []string{"serve", "--verbose", "--log-format=text", "--kubeconfig=/etc/extra/kubeconfig"})
		require.Equal(t, "serve", container.Args[0])
		require.Contains(t, container.Env, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy.example.com:3128"})
		require.Equal(t, "GOMEMLIMIT", container.Env[1].Name, "what the manifests set stays")
		require.Equal(t, "settings", container.EnvFrom[0].SecretRef.Name)
		require.Equal(t, corev1.DNSDefault, pod.DNSPolicy)
		require.Equal(t, "platform", pod.PriorityClassName)
		require.Equal(t, "extra", pod.Volumes[len(pod.Volumes)-1].Secret.SecretName)
		require.Contains(t, container.VolumeMounts, corev1.VolumeMount{Name: "extra", MountPath: "/etc/extra"})
		require.Equal(t, "system", pod.NodeSelector["pool"])
		require.Equal(t, []corev1.Toleration{{Key: "pool", Operator: corev1.TolerationOpExists}}, pod.Tolerations)
		require.NotNil(t, pod.Affinity.NodeAffinity)
		require.NotNil(t, pod.Affinity.PodAntiAffinity, "the affinity for zones stays")
		require.Len(t, pod.TopologySpreadConstraints, 2)
		require.Equal(t, "rack", pod.TopologySpreadConstraints[1].TopologyKey)
		require.Equal(t, &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name}}, pod.TopologySpreadConstraints[1].LabelSelector)
	}
}

func TestAnotherServiceAccountIsNamedEverywhere(t *testing.T) {
	all := template(t, "--set=components=Apart,serviceAccount.name=gate,serviceAccount.annotations.role=evicts,monitoring.metrics=true")
	require.NotContains(t, all, "ServiceAccount tollgate-system/tollgate")
	for _, name := range []string{"gate", "gate-webhook"} {
		require.Equal(t, map[string]string{"role": "evicts"}, all["ServiceAccount tollgate-system/"+name].GetAnnotations())
	}
	require.Equal(t, "gate", as[appsv1.Deployment](t, all, "Deployment tollgate-system/tollgate-evictor").Spec.Template.Spec.ServiceAccountName)
	webhook := as[appsv1.Deployment](t, all, "Deployment tollgate-system/tollgate").Spec.Template.Spec
	require.Equal(t, "gate-webhook", webhook.ServiceAccountName)
	require.Contains(t, webhook.Containers[0].Args, "--evictor-user=system:serviceaccount:tollgate-system:gate")

	known := map[string]bool{"gate": true, "gate-webhook": true, "tollgate-scraper": true}
	subjects := 0
	for id, object := range all {
		for _, text := range texts(object.Object) {
			require.NotContains(t, text, "system:serviceaccount:tollgate-system:tollgate", id)
		}
		switch object.GetKind() {
		case "RoleBinding", "ClusterRoleBinding":
			for _, subject := range as[rbacv1.ClusterRoleBinding](t, all, id).Subjects {
				if subject.Kind == rbacv1.ServiceAccountKind {
					require.True(t, known[subject.Name], "%s has %s", id, subject.Name)
					subjects++
				}
			}
		case "FlowSchema":
			for _, rule := range as[flowcontrolv1.FlowSchema](t, all, id).Spec.Rules {
				for _, subject := range rule.Subjects {
					if subject.ServiceAccount != nil {
						require.True(t, known[subject.ServiceAccount.Name], "%s has %s", id, subject.ServiceAccount.Name)
						subjects++
					}
				}
			}
		}
	}
	require.Greater(t, subjects, 10)

	all = template(t, "--set=serviceAccount.create=false,serviceAccount.name=gate")
	for id := range all {
		require.NotContains(t, id, "ServiceAccount ")
	}
	require.Equal(t, "gate", deploymentOf(t, all).Spec.Template.Spec.ServiceAccountName)
}

func TestMonitorsHaveTheLabelsByWhichAPrometheusSelectsThem(t *testing.T) {
	for _, kind := range []string{"ServiceMonitor", "PodMonitor"} {
		all := template(t, "--set=monitoring.metrics=true,monitoring.rules=true,monitoring.dashboard=true,monitoring.monitor="+kind,
			"--set=monitoring.monitorLabels.release=stack,monitoring.ruleLabels.role=alerts,monitoring.interval=15s",
			"--set=monitoring.dashboardLabels.grafana_dashboard=yes,monitoring.dashboardAnnotations.folder=Platform")
		monitor := all[kind+" tollgate-system/tollgate"]
		require.Equal(t, "stack", monitor.GetLabels()["release"])
		require.Contains(t, texts(monitor.Object), "15s")
		require.NotContains(t, texts(monitor.Object), "30s")
		require.Equal(t, "alerts", all["PrometheusRule tollgate-system/tollgate"].GetLabels()["role"])
		dashboard := all["ConfigMap tollgate-system/tollgate-dashboard"]
		require.Equal(t, "yes", dashboard.GetLabels()["grafana_dashboard"])
		require.Equal(t, "Platform", dashboard.GetAnnotations()["folder"])
	}
}

func TestWebhookConfigurationsHaveTheAnnotationsOfAProvider(t *testing.T) {
	for _, registration := range []string{"Managed", "Manual"} {
		all := template(t, "--set=webhooks.registration="+registration, `--set-string=webhooks.annotations.admissions\.enforcer/disabled=true`)
		for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
			require.Equal(t, "true", all[kind+" /tollgate"].GetAnnotations()["admissions.enforcer/disabled"])
		}
		if registration == "Managed" {
			require.Equal(t, "Managed", all["ValidatingWebhookConfiguration /tollgate"].GetAnnotations()["tollgate.dev/registration"])
		}
	}
}

func TestTheDefinitionsCanBeLeftOut(t *testing.T) {
	for id := range template(t, "--set=crds.install=false") {
		require.NotContains(t, id, "CustomResourceDefinition")
	}
}

// helm test creates a policy, about which the API server asks Tollgate.
func TestTheTestOfAReleaseIsAPolicyThatSelectsNothing(t *testing.T) {
	render := func(set string) objects {
		out, err := helm(t, "template", "tollgate", chart(), "--namespace=tollgate-system", "--set="+set)
		require.NoError(t, err)
		return parse(t, out)
	}
	const id = "EvictionPolicy /tollgate-helm-test"
	policy := render("")[id]
	require.NotNil(t, policy)
	require.Equal(t, "test", policy.GetAnnotations()["helm.sh/hook"])
	require.Contains(t, texts(policy.Object), "helm-test.tollgate.dev/no-node-has-it")
	require.NotContains(t, render("webhooks.install=false"), id, "nobody would be asked")
}
