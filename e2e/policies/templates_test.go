package policies

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy"
)

// templateOf is a template for pods with a label, and tolerations.
func templateOf(app string, tolerations ...corev1.Toleration) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}}, Spec: podWith(tolerations...).Spec}
}

func selecting(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func deploymentOf(name string, tolerations ...corev1.Toleration) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: selecting(name), Template: templateOf(name, tolerations...),
	}}
}

func jobOf(name string, tolerations ...corev1.Toleration) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: templateOf(name, tolerations...)}}
	job.Spec.Template.Labels = nil
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return job
}

// workloads are one of each kind that has a template for pods, and where in it the
// tolerations stand.
func workloads(name string, tolerations ...corev1.Toleration) map[client.Object]string {
	meta := metav1.ObjectMeta{Name: name}
	template := templateOf(name, tolerations...)
	const inTemplate = "spec.template.spec.tolerations[0]"
	return map[client.Object]string{
		deploymentOf(name, tolerations...): inTemplate,
		&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selecting(name), Template: template}}:   inTemplate,
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selecting(name), Template: template}}: inTemplate,
		&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selecting(name), Template: template}}:     inTemplate,
		jobOf(name, tolerations...): inTemplate,
		&batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
			Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: jobOf(name, tolerations...).Spec},
		}}: "spec.jobTemplate.spec.template.spec.tolerations[0]",
		&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{
			Selector: map[string]string{"app": name}, Template: &template,
		}}: inTemplate,
		&corev1.PodTemplate{ObjectMeta: meta, Template: template}: "template.spec.tolerations[0]",
	}
}

// typed returns a client of a person for objects of any type.
func (p *person) typed(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, appsv1.AddToScheme(scheme))
	require.NoError(t, batchv1.AddToScheme(scheme))
	c, err := client.New(p.config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

func TestC15WorkloadsAreJudgedByWhoWritesThem(t *testing.T) {
	const key = "templates.example.com/x"
	namespaces(t, "templates")
	enforce(t, `
kind: TolerationPolicy
metadata: {name: templates}
spec:
  taints: [{key: templates.example.com/x}]
  grants: [{subjects: [{kind: Group, name: platform}]}]
`)
	alice, paul := tenant(t, "alice"), tenant(t, "paul", "platform")
	for object, path := range workloads("refused", exists(key, "")) {
		t.Run(fmt.Sprintf("%T", object), func(t *testing.T) {
			object.SetNamespace("templates")
			requireRefused(t, alice.typed(t).Create(t.Context(), object.DeepCopyObject().(client.Object)), policy.TolerationNotGranted,
				"TolerationPolicy/templates", path, "key=templates.example.com/x")
			require.NoError(t, paul.typed(t).Create(t.Context(), object.DeepCopyObject().(client.Object), client.DryRunAll))
		})
	}
	for object, path := range workloads("later") {
		t.Run(fmt.Sprintf("%T, later", object), func(t *testing.T) {
			object.SetNamespace("templates")
			c := alice.typed(t)
			require.NoError(t, c.Create(t.Context(), object))
			if _, immutable := object.(*batchv1.Job); immutable {
				return
			}
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(tolerationAt(path, key)))
			requireRefused(t, c.Patch(t.Context(), object, patch), policy.TolerationNotGranted, "TolerationPolicy/templates", path)
			harmless := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
			require.NoError(t, c.Patch(t.Context(), object, harmless))
		})
	}
}

// tolerationAt is a patch that sets a toleration of a key at the path of one.
func tolerationAt(path, key string) string {
	toleration := `{"spec":{"tolerations":[{"key":"` + key + `","operator":"Exists"}]}}`
	switch path {
	case "template.spec.tolerations[0]":
		return `{"template":` + toleration + `}`
	case "spec.template.spec.tolerations[0]":
		return `{"spec":{"template":` + toleration + `}}`
	default:
		return `{"spec":{"jobTemplate":{"spec":{"template":` + toleration + `}}}}`
	}
}

func TestC15PodsOfAWorkloadGetTheVerdictOfItsAuthor(t *testing.T) {
	const key = "inherit.example.com/x"
	namespaces(t, "inherit")
	enforce(t, `
kind: TolerationPolicy
metadata: {name: inherit}
spec:
  taints: [{key: inherit.example.com/x}]
  grants: [{subjects: [{kind: Group, name: platform}]}]
`)
	alice, paul := tenant(t, "alice"), tenant(t, "paul", "platform")
	tolerates := exists(key, "")
	t.Run("those of a Deployment run, though no controller is granted anything", func(t *testing.T) {
		_, err := paul.AppsV1().Deployments("inherit").Create(t.Context(), deploymentOf("granted", tolerates), metav1.CreateOptions{})
		require.NoError(t, err)
		waitReplicas(t, "inherit", "granted", 2)
	})
	t.Run("those of a StatefulSet, a DaemonSet, a Job and a CronJob, too", func(t *testing.T) {
		for object := range workloads("granted-too", tolerates) {
			object.SetNamespace("inherit")
			require.NoError(t, paul.typed(t).Create(t.Context(), object))
		}
		eventually(t, "each has made a pod", func(ctx context.Context) error {
			list, err := admin(t).CoreV1().Pods("inherit").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			kinds := map[string]bool{}
			for i := range list.Items {
				for _, owner := range list.Items[i].OwnerReferences {
					kinds[owner.Kind+"/"+owner.Name] = true
				}
			}
			for _, kind := range []string{"StatefulSet", "DaemonSet", "Job", "ReplicationController", "ReplicaSet"} {
				if !kinds[kind+"/granted-too"] {
					return fmt.Errorf("none of a %s among %v", kind, kinds)
				}
			}
			return nil
		})
	})
	t.Run("an owner that is real does not help who is no controller", func(t *testing.T) {
		set := replicaSetOf(t, "inherit", "granted")
		pod := podWith(tolerates)
		pod.OwnerReferences = ownedBy("apps/v1", "ReplicaSet", set)
		requireRefused(t, alice.admit(t, "inherit", pod), policy.TolerationNotGranted, "TolerationPolicy/inherit")
	})
	t.Run("a Deployment from before the policy goes on", func(t *testing.T) {
		withdraw(t, "TolerationPolicy", "inherit")
		_, err := alice.AppsV1().Deployments("inherit").Create(t.Context(), deploymentOf("before", tolerates), metav1.CreateOptions{})
		require.NoError(t, err)
		waitReplicas(t, "inherit", "before", 2)
		enforce(t, `
kind: TolerationPolicy
metadata: {name: inherit}
spec:
  taints: [{key: inherit.example.com/x}]
`)
		_, err = alice.AppsV1().Deployments("inherit").Patch(t.Context(), "before", types.MergePatchType,
			[]byte(`{"spec":{"replicas":3,"template":{"metadata":{"annotations":{"rolled":"out"}}}}}`), metav1.PatchOptions{})
		require.NoError(t, err, "its toleration stood before")
		waitReplicas(t, "inherit", "before", 3)
	})
}

// replicaSetOf returns the newest ReplicaSet of a Deployment.
func replicaSetOf(t *testing.T, namespace, deployment string) *appsv1.ReplicaSet {
	t.Helper()
	list, err := admin(t).AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment})
	require.NoError(t, err)
	require.NotEmpty(t, list.Items)
	return &list.Items[0]
}

// waitReplicas returns when as many pods of the newest template of a Deployment are
// ready.
func waitReplicas(t *testing.T, namespace, name string, want int32) {
	t.Helper()
	eventually(t, "Deployment "+name+" runs", func(ctx context.Context) error {
		found, err := admin(t).AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found.Status.ObservedGeneration != found.Generation || found.Status.ReadyReplicas != want || found.Status.UpdatedReplicas != want {
			return fmt.Errorf("%+v", found.Status)
		}
		return nil
	})
}

func TestSuspendedJobsAreJudgedByWhatTheyMayStillChange(t *testing.T) {
	const key = "suspended.example.com/x"
	namespaces(t, "suspended")
	enforce(t, `
kind: TolerationPolicy
metadata: {name: suspended}
spec:
  taints: [{key: suspended.example.com/x}]
  grants: [{subjects: [{kind: Group, name: platform}]}]
`)
	alice, paul := tenant(t, "alice"), tenant(t, "paul", "platform")
	job := jobOf("job")
	job.Spec.Suspend = new(true)
	jobs := alice.BatchV1().Jobs("suspended")
	_, err := jobs.Create(t.Context(), job, metav1.CreateOptions{})
	require.NoError(t, err)
	tolerate := []byte(tolerationAt("spec.template.spec.tolerations[0]", key))
	resume := []byte(`{"spec":{"suspend":false,"template":{"spec":{"tolerations":[{"key":"` + key + `","operator":"Exists"}]}}}}`)
	t.Run("SD-17 a toleration that is added while it waits", func(t *testing.T) {
		_, err := jobs.Patch(t.Context(), "job", types.StrategicMergePatchType, tolerate, metav1.PatchOptions{})
		requireRefused(t, err, policy.TolerationNotGranted, "TolerationPolicy/suspended", "spec.template.spec.tolerations[0]")
	})
	t.Run("SD-19 or by the update that resumes it", func(t *testing.T) {
		_, err := jobs.Patch(t.Context(), "job", types.StrategicMergePatchType, resume, metav1.PatchOptions{})
		requireRefused(t, err, policy.TolerationNotGranted, "TolerationPolicy/suspended")
	})
	t.Run("SD-19 who is granted does both at once, and the pod runs", func(t *testing.T) {
		_, err := paul.BatchV1().Jobs("suspended").Patch(t.Context(), "job", types.StrategicMergePatchType, resume, metav1.PatchOptions{})
		require.NoError(t, err)
		eventually(t, "the job succeeds", func(ctx context.Context) error {
			found, err := jobs.Get(ctx, "job", metav1.GetOptions{})
			if err == nil && found.Status.Succeeded != 1 {
				err = fmt.Errorf("%+v", found.Status)
			}
			return err
		})
	})
	t.Run("SD-15 one that never waited is left to Kubernetes", func(t *testing.T) {
		_, err := jobs.Patch(t.Context(), "job", types.StrategicMergePatchType, tolerate, metav1.PatchOptions{DryRun: dryRun})
		require.NoError(t, err, "it changes nothing")
	})
}
