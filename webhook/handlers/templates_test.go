package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy"
)

// workloadsWith returns each kind of workload with a template, by its resource, and
// where the template stands.
func workloadsWith(template corev1.PodTemplateSpec) map[string]struct {
	object any
	at     string
} {
	type workload = struct {
		object any
		at     string
	}
	job := batchv1.JobSpec{Template: template}
	return map[string]workload{
		"apps/deployments":       {appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}, "spec.template."},
		"apps/replicasets":       {appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template}}, "spec.template."},
		"apps/statefulsets":      {appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template}}, "spec.template."},
		"apps/daemonsets":        {appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template}}, "spec.template."},
		"batch/jobs":             {batchv1.Job{Spec: job}, "spec.template."},
		"batch/cronjobs":         {batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: job}}}, "spec.jobTemplate.spec.template."},
		"replicationcontrollers": {corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &template}}, "spec.template."},
		"podtemplates":           {corev1.PodTemplate{Template: template}, "template."},
	}
}

func TestC15EveryKindOfTemplateIsJudgedWhereAUserWritesIt(t *testing.T) {
	plain := templateWith()
	for res, w := range workloadsWith(templateWith(corev1.Toleration{Key: "free", Operator: corev1.TolerationOpExists}, exampleToleration)) {
		t.Run(res, func(t *testing.T) {
			config := testConfig()
			config.Policies = dedicatedTo(t, byAlice)
			bare := workloadsWith(plain)[res].object
			path := w.at + "spec.tolerations[1]"
			requireRefused(t, judgePod(t, config, asked(t, res, "", named("mallory"), w.object, nil)), policy.TolerationNotGranted, path, "TolerationPolicy/dedicated")
			requireRefused(t, judgePod(t, config, asked(t, res, "", named("mallory"), w.object, bare)), policy.TolerationNotGranted, path)
			require.True(t, judgePod(t, config, asked(t, res, "", named("mallory"), w.object, w.object)).Allowed, "C28 what stood there stays")
			require.True(t, judgePod(t, config, asked(t, res, "", named("mallory"), bare, w.object)).Allowed, "it is taken away")
			require.True(t, judgePod(t, config, asked(t, res, "", named("alice"), w.object, nil)).Allowed)
			require.True(t, judgePod(t, config, asked(t, res, "", named("mallory"), bare, nil)).Allowed)
		})
	}
}

func TestATemplateIsLookedAtLikeItsPods(t *testing.T) {
	template := templateWith(exampleToleration)
	template.Labels = map[string]string{"app": "web"}
	template.Spec.ServiceAccountName = "trusted"
	tests := map[string]struct {
		grants string
		want   bool
	}{
		"its labels":                  {`{namespaces: [apple], objectSelector: {matchLabels: {app: web}}}`, true},
		"other labels":                {`{namespaces: [apple], objectSelector: {matchLabels: {app: db}}}`, false},
		"its service account by RBAC": {`{rbac: true}`, true},
		"it is the pod":               {`{expression: "pod.metadata.labels.app == 'web' && pod.spec.serviceAccountName == 'trusted'"}`, true},
		"the object is the workload":  {`{expression: "object.metadata.labels['app'] == 'web'"}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for res, w := range workloadsWith(template) {
				config := testConfig()
				config.Policies = dedicatedTo(t, tt.grants)
				config.Authorizer = permitting("system:serviceaccount:apple:trusted tolerate dedicated")
				require.Equal(t, tt.want, judgePod(t, config, asked(t, res, "", named("bob"), w.object, nil)).Allowed, res)
			}
		})
	}
}

func TestC16WhatTheDaemonSetControllerAddsMayStandInItsTemplate(t *testing.T) {
	config := testConfig()
	config.Policies = granting(t, map[string]string{"system": `{taints: [{key: "node.kubernetes.io/*"}]}`})
	added := corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	for res, w := range workloadsWith(templateWith(added)) {
		require.Equal(t, res == "apps/daemonsets", judgePod(t, config, asked(t, res, "", named("bob"), w.object, nil)).Allowed, res)
	}
}

func TestANodeNameInATemplateIsJudgedWhenItIsWritten(t *testing.T) {
	template := templateWith()
	template.Spec.NodeName = "banana"
	for res, w := range workloadsWith(template) {
		bare := workloadsWith(templateWith())[res].object
		requireRefused(t, judgePod(t, passConfig(t), asked(t, res, "", named("mallory"), w.object, nil)), policy.TaintNotTolerated, w.at+"spec.nodeName")
		requireRefused(t, judgePod(t, passConfig(t), asked(t, res, "", named("mallory"), w.object, bare)), policy.TaintNotTolerated, w.at+"spec.nodeName")
		require.True(t, judgePod(t, passConfig(t), asked(t, res, "", named("mallory"), w.object, w.object)).Allowed, "C28 it stood there")
	}
}

// suspendedJob is a Job whose directives Kubernetes lets change.
func suspendedJob(template corev1.PodTemplateSpec) batchv1.Job {
	return batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: batchv1.JobSpec{Suspend: new(true), Template: template}}
}

func TestDirectivesOfASuspendedJobAreJudgedWhenTheyChange(t *testing.T) {
	gate := []corev1.PodSchedulingGate{{Name: "example.com/queue"}}
	held := corev1.PodTemplateSpec{Spec: corev1.PodSpec{SchedulingGates: gate}}
	steered := *held.DeepCopy()
	steered.Spec.NodeSelector = map[string]string{"zone": "a"}
	preferring := *held.DeepCopy()
	preferring.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}},
		}}},
	}}
	resumed := suspendedJob(templateWith(exampleToleration))
	resumed.Spec.Suspend = new(false)
	tests := map[string]struct {
		who      string
		old, job batchv1.Job
		reason   policy.Reason
		path     string
	}{
		"SD-17 a toleration is added":                   {"mallory", suspendedJob(templateWith()), suspendedJob(templateWith(exampleToleration)), policy.TolerationNotGranted, "spec.template.spec.tolerations[0]"},
		"SD-17 a toleration is added by who may":        {"alice", suspendedJob(templateWith()), suspendedJob(templateWith(exampleToleration)), "", ""},
		"SD-17 a toleration is taken away":              {"mallory", suspendedJob(templateWith(exampleToleration)), suspendedJob(templateWith()), "", ""},
		"SD-19 it is resumed and tolerates more":        {"mallory", suspendedJob(templateWith()), resumed, policy.TolerationNotGranted, "spec.template.spec.tolerations[0]"},
		"SD-15 it is resumed as it was":                 {"mallory", suspendedJob(templateWith(exampleToleration)), resumed, "", ""},
		"SD-17 a guarded gate goes":                     {"mallory", suspendedJob(held), suspendedJob(templateWith()), policy.GateNotOwned, "spec.template.spec.schedulingGates"},
		"SD-17 a guarded gate goes, by its owner":       {"queue", suspendedJob(held), suspendedJob(templateWith()), "", ""},
		"SD-17 a node selector changes behind the gate": {"mallory", suspendedJob(held), suspendedJob(steered), policy.GatedPodNotOwned, "spec.template.spec.nodeSelector"},
		"SD-17 node affinity changes behind the gate":   {"mallory", suspendedJob(held), suspendedJob(preferring), policy.GatedPodNotOwned, "spec.template.spec.affinity.nodeAffinity"},
		"SD-17 the owner of the gate steers":            {"queue", suspendedJob(held), suspendedJob(steered), "", ""},
		"SD-18 resources change":                        {"mallory", suspendedJob(held), suspendedJob(corev1.PodTemplateSpec{Spec: corev1.PodSpec{SchedulingGates: gate, Containers: []corev1.Container{{Name: "c"}}}}), "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Policies = queued(dedicatedTo(t, byAlice))
			response := judgePod(t, config, asked(t, "batch/jobs", "", named(tt.who), tt.job, tt.old))
			if tt.reason == "" {
				require.True(t, response.Allowed)
				return
			}
			requireRefused(t, response, tt.reason, tt.path)
		})
	}
	t.Run("other templates are not held by their gates", func(t *testing.T) {
		config := testConfig()
		config.Policies = queued(dedicatedTo(t, byAlice))
		before := appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: held}}
		require.True(t, judgePod(t, config, asked(t, "apps/deployments", "", named("mallory"), appsv1.Deployment{}, before)).Allowed)
	})
}

func TestATemplateThatDoesNotDecodeIsNoVerdict(t *testing.T) {
	config := testConfig()
	config.Policies = dedicatedTo(t, byAlice)
	for _, object := range []string{`{"spec":[]}`, `{"spec":{"template":7}}`, `{"spec":{"template":{"spec":{"tolerations":{}}}}}`} {
		var bad *badReviewError
		require.ErrorAs(t, judgeFault(t, config, asked(t, "apps/deployments", "", named("bob"), object, nil)), &bad, object)
	}
	require.True(t, judgePod(t, config, asked(t, "replicationcontrollers", "", named("bob"), `{"spec":{}}`, nil)).Allowed, "a template may be missing")
}
