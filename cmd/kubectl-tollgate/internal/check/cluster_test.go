package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// fakeConnection is one to a cluster that is made up.
type fakeConnection struct {
	clients   *cli.Clients
	namespace string
}

func (c *fakeConnection) Namespace() (string, bool, error) {
	if c.namespace == "" {
		return "default", false, nil
	}
	return c.namespace, true, nil
}

func (c *fakeConnection) Clients(io.Writer) (*cli.Clients, error) { return c.clients, nil }

// served are the groups of a cluster with Tollgate in it, with what is read of each.
func served() map[string][]string {
	var policies []string
	for _, kind := range policyset.Kinds() {
		policies = append(policies, kind.Resource)
	}
	return map[string][]string{
		"tollgate.dev/v1alpha1": policies,
		"resource.k8s.io/v1":    {"resourceclaims", "resourceclaimtemplates"},
	}
}

// clusterOf has the objects in a text, and serves some kinds.
func clusterOf(tb testing.TB, text string, serves map[string][]string) (*fakeConnection, *fake.Clientset) {
	tb.Helper()
	objects, err := cli.Parse("cluster", []byte(text))
	require.NoError(tb, err)
	var typed, custom []runtime.Object
	decoder := serializer.NewCodecFactory(clientgoscheme.Scheme).UniversalDeserializer()
	for _, o := range objects {
		custom = append(custom, o.Unstructured)
		if o.GroupVersionKind().Group == "tollgate.dev" {
			continue
		}
		content, err := o.MarshalJSON()
		require.NoError(tb, err)
		object, _, err := decoder.Decode(content, nil, nil)
		require.NoError(tb, err)
		typed = append(typed, object)
	}
	clientset := fake.NewClientset(typed...)
	discovery, ok := clientset.Discovery().(*discoveryfake.FakeDiscovery)
	require.True(tb, ok)
	for group, names := range serves {
		list := &metav1.APIResourceList{GroupVersion: group}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		discovery.Resources = append(discovery.Resources, list)
	}
	lists := map[schema.GroupVersionResource]string{}
	for _, kind := range policyset.Kinds() {
		resource := kind.Resource
		lists[schema.GroupVersionResource{Group: "tollgate.dev", Version: "v1alpha1", Resource: resource}] = strings.ToUpper(resource[:1]) + resource[1:] + "List"
	}
	scheme := runtime.NewScheme() // of its own: the client adds kinds to it
	require.NoError(tb, clientgoscheme.AddToScheme(scheme))
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, lists, custom...)
	return &fakeConnection{clients: &cli.Clients{Kubernetes: clientset, Dynamic: dynamic}}, clientset
}

// runsIn runs a command line in a cluster.
func runsIn(tb testing.TB, in *fakeConnection, stdin string, c *command) (out, notes string, code int) {
	tb.Helper()
	var stdout, stderr bytes.Buffer
	c.cluster, c.config, c.clock = true, configv1alpha1.Default(), clocktesting.NewFakeClock(metav1.Now().Time)
	c.clients, c.namespace = in.Clients, in.Namespace
	c.stdin, c.out, c.notes = strings.NewReader(stdin), &stdout, &stderr
	err := c.run(tb.Context())
	if err != nil {
		stderr.WriteString("error: " + err.Error() + "\n")
	}
	return stdout.String(), stderr.String(), cli.ExitCode(err)
}

const standingThere = `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: dedicated, uid: u}
spec: {taints: [{key: dedicated}], grants: [{namespaces: [banana]}], message: ask the platform}
---
apiVersion: v1
kind: Namespace
metadata: {name: apple}
---
apiVersion: v1
kind: Namespace
metadata: {name: banana}
---
apiVersion: v1
kind: Namespace
metadata: {name: kube-system}
---
apiVersion: v1
kind: Pod
metadata: {name: granted, namespace: banana}
spec: {tolerations: [{key: dedicated, operator: Exists}]}
---
apiVersion: v1
kind: Pod
metadata: {name: intruder, namespace: apple}
spec: {tolerations: [{key: other}, {key: dedicated, operator: Exists}]}
---
apiVersion: v1
kind: Pod
metadata: {name: finished, namespace: apple}
spec: {tolerations: [{key: dedicated, operator: Exists}]}
status: {phase: Succeeded}
---
apiVersion: v1
kind: Pod
metadata: {name: mirror, namespace: apple, annotations: {kubernetes.io/config.mirror: x}}
spec: {tolerations: [{operator: Exists}]}
---
apiVersion: v1
kind: Pod
metadata: {name: kept, namespace: apple, annotations: {tollgate.dev/window: dedicated=60}}
spec: {tolerations: [{key: dedicated, operator: Exists, effect: NoExecute, tolerationSeconds: 60}]}
---
apiVersion: v1
kind: Pod
metadata: {name: system, namespace: kube-system}
spec: {tolerations: [{operator: Exists}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: apple}
spec: {template: {spec: {tolerations: [{operator: Exists}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, namespace: apple, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]}
spec: {template: {spec: {tolerations: [{operator: Exists}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: apple}
spec: {jobTemplate: {spec: {template: {spec: {tolerations: [{key: dedicated, operator: Exists}]}}}}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: special}
handler: special
scheduling: {tolerations: [{key: dedicated, value: special}]}
---
apiVersion: v1
kind: Pod
metadata: {name: special, namespace: apple}
spec: {runtimeClassName: special, tolerations: [{key: dedicated, value: special}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: apple}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{key: health.example.com/x, operator: Exists}]}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu, namespace: banana}
spec: {spec: {devices: {requests: [{name: r, firstAvailable: [{name: s, deviceClassName: c, tolerations: [{operator: Exists}]}]}]}}}
`

func TestJudgesWhatStandsInTheCluster(t *testing.T) {
	t.Parallel()
	in, _ := clusterOf(t, standingThere, served())
	out, notes, code := runsIn(t, in, "", &command{})
	require.Equal(t, cli.ExitVerdict, code, notes)
	require.Equal(t, `Deployment apple/web: denied
  TolerationPolicy/dedicated: spec.template.spec.tolerations[0]
    operator=Exists (every taint): no grant of the policy allows it; ask the platform
CronJob apple/nightly: denied
  TolerationPolicy/dedicated: spec.jobTemplate.spec.template.spec.tolerations[0]
    key=dedicated operator=Exists: no grant of the policy allows it; ask the platform
Pod apple/intruder: denied
  TolerationPolicy/dedicated: spec.tolerations[1]
    key=dedicated operator=Exists: no grant of the policy allows it; ask the platform
10 objects judged by 1 policy: 7 allowed, 3 denied
`, out)
	out, _, _ = runsIn(t, in, "", &command{output: cli.Output{Format: "wide"}})
	require.Contains(t, out, "Pod banana/granted: allowed\n")
	require.Equal(t, 7, strings.Count(out, ": allowed\n"), out)
	require.Contains(t, out, "10 objects judged by 1 policy: 7 allowed, 3 denied\n")
}

func TestJudgesWhatStandsByANewPolicy(t *testing.T) {
	t.Parallel()
	in, _ := clusterOf(t, standingThere, served())
	policy := `{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: gpus}, spec: {taints: [{target: Device, key: "*"}], validationActions: [Warn]}}`
	out, notes, code := runsIn(t, in, policy, &command{policies: []string{"-"}})
	require.Zero(t, code, notes)
	require.Equal(t, `ResourceClaimTemplate banana/gpu: warned
  warning: TolerationPolicy/gpus: spec.spec.devices.requests[0].firstAvailable[0].tolerations[0]
    operator=Exists (every taint): no grant of the policy allows it
ResourceClaim apple/gpu: warned
  warning: TolerationPolicy/gpus: spec.devices.requests[0].exactly.tolerations[0]
    key=health.example.com/x operator=Exists: no grant of the policy allows it
10 objects judged by 1 policy: 8 allowed, 2 allowed with warnings
`, out)
	in.namespace = "apple"
	out, _, _ = runsIn(t, in, policy, &command{policies: []string{"-"}})
	require.NotContains(t, out, "banana")
}

func TestLooksUpInTheClusterWhatIsNotInTheFiles(t *testing.T) {
	t.Parallel()
	in, clientset := clusterOf(t, standingThere, served())
	asked := ""
	clientset.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		asked = review.Spec.User + " " + review.Spec.ResourceAttributes.Verb
		return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: apple}, spec: {tolerations: [{key: dedicated, operator: Exists}]}}`
	out, notes, code := runsIn(t, in, pod, &command{manifests: []string{"-"}})
	require.Equal(t, cli.ExitVerdict, code, notes)
	require.Contains(t, out, "TolerationPolicy/dedicated: spec.tolerations[0]")
	require.NotContains(t, notes, "namespace apple")

	changed := `{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: dedicated}, spec: {taints: [{key: dedicated}], grants: [{rbac: true}]}}`
	f := &command{manifests: []string{"-"}}
	f.by.User = "alice"
	out, notes, code = runsIn(t, in, pod+"\n---\n"+changed, f)
	require.Zero(t, code, "%s%s", out, notes)
	require.Equal(t, "alice tolerate", asked)
	require.Contains(t, out, "2 objects judged by 1 policy: 2 allowed")
}

// asks counts what a command line reads of a cluster for manifests.
func asks(t *testing.T, in *fakeConnection) map[string]int {
	t.Helper()
	dynamic, ok := in.clients.Dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	count := map[string]int{}
	for _, action := range dynamic.Actions() {
		count[action.GetVerb()+" "+action.GetResource().Resource]++
	}
	return count
}

// byLabels is standingThere with a policy that selects namespaces by their labels: others do not
// have them read.
func byLabels() string {
	return strings.Replace(standingThere, "{namespaces: [banana]}", "{namespaceSelector: {matchLabels: {tier: gold}}}", 1)
}

func TestAsksTheClusterOnceForEachThing(t *testing.T) {
	t.Parallel()
	in, _ := clusterOf(t, byLabels(), served())
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: apple}, spec: {nodeName: n1, runtimeClassName: special}}\n", i)
	}
	_, notes, code := runsIn(t, in, text.String(), &command{manifests: []string{"-"}})
	require.Equal(t, cli.ExitVerdict, code, notes) // pods that pass by the scheduler
	count := asks(t, in)
	for _, resource := range []string{"get namespaces", "get runtimeclasses", "list priorityclasses", "get nodes"} {
		require.Equal(t, 1, count[resource], "%s: %v", resource, count)
	}
	require.Zero(t, count["list nodes"], "nothing is spread")
}

func TestManifestsNeedNoRightsToWhatOnlyGivesPodsSomething(t *testing.T) {
	t.Parallel()
	const spread = "{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: apple}, spec: {%s, topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}}"
	for sentence, c := range map[string]struct {
		verb, resource string
		spec           string
		code           int
		note           string
	}{
		"the default priority":    {"list", "priorityclasses", "hostNetwork: true", 0, "note: PriorityClasses may not be read"},
		"a named priority":        {"get", "priorityclasses", "priorityClassName: high", 0, "note: PriorityClasses may not be read"},
		"a runtime":               {"get", "runtimeclasses", "runtimeClassName: special", 0, "note: RuntimeClasses may not be read"},
		"nodes to spread over":    {"list", "nodes", "hostNetwork: true", 0, "note: nodes may not be listed"},
		"a namespace is not such": {"get", "namespaces", "tolerations: [{key: dedicated}]", 1, "1 object is undecided"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in, _ := clusterOf(t, byLabels(), served())
			dynamic, ok := in.clients.Dynamic.(*dynamicfake.FakeDynamicClient)
			require.True(t, ok)
			dynamic.PrependReactor(c.verb, c.resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no"))
			})
			out, notes, code := runsIn(t, in, fmt.Sprintf(spread, c.spec), &command{manifests: []string{"-"}})
			require.Equal(t, c.code, code, out+notes)
			require.Contains(t, strings.Join(strings.Fields(notes), " "), c.note)
		})
	}
}

func TestClustersWithoutWhatIsLookedFor(t *testing.T) {
	t.Parallel()
	const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: apple}}"
	policy := &command{policies: []string{"testdata/policies"}}
	_, withoutPolicy, _ := strings.Cut(standingThere, "---")
	for sentence, c := range map[string]struct {
		text   string
		serves map[string][]string
		flags  *command
		out    string
		notes  string
	}{
		"an empty one": {namespace, served(), &command{policies: []string{"testdata/policies"}}, "0 objects judged by 2 policies\n", ""},
		"one without policies": {
			withoutPolicy, served(), &command{}, "0 objects judged by 0 policies\n",
			"note: there is no TolerationPolicy to judge by: everything is allowed\n",
		},
		"one without Tollgate and devices, by a policy of a file": {namespace, nil, policy, "0 objects judged by 2 policies\n", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			in, _ := clusterOf(t, c.text, c.serves)
			out, notes, code := runsIn(t, in, "", c.flags)
			require.Zero(t, code, notes)
			require.Equal(t, c.out, out)
			require.Equal(t, c.notes, notes)
		})
	}
}

func TestWithoutTollgateThereAreNoPoliciesToScanBy(t *testing.T) {
	t.Parallel()
	in, _ := clusterOf(t, "{apiVersion: v1, kind: Namespace, metadata: {name: apple}}", nil)
	out, notes, code := runsIn(t, in, "", &command{})
	require.Equal(t, cli.ExitError, code)
	require.Empty(t, out)
	require.Contains(t, notes, "name policies with -p, or install Tollgate's CustomResourceDefinitions")
}

func TestSaysWhichRightsAreMissing(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"namespaces", "pods", "deployments", "cronjobs", "resourceclaims"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			in, clientset := clusterOf(t, standingThere, served())
			forbid(clientset, resource)
			_, notes, code := runsIn(t, in, "", &command{})
			require.Equal(t, cli.ExitError, code)
			require.Contains(t, notes, "ask for a ClusterRole with the verb list on "+resource)
		})
	}
	in, clientset := clusterOf(t, standingThere, served())
	forbid(clientset, "runtimeclasses")
	out, notes, code := runsIn(t, in, "", &command{})
	require.Equal(t, cli.ExitVerdict, code)
	require.Contains(t, notes, "note: RuntimeClasses could not be read")
	require.Contains(t, out, "Pod apple/special: denied", "what the class brought counts as chosen then")
}

func forbid(clientset *fake.Clientset, resource string) {
	clientset.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no"))
	})
}

// Whoever may not ask about the rights of others is told so for each object that hangs on it.
func TestAnAuthorizerThatDoesNotAnswerDecidesNothing(t *testing.T) {
	t.Parallel()
	in, clientset := clusterOf(t, standingThere, served())
	clientset.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}, "", errors.New("no"))
	})
	text := `
{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: apple}, spec: {tolerations: [{key: dedicated, operator: Exists}]}}
---
{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: dedicated}, spec: {taints: [{key: dedicated}], grants: [{rbac: true}]}}`
	out, _, code := runsIn(t, in, text, &command{manifests: []string{"-"}})
	require.Equal(t, cli.ExitError, code)
	require.Contains(t, out, "Pod apple/new: undecided")
	require.Contains(t, out, "subjectaccessreviews")
}

// BenchmarkStanding10000Pods is the time and the memory of a look at a large cluster; those of
// the fake API server are among them.
func BenchmarkStanding10000Pods(b *testing.B) {
	in, clientset := clusterOf(b, standingThere, served())
	for i := range 10_000 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Namespace: "banana", Labels: map[string]string{"app": strconv.Itoa(i % 100)}}}
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}, {Key: fmt.Sprintf("k%d", i%50)}}
		require.NoError(b, clientset.Tracker().Add(pod))
	}
	b.ReportAllocs()
	for b.Loop() {
		_, notes, code := runsIn(b, in, "", &command{})
		require.Equal(b, cli.ExitVerdict, code, notes)
	}
}

// BenchmarkManifests10000Pods is the time and the memory to judge as many manifests.
func BenchmarkManifests10000Pods(b *testing.B) {
	var text strings.Builder
	for i := range 10_000 {
		pod := map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": fmt.Sprintf("web-%d", i), "namespace": []string{"apple", "banana"}[i%2]},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "x"}}, "tolerations": []any{map[string]any{"key": "dedicated", "operator": "Exists"}}},
		}
		content, err := yaml.Marshal((&unstructured.Unstructured{Object: pod}).Object)
		require.NoError(b, err)
		text.WriteString("---\n" + string(content))
	}
	in, _ := clusterOf(b, "", nil)
	b.ReportAllocs()
	for b.Loop() {
		var out, notes bytes.Buffer
		c := &command{
			policies: []string{"testdata/policies"}, manifests: []string{"-"}, config: configv1alpha1.Default(),
			clock: clocktesting.NewFakeClock(metav1.Now().Time), clients: in.Clients, namespace: in.Namespace,
			stdin: strings.NewReader(text.String()), out: &out, notes: &notes,
		}
		require.Equal(b, cli.ExitVerdict, cli.ExitCode(c.run(b.Context())), notes.String())
	}
}
