package handlers

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/tollgate-dev/tollgate/policy"
)

// wantingGPUs returns a pod that requests so much of example.com/gpu, and tolerates the
// taint that the plugin makes it tolerate.
func wantingGPUs(quantity, more string) string {
	return fmt.Sprintf(`{"spec":{%s"containers":[{"resources":{"requests":{"cpu":"1","example.com/gpu":%s}}}],
		"tolerations":[{"key":"example.com/gpu","operator":"Exists","effect":"NoSchedule"}]}}`, more, quantity)
}

func TestTP16ToRequestNothingBringsNothing(t *testing.T) {
	config := testConfig()
	config.Policies = fixedPolicies{guarding(t, "*")}
	config.ExtendedResourceToleration = true
	for quantity, want := range map[string]bool{
		`"1"`: true, `1`: true, `"2k"`: true, `"0"`: false, `0`: false, `"0.0"`: false, `"0Gi"`: false, `"-1"`: false, `null`: false,
	} {
		response := judgePod(t, config, asked(t, "pods", "", named("mallory"), wantingGPUs(quantity, ""), nil))
		require.Equal(t, want, response.Allowed, quantity)
	}
	two := `{"spec":{"containers":[{"resources":{"requests":{"example.com/gpu":"0"}}}],"initContainers":[{"resources":{"requests":{"example.com/gpu":"1"}}}],
		"tolerations":[{"key":"example.com/gpu","operator":"Exists","effect":"NoSchedule"}]}}`
	require.True(t, judgePod(t, config, asked(t, "pods", "", named("mallory"), two, nil)).Allowed, "another container requests some")

	err := judgeFault(t, config, asked(t, "pods", "", named("mallory"), wantingGPUs(`"many"`, ""), nil))
	var bad *badReviewError
	require.ErrorAs(t, err, &bad)
}

func TestC04ARequestIsNoPassToANode(t *testing.T) {
	config := testConfig()
	config.Policies = fixedPolicies{guarding(t, "example.com/*")}
	config.ExtendedResourceToleration = true
	config.Live = storing(nodeTainted("gpus", corev1.Taint{Key: "example.com/gpu", Effect: corev1.TaintEffectNoSchedule}))
	require.True(t, judgePod(t, config, asked(t, "pods", "", named("mallory"), wantingGPUs(`"1"`, ""), nil)).Allowed, "the scheduler places it")
	response := judgePod(t, config, asked(t, "pods", "", named("mallory"), wantingGPUs(`"1"`, `"nodeName":"gpus",`), nil))
	requireRefused(t, response, policy.PassNotGranted, "spec.nodeName")
}

func TestTP19ARuntimeClassIsAPassToANode(t *testing.T) {
	pod := `{"spec":{"nodeName":"banana","runtimeClassName":"gpu","tolerations":[{"key":"dedicated","operator":"Exists"}]}}`
	require.True(t, judgePod(t, passConfig(t), asked(t, "pods", "", named("mallory"), pod, nil)).Allowed)
}

// What is added to a pod for a reason must not be had from a template that has lost the
// reason since, in an update that nobody judged.
func TestC15NothingIsAddedToTemplates(t *testing.T) {
	ofClass := templateWith(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists})
	ofClass.Spec.RuntimeClassName = new("gpu")
	ofResource := templateWith(corev1.Toleration{Key: "example.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	ofResource.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/gpu": apiresource.MustParse("1")}}}}
	for name, template := range map[string]corev1.PodTemplateSpec{"TP-19 a RuntimeClass": ofClass, "TP-16 a resource": ofResource} {
		for res, w := range workloadsWith(template) {
			t.Run(name+" "+res, func(t *testing.T) {
				config := testConfig()
				config.Policies = granting(t, map[string]string{"all": `{taints: [{key: "*"}], grants: [` + byAlice + `]}`})
				config.ExtendedResourceToleration = true
				requireRefused(t, judgePod(t, config, asked(t, res, "", named("mallory"), w.object, nil)), policy.TolerationNotGranted, w.at+"spec.tolerations[0]")
				require.True(t, judgePod(t, config, asked(t, res, "", named("alice"), w.object, nil)).Allowed)
				pod := corev1.Pod{Spec: template.Spec}
				require.True(t, judgePod(t, config, asked(t, "pods", "", named("mallory"), pod, nil)).Allowed, "its pods are given it")
			})
		}
	}
}
