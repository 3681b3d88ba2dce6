package handlers

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/policy"
)

// byAlice grants the taint dedicated to alice alone, wherever she works.
const byAlice = `{subjects: [{kind: User, name: alice}]}`

func templateWith(tolerations ...corev1.Toleration) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Tolerations: tolerations}}
}

var exampleToleration = corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}

func metaOf(name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "apple", Name: name, UID: types.UID(uid)}
}

// ownedBy returns a pod that tolerates dedicated and has a controller.
func ownedBy(apiVersion, kind, name, uid string) string {
	return fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"n"},`+
		`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"controller":true}]},"spec":{"tolerations":[`+dedicated+`]}}`, apiVersion, kind, name, uid)
}

func TestAPodInheritsTheVerdictOnItsTemplate(t *testing.T) {
	owners := []client.Object{
		&appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs"), Spec: appsv1.ReplicaSetSpec{Template: templateWith(exampleToleration)}},
		&appsv1.ReplicaSet{ObjectMeta: metaOf("plain", "plain"), Spec: appsv1.ReplicaSetSpec{Template: templateWith()}},
		&appsv1.StatefulSet{ObjectMeta: metaOf("web", "sts"), Spec: appsv1.StatefulSetSpec{Template: templateWith(exampleToleration)}},
		&appsv1.DaemonSet{ObjectMeta: metaOf("web", "ds"), Spec: appsv1.DaemonSetSpec{Template: templateWith(exampleToleration)}},
		&batchv1.Job{ObjectMeta: metaOf("web", "job"), Spec: batchv1.JobSpec{Template: templateWith(exampleToleration)}},
		&corev1.ReplicationController{ObjectMeta: metaOf("web", "rc"), Spec: corev1.ReplicationControllerSpec{Template: new(templateWith(exampleToleration))}},
		&corev1.ReplicationController{ObjectMeta: metaOf("empty", "empty")},
	}
	replicas := controllerNamed("replicaset-controller")
	tests := map[string]struct {
		who  authenticationv1.UserInfo
		pod  string
		want bool
	}{
		"of a ReplicaSet":                         {replicas, ownedBy("apps/v1", "ReplicaSet", "web", "rs"), true},
		"of a StatefulSet":                        {controllerNamed("statefulset-controller"), ownedBy("apps/v1", "StatefulSet", "web", "sts"), true},
		"of a DaemonSet":                          {controllerNamed("daemon-set-controller"), ownedBy("apps/v1", "DaemonSet", "web", "ds"), true},
		"of a Job":                                {controllerNamed("job-controller"), ownedBy("batch/v1", "Job", "web", "job"), true},
		"of a ReplicationController":              {controllerNamed("replication-controller"), ownedBy("v1", "ReplicationController", "web", "rc"), true},
		"controllers without their own accounts":  {named("system:kube-controller-manager"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), true},
		"a template without the toleration":       {replicas, ownedBy("apps/v1", "ReplicaSet", "plain", "plain"), false},
		"an owner without a template":             {controllerNamed("replication-controller"), ownedBy("v1", "ReplicationController", "empty", "empty"), false},
		"a reference that a user forged":          {named("mallory"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), false},
		"C18 a user called almost like one":       {named("system:serviceaccount:kube-system:replicaset-controller2"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), false},
		"a service account of another namespace":  {named("system:serviceaccount:apple:replicaset-controller"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), false},
		"an owner with another UID":               {replicas, ownedBy("apps/v1", "ReplicaSet", "web", "gone"), false},
		"an owner that is gone":                   {replicas, ownedBy("apps/v1", "ReplicaSet", "none", "gone"), false},
		"a kind that nobody knows":                {replicas, ownedBy("example.com/v1", "ReplicaSet", "web", "rs"), false},
		"no owner":                                {replicas, tolerant, false},
		"C15 the author of the pod itself":        {named("alice"), ownedBy("apps/v1", "ReplicaSet", "none", "gone"), true},
		"an operator that nobody configured":      {named("system:serviceaccount:ops:operator"), ownedBy("apps/v1", "StatefulSet", "web", "sts"), false},
		"an operator that was configured":         {named("system:serviceaccount:ops:configured"), ownedBy("apps/v1", "StatefulSet", "web", "sts"), true},
		"a wider toleration than in the template": {replicas, `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]},"spec":{"tolerations":[{"operator":"Exists"}]}}`, false},
		"an owner that is not the controller":     {replicas, `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"rs"}]},"spec":{"tolerations":[` + dedicated + `]}}`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Policies = dedicatedTo(t, byAlice)
			config.Live = storing(owners...)
			config.WorkloadControllers = append(DefaultWorkloadControllers(), "system:serviceaccount:ops:configured")
			response := judgePod(t, config, asked(t, "pods", "", tt.who, tt.pod, nil))
			if tt.want {
				require.True(t, response.Allowed)
				return
			}
			requireRefused(t, response, policy.TolerationNotGranted, "spec.tolerations[0]")
		})
	}
}

func TestNoOwnerIsReadWhereNothingIsGuarded(t *testing.T) {
	live := storing()
	config := testConfig()
	config.Policies = dedicatedTo(t, byAlice)
	config.Live = live
	pod := `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]},"spec":{"tolerations":[{"key":"free","operator":"Exists"}]}}`
	require.True(t, judgePod(t, config, asked(t, "pods", "", controllerNamed("replicaset-controller"), pod, nil)).Allowed)
	require.Zero(t, live.asked())
}

func TestNoOwnerIsReadForAPodThatIsGrantedItself(t *testing.T) {
	live := storing()
	config := testConfig()
	config.Policies = dedicatedTo(t, `{namespaces: [apple]}`)
	config.Live = live
	require.True(t, judgePod(t, config, asked(t, "pods", "", controllerNamed("replicaset-controller"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), nil)).Allowed)
	require.Zero(t, live.asked())
}

func TestWhatIsInheritedNeedsNoAuthorizer(t *testing.T) {
	config := testConfig()
	config.Policies = dedicatedTo(t, `{rbac: true}`)
	config.WorkloadControllers = []string{"broken"}
	config.Live = storing(&appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs"), Spec: appsv1.ReplicaSetSpec{Template: templateWith(exampleToleration)}})
	require.True(t, judgePod(t, config, asked(t, "pods", "", named("broken"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), nil)).Allowed)
	require.ErrorIs(t, judgeFault(t, config, asked(t, "pods", "", named("broken"), ownedBy("apps/v1", "ReplicaSet", "web", "gone"), nil)), io.ErrUnexpectedEOF)
}

func TestAnOwnerIsReadOnceForManyPods(t *testing.T) {
	live := storing(&appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs"), Spec: appsv1.ReplicaSetSpec{Template: templateWith(exampleToleration)}})
	clock := clocktesting.NewFakePassiveClock(time.Now())
	known := newOwners(live, clock, DefaultWorkloadControllers())
	reference := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs"}
	of := func(since time.Time) inheritance {
		from, err := known.of(t.Context(), "apple", reference, "", since)
		require.NoError(t, err)
		return from
	}
	began := clock.Now()
	first := inheritance{value: []corev1.Toleration{exampleToleration}, asOf: began}
	require.Equal(t, first, of(time.Time{}))
	clock.SetTime(began.Add(keepTemplates - 1))
	require.Equal(t, first, of(time.Time{}))
	require.Equal(t, 1, live.asked())
	require.Equal(t, clock.Now(), of(clock.Now()).asOf, "asked for afresh")
	require.Equal(t, clock.Now(), of(clock.Now()).asOf, "what was read since then is fresh")
	require.Equal(t, 2, live.asked())
	clock.SetTime(clock.Now().Add(keepTemplates + 1))
	require.Equal(t, clock.Now(), of(time.Time{}).asOf, "later it is read again")
	require.Equal(t, 3, live.asked())

	known.live.limit.SetLimit(rate.Inf)
	for i := range 2 * mostTemplates {
		other := *reference
		other.UID = types.UID(strconv.Itoa(i))
		_, err := known.of(t.Context(), "apple", &other, "", time.Time{})
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(known.kept.Keys()), mostTemplates)
}

func TestATemplateThatJustGainedATolerationIsReadAgain(t *testing.T) {
	live := storing(&appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs")})
	config := testConfig()
	config.Policies = dedicatedTo(t, byAlice)
	config.Live = live
	endpoint := Validate(config)
	judge := func() bool {
		req, err := readRequest(marshal(t, asked(t, "pods", "", controllerNamed("replicaset-controller"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), nil)))
		require.NoError(t, err)
		response, err := answer(t.Context(), endpoint.Review, req)
		require.NoError(t, err)
		return response.Allowed
	}
	require.False(t, judge())
	live.store(&appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs"), Spec: appsv1.ReplicaSetSpec{Template: templateWith(exampleToleration)}})
	require.True(t, judge())
}

func TestAnOwnerThatCannotBeReadIsNoVerdict(t *testing.T) {
	live := storing()
	live.fault = io.ErrUnexpectedEOF
	config := testConfig()
	config.Policies = dedicatedTo(t, byAlice)
	config.Live = live
	review := asked(t, "pods", "", controllerNamed("replicaset-controller"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), nil)
	require.ErrorIs(t, judgeFault(t, config, review), io.ErrUnexpectedEOF)
}

func TestAFloodOfOwnersIsNotPassedOn(t *testing.T) {
	live := storing()
	known := newOwners(live, clocktesting.NewFakePassiveClock(time.Now()), []string{"c"})
	var err error
	for i := range 2 * confirmationsOnce {
		name := strconv.Itoa(i)
		reference := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name)}
		_, err = known.of(t.Context(), "apple", reference, "", time.Time{})
	}
	require.ErrorIs(t, err, errTooManyReads)
	require.Equal(t, confirmationsOnce, live.asked())
}

// controlled returns a workload with a controller, as JSON.
func controlled(t *testing.T, object client.Object, apiVersion, kind, name, uid string) string {
	t.Helper()
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}})
	data, err := json.Marshal(object)
	require.NoError(t, err)
	return string(data)
}

func TestWorkloadsThatControllersMakeInheritToo(t *testing.T) {
	config := testConfig()
	config.Policies = dedicatedTo(t, byAlice)
	config.Live = storing(
		&appsv1.Deployment{ObjectMeta: metaOf("web", "deploy"), Spec: appsv1.DeploymentSpec{Template: templateWith(exampleToleration)}},
		&batchv1.CronJob{ObjectMeta: metaOf("web", "cron"), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: templateWith(exampleToleration)}}}},
	)
	replicaSet := func(uid string) string {
		return controlled(t, &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: templateWith(exampleToleration)}}, "apps/v1", "Deployment", "web", uid)
	}
	job := controlled(t, &batchv1.Job{Spec: batchv1.JobSpec{Template: templateWith(exampleToleration)}}, "batch/v1", "CronJob", "web", "cron")
	require.True(t, judgePod(t, config, asked(t, "apps/replicasets", "", controllerNamed("deployment-controller"), replicaSet("deploy"), nil)).Allowed)
	require.True(t, judgePod(t, config, asked(t, "batch/jobs", "", controllerNamed("cronjob-controller"), job, nil)).Allowed)

	const path = "spec.template.spec.tolerations[0]"
	requireRefused(t, judgePod(t, config, asked(t, "apps/replicasets", "", named("mallory"), replicaSet("deploy"), nil)), policy.TolerationNotGranted, path)
	requireRefused(t, judgePod(t, config, asked(t, "apps/replicasets", "", controllerNamed("deployment-controller"), replicaSet("other"), nil)), policy.TolerationNotGranted, path)
	requireRefused(t, judgePod(t, config, asked(t, "batch/jobs", "", named("mallory"), job, nil)), policy.TolerationNotGranted, path)
}
