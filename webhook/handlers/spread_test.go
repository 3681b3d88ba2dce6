package handlers

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// zoned returns a node in a zone, with the taints.
func zoned(name, zone string, taints ...corev1.Taint) tracker.Node {
	return tracker.NodeOf(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"zone": zone, corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{Taints: taints},
	})
}

var brokenDisk = corev1.Taint{Key: "broken", Value: "disk", Effect: corev1.TaintEffectNoSchedule}

// spreadOver returns what warns of nodes, and the clock it goes by.
func spreadOver(known bool, nodes ...tracker.Node) (*Spread, *tracker.Tracker, *clocktesting.FakePassiveClock) {
	tr, clock := tracker.New(), clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	for _, n := range nodes {
		tr.SetNode(n, clock.Now())
	}
	return &Spread{Nodes: tr, Known: func() bool { return known }, Clock: clock}, tr, clock
}

// threeZones has zones a and b for everybody, and c that is broken.
func threeZones() []tracker.Node {
	return []tracker.Node{zoned("a", "a"), zoned("b", "b"), zoned("c", "c", brokenDisk)}
}

func spreading(key string) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}
}

func spreadPod(change func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{spreading("zone")}},
	}
	change(&pod)
	return pod
}

// wedged is the warning about a constraint by zone over threeZones.
const wedged = "[0]: topologyKey zone counts c, where every node has a taint that the pod does not tolerate (broken=disk:NoSchedule): " +
	"if there are more than 2 such pods, the rest stays pending while none is there, because no more fit in the 2 other domains (maxSkew 1); " +
	"set nodeTaintsPolicy: Honor to leave out such domains"

func TestTS06AWarningOfConstraintsThatCountWhatThePodCannotUse(t *testing.T) {
	const spec = "spec.topologySpreadConstraints"
	tests := map[string]struct {
		change func(*corev1.Pod)
		want   []string
	}{
		"a zone in which every node is tainted": {func(*corev1.Pod) {}, []string{spec + wedged}},
		"the second constraint": {func(p *corev1.Pod) {
			soft := spreading("zone")
			soft.WhenUnsatisfiable = corev1.ScheduleAnyway
			p.Spec.TopologySpreadConstraints = append([]corev1.TopologySpreadConstraint{soft}, p.Spec.TopologySpreadConstraints...)
		}, []string{spec + strings.Replace(wedged, "[0]", "[1]", 1)}},
		"taints are honoured": {func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy = new(corev1.NodeInclusionPolicyHonor)
		}, nil},
		"the taint is tolerated": {func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: "broken", Operator: corev1.TolerationOpExists}}
		}, nil},
		"no constraints": {func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints = nil }, nil},
		"a node by name": {func(p *corev1.Pod) { p.Spec.NodeName = "a" }, nil},
		"a controller made it": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "1", Controller: new(true)}}
		}, nil},
		"an owner that is no controller": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: "1"}}
		}, []string{spec + wedged}},
		"a constraint that does not count the pod itself": {func(p *corev1.Pod) { p.Labels["app"] = "api" }, nil},
		"a constraint that the API server refuses":        {func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints[0].MaxSkew = 0 }, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Live = storing(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
			config.Spread, _, _ = spreadOver(true, threeZones()...)
			response := judgePod(t, config, asked(t, "pods", "", named("ann"), spreadPod(tt.change), nil))
			require.True(t, response.Allowed)
			require.Equal(t, tt.want, response.Warnings)
		})
	}
	t.Run("an update changes no constraints", func(t *testing.T) {
		config := testConfig()
		config.Spread, _, _ = spreadOver(true, threeZones()...)
		pod := spreadPod(func(*corev1.Pod) {})
		require.Empty(t, judgePod(t, config, asked(t, "pods", "", named("ann"), pod, pod)).Warnings)
	})
	t.Run("before all nodes are known nothing is said", func(t *testing.T) {
		config := testConfig()
		config.Spread, _, _ = spreadOver(false, threeZones()...)
		require.Empty(t, judgePod(t, config, asked(t, "pods", "", named("ann"), spreadPod(func(*corev1.Pod) {}), nil)).Warnings)
	})
	t.Run("nor where nodes are not followed", func(t *testing.T) {
		require.Empty(t, judgePod(t, testConfig(), asked(t, "pods", "", named("ann"), spreadPod(func(*corev1.Pod) {}), nil)).Warnings)
	})
}

func TestTS06TemplatesAreWarnedOf(t *testing.T) {
	pod := spreadPod(func(*corev1.Pod) {})
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}
	config := testConfig()
	config.Spread, _, _ = spreadOver(true, threeZones()...)
	for res, w := range workloadsWith(template) {
		t.Run(res, func(t *testing.T) {
			want := []string{w.at + "spec.topologySpreadConstraints" + wedged}
			if res == "apps/daemonsets" {
				want = nil // Each of its pods has a node of its own.
			}
			require.Equal(t, want, judgePod(t, config, asked(t, res, "", named("ann"), w.object, nil)).Warnings)
			require.Empty(t, judgePod(t, config, asked(t, res, "", named("ann"), w.object, w.object)).Warnings, "nothing changes")
			bare := workloadsWith(templateWith())[res].object
			require.Equal(t, want, judgePod(t, config, asked(t, res, "", named("ann"), w.object, bare)).Warnings)
			require.Empty(t, judgePod(t, config, asked(t, res, "", named("ann"), bare, w.object)).Warnings)
		})
	}
	for sentence, c := range map[string]struct {
		res, sizes string
		warned     int
	}{
		"not where the replicas of a Deployment fit while it rolls out": {"apps/deployments", `{"replicas":1,"strategy":{"rollingUpdate":{"maxSurge":"25%"}}}`, 0},
		"where they fit, but not those beside them":                     {"apps/deployments", `{"replicas":2,"strategy":{"rollingUpdate":{"maxSurge":"25%"}}}`, 1},
		"not where the old ones go first":                               {"apps/deployments", `{"replicas":2,"strategy":{"type":"Recreate"}}`, 0},
		"where replicas do not fit":                                     {"apps/replicasets", `{"replicas":3}`, 1},
		"not where replicas fit":                                        {"apps/statefulsets", `{"replicas":2}`, 0},
		"not where so many pods of a Job do not run at once":            {"batch/jobs", `{"parallelism":2,"completions":9}`, 0},
		"where they do": {"batch/jobs", `{"parallelism":3}`, 1},
		"where a CronJob may start one Job more before the last one is over": {"batch/cronjobs", `{"jobTemplate":{"spec":{"parallelism":1}}}`, 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			require.Len(t, judgePod(t, config, asked(t, c.res, "", named("ann"), sized(t, workloadsWith(template)[c.res].object, c.sizes), nil)).Warnings, c.warned)
		})
	}
	t.Run("not where a controller made the workload", func(t *testing.T) {
		set := appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template}}
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "1", Controller: new(true)}}
		require.Empty(t, judgePod(t, config, asked(t, "apps/replicasets", "", named("ann"), set, nil)).Warnings)
	})
	t.Run("with what PlacementPolicies give to the pods", func(t *testing.T) {
		config := config
		config.Policies = placements(givingPods("honor", v1alpha1.PodPlacement{
			TopologySpread: &v1alpha1.TopologySpreadDefaults{NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor)},
		}))
		ask := func(namespace string) []string {
			review := asked(t, "apps/deployments", "", named("ann"), workloadsWith(template)["apps/deployments"].object, nil)
			review.Request.Namespace = namespace
			return judgePod(t, config, review).Warnings
		}
		require.Empty(t, ask("banana"))
		require.Len(t, ask("apple"), 1)
	})
}

// sized returns a workload with further fields of its spec.
func sized(t *testing.T, workload any, spec string) string {
	t.Helper()
	patched, err := jsonpatch.MergePatch([]byte(text(t, workload)), []byte(`{"spec":`+spec+`}`))
	require.NoError(t, err)
	return string(patched)
}

func TestSpreadFollowsNodes(t *testing.T) {
	s, tr, clock := spreadOver(true, zoned("a", "a"), zoned("c", "c"))
	pod := spreadPod(func(*corev1.Pod) {})
	warnings := func() int { return len(s.warnings(&podFields{Labels: pod.Labels, Spec: pod.Spec}, nil, unknownSize)) }
	require.Zero(t, warnings())
	tainted := zoned("c", "c", brokenDisk)
	tr.SetNode(tainted, clock.Now())
	require.Zero(t, warnings(), "nodes are read once a second at most")
	clock.SetTime(clock.Now().Add(spreadNodesAge))
	require.Equal(t, 1, warnings())
	before := &s.nodes[0]
	clock.SetTime(clock.Now().Add(spreadNodesAge))
	require.Equal(t, 1, warnings())
	require.Same(t, before, &s.nodes[0], "and not again while they stay as they are")
}

// TestSpreadDoesNotSlowReviewsDown pins that a pod which says too much is not looked at.
func TestSpreadDoesNotSlowReviewsDown(t *testing.T) {
	s, _, _ := spreadOver(true, largeCluster()...)
	pod := spreadPod(func(*corev1.Pod) {})
	require.Len(t, s.warnings(&podFields{Labels: pod.Labels, Spec: pod.Spec}, nil, unknownSize), 1)
	for i := range 300 {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprint("key-", i), Operator: corev1.TolerationOpExists})
	}
	require.Empty(t, s.warnings(&podFields{Labels: pod.Labels, Spec: pod.Spec}, nil, unknownSize))
}

// largeCluster has 5,000 nodes with the labels of a cloud, in 10 zones of which one is
// broken, and 100 racks. Of the other nodes every tenth is tainted.
func largeCluster() []tracker.Node {
	nodes := make([]tracker.Node, 5000)
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		labels := map[string]string{corev1.LabelHostname: name, "zone": fmt.Sprint("zone-", i%10), "rack": fmt.Sprint("rack-", i%100)}
		for j := range 15 {
			labels[fmt.Sprintf("cloud.example.com/label-%d", j)] = strconv.Itoa(i % (j + 2))
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels}}
		if i%10 == 9 || i%11 == 0 {
			node.Spec.Taints = []corev1.Taint{brokenDisk}
		}
		nodes[i] = tracker.NodeOf(node)
	}
	return nodes
}

func creatingPod(b *testing.B, pod *corev1.Pod) *review.Request {
	b.Helper()
	raw, err := json.Marshal(pod)
	require.NoError(b, err)
	return creating(string(raw))
}

// BenchmarkSpreadWarning is what a warning costs a review at 5,000 nodes.
func BenchmarkSpreadWarning(b *testing.B) {
	s, tr, clock := spreadOver(true, largeCluster()...)
	required := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "cloud.example.com/label-3", Operator: corev1.NodeSelectorOpIn, Values: []string{"0", "1", "2"}},
			}}},
		}}}
	}
	pods := map[string]corev1.Pod{
		"no constraints": spreadPod(func(p *corev1.Pod) { p.Spec.TopologySpreadConstraints = nil }),
		"zone":           spreadPod(func(*corev1.Pod) {}),
		"zone, rack and host with affinity": spreadPod(func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, spreading("rack"), spreading(corev1.LabelHostname))
			required(p)
		}),
		"as much as is looked at": spreadPod(func(p *corev1.Pod) {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{spreading(corev1.LabelHostname)}
			for i := range maxSpreadEffort/5000 - 1 {
				p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: fmt.Sprint("key-", i), Operator: corev1.TolerationOpExists})
			}
		}),
	}
	for name, pod := range pods {
		b.Run(name, func(b *testing.B) {
			req := creatingPod(b, &pod)
			s.pod(req.New)
			b.ReportAllocs()
			for b.Loop() {
				s.pod(req.New)
			}
		})
	}
	b.Run("zone after a node changed", func(b *testing.B) {
		pod := pods["zone"]
		req := creatingPod(b, &pod)
		node := zoned("node-0000", "zone-0")
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			node.Labels = tracker.LabelsOf(map[string]string{"zone": "zone-0", "turn": strconv.Itoa(i)})
			tr.SetNode(node, clock.Now())
			clock.SetTime(clock.Now().Add(spreadNodesAge))
			b.StartTimer()
			s.pod(req.New)
		}
	})
}

func TestTheAPIServerCallsOutForTemplatesThatSpread(t *testing.T) {
	const validate, spread = "validate.tollgate.dev", "spread.tollgate.dev"
	deployment := func(spec string) string { return `{"metadata":{},"spec":{"template":{"spec":{` + spec + `}}}}` }
	constraint := func(fields string) string {
		return `"topologySpreadConstraints":[{"topologyKey":"zone","maxSkew":1,` + fields + `}]`
	}
	hard := constraint(`"whenUnsatisfiable":"DoNotSchedule"`)
	ignoring := constraint(`"whenUnsatisfiable":"DoNotSchedule","nodeTaintsPolicy":"Ignore"`)
	honouring := constraint(`"whenUnsatisfiable":"DoNotSchedule","nodeTaintsPolicy":"Honor"`)
	soft := constraint(`"whenUnsatisfiable":"ScheduleAnyway"`)
	const tolerating, selecting, image = `"tolerations":[{"operator":"Exists"}]`, `"nodeSelector":{"a":"b"}`, `"containers":[{"image":"b"}]`
	tests := map[string]struct {
		object, old string
		want        []string
	}{
		"a template that counts tainted nodes":      {deployment(hard), "", []string{spread}},
		"it says so":                                {deployment(ignoring), "", []string{spread}},
		"it honours taints":                         {deployment(honouring), "", nil},
		"it does not insist":                        {deployment(soft), "", nil},
		"no constraints":                            {deployment(image), "", nil},
		"it has tolerations, and is looked at once": {deployment(hard + "," + tolerating), "", []string{validate}},
		"another image":                             {deployment(hard + "," + image), deployment(hard), nil},
		"other constraints":                         {deployment(hard), deployment(honouring), []string{spread}},
		"fewer nodes":                               {deployment(hard + "," + selecting), deployment(hard), []string{spread}},
		"no constraints any more":                   {deployment(image), deployment(hard), nil},
		"other tolerations":                         {deployment(hard + "," + tolerating), deployment(hard), []string{validate}},
		"a controller made it": {
			`{"metadata":{"ownerReferences":[{"name":"x","controller":true}]},"spec":{"template":{"spec":{` + hard + `}}}}`, "", nil,
		},
	}
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	all := entries(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, calls(t, all, seenBy(t, kind, "deployments", "", tt.object, tt.old, "ann")))
		})
	}
	t.Run("of a DaemonSet nothing needs to spread, and no update is looked at again", func(t *testing.T) {
		daemons := appsv1.SchemeGroupVersion.WithKind("DaemonSet")
		for _, c := range []struct {
			object, old string
			want        []string
		}{
			{deployment(image), "", []string{spread}},
			{deployment(tolerating), "", []string{validate}},
			{deployment(image), deployment(""), nil},
			{deployment(image), deployment(tolerating), []string{validate}},
		} {
			require.Equal(t, c.want, calls(t, all, seenBy(t, daemons, "daemonsets", "", c.object, c.old, "ann")), c)
		}
	})
	job := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	t.Run("directives of a Job are looked at once", func(t *testing.T) {
		for _, directive := range []string{selecting, `"affinity":{"nodeAffinity":{}}`, `"schedulingGates":[{"name":"a"}]`} {
			require.Equal(t, []string{validate}, calls(t, all, seenBy(t, job, "jobs", "", deployment(hard+","+directive), deployment(hard), "ann")), directive)
		}
		require.Equal(t, []string{spread}, calls(t, all, seenBy(t, job, "jobs", "", deployment(hard+","+selecting), "", "ann")))
	})
	t.Run("wherever the template stands", func(t *testing.T) {
		at := func(kind schema.GroupVersionKind, resource, object string) {
			require.Equal(t, []string{spread}, calls(t, all, seenBy(t, kind, resource, "", object, "", "ann")), resource)
		}
		template := `{"spec":{` + hard + `}}`
		at(corev1.SchemeGroupVersion.WithKind("PodTemplate"), "podtemplates", `{"metadata":{},"template":`+template+`}`)
		at(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, "cronjobs", `{"metadata":{},"spec":{"jobTemplate":{"spec":{"template":`+template+`}}}}`)
		at(job, "jobs", `{"metadata":{},"spec":{"template":`+template+`}}`)
	})
}
