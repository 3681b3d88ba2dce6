package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/policy"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func parsed(t *testing.T, text string) []cli.Object {
	t.Helper()
	objects, err := cli.Parse("f", []byte(text))
	require.NoError(t, err)
	return objects
}

// checkerOf judges by the policies in a text, where there is what else stands in it.
func checkerOf(t *testing.T, text string, change ...func(*configv1alpha1.TollgateConfiguration)) *Checker {
	t.Helper()
	objects := parsed(t, text)
	policies, err := (Policies{}).With(objects)
	require.NoError(t, err)
	config := configv1alpha1.Default()
	for _, c := range change {
		c(config)
	}
	checker, err := NewChecker(Options{
		Policies: policies, Objects: objects, Namespace: "default", Config: config, Clock: clocktesting.NewFakePassiveClock(now),
	})
	require.NoError(t, err)
	return checker
}

// dedicated has policies of each kind, and what they are about.
const dedicated = `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: dedicated}
spec:
  taints: [{key: dedicated}]
  grants: [{namespaceSelector: {matchLabels: {tier: gold}}}, {rbac: true}]
  message: ask the platform
---
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: audited}
spec: {taints: [{key: audited}], validationActions: [Audit]}
---
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: warned}
spec: {taints: [{key: warned}], validationActions: [Warn]}
---
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: gpus}
spec: {taints: [{target: Device, key: "*"}], grants: [{namespaces: [ml]}]}
---
apiVersion: tollgate.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: gold}
spec:
  match: {namespaceSelector: {matchLabels: {tier: gold}}}
  pod: {nodeSelector: {pool: gold}, tolerations: [{key: dedicated, operator: Exists}]}
---
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
metadata: {name: dedicated}
spec:
  taints: [{key: dedicated}, {target: Device, key: "*"}]
  setters: [{subjects: [{kind: Group, name: platform}]}, {rbac: true}]
  register: [{nodeSelector: {matchLabels: {pool: gold}}, taints: [{key: dedicated, effect: NoSchedule}]}]
---
apiVersion: v1
kind: Namespace
metadata: {name: gold, labels: {tier: gold}}
---
apiVersion: v1
kind: Node
metadata: {name: tainted}
spec: {taints: [{key: dedicated, effect: NoSchedule}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tolerates}
rules: [{apiGroups: [tollgate.dev], resources: [taints], resourceNames: [dedicated], verbs: [tolerate, taint]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tolerates}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tolerates}
subjects: [{kind: User, name: rita}, {kind: ServiceAccount, name: runner, namespace: iron}]
---
` + special

// special is a RuntimeClass with a toleration.
const special = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: special}
handler: special
scheduling: {tolerations: [{key: dedicated, operator: Exists}]}
`

// template returns a Deployment in a namespace with the spec of its pods.
func template(namespace, spec string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: " + namespace + "}, spec: {template: {spec: {" + spec + "}}}}"
}

func pod(namespace, spec string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: " + namespace + "}, spec: {" + spec + "}}"
}

func claim(namespace, tolerations string) string {
	return "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c, namespace: " + namespace +
		"}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpus, " + tolerations + "}}]}}}"
}

func node(labels, taints string) string {
	return "{apiVersion: v1, kind: Node, metadata: {name: new, labels: {" + labels + "}}, spec: {taints: [" + taints + "]}}"
}

func rule(selector, effect string) string {
	return "{apiVersion: resource.k8s.io/v1, kind: DeviceTaintRule, metadata: {name: r}, spec: {deviceSelector: {" + selector + "}, taint: {key: a.example.com/b, effect: " + effect + "}}}"
}

func TestVerdictsAreThoseOfTheWebhook(t *testing.T) {
	t.Parallel()
	alice, rita, platform := Subject{User: "alice"}, Subject{User: "rita"}, Subject{User: "paul", Groups: []string{"platform"}}
	daemons := Subject{User: "system:serviceaccount:kube-system:daemon-set-controller"}
	const tolerates, exists = "tolerations: [{key: dedicated, operator: Exists}]", "tolerations: [{operator: Exists}]"
	for sentence, c := range map[string]struct {
		object string
		by     Subject
		want   Verdict
		reason policy.Reason
	}{
		"a pod that tolerates nothing":                           {pod("iron", ""), alice, Allowed, ""},
		"a pod that tolerates what is guarded":                   {pod("iron", tolerates), alice, Denied, policy.TolerationNotGranted},
		"a wildcard":                                             {pod("iron", exists), alice, Denied, policy.TolerationNotGranted},
		"a namespace that has the label":                         {pod("gold", tolerates), alice, Allowed, ""},
		"what PlacementPolicies give is granted":                 {pod("gold", ""), alice, Allowed, ""},
		"a contradiction":                                        {pod("gold", "nodeSelector: {pool: iron}"), alice, Denied, policy.PlacementContradicted},
		"whom RBAC allows":                                       {pod("iron", tolerates), rita, Allowed, ""},
		"a service account that RBAC allows":                     {pod("iron", "serviceAccountName: runner, "+tolerates), alice, Allowed, ""},
		"a template, by its service account":                     {template("iron", "serviceAccountName: runner, "+tolerates), alice, Allowed, ""},
		"a template":                                             {template("iron", tolerates), alice, Denied, policy.TolerationNotGranted},
		"what a RuntimeClass brings":                             {pod("iron", "runtimeClassName: special"), alice, Allowed, ""},
		"default seconds are nobody's choice":                    {pod("iron", "tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]"), alice, Allowed, ""},
		"only a warning":                                         {pod("iron", "tolerations: [{key: warned}]"), alice, Warned, policy.TolerationNotGranted},
		"only the audit log":                                     {pod("iron", "tolerations: [{key: audited}]"), alice, Allowed, policy.TolerationNotGranted},
		"a pod past the scheduler":                               {pod("iron", "nodeName: tainted"), alice, Denied, policy.TaintNotTolerated},
		"a toleration that Kubernetes has no use for":            {pod("iron", "tolerations: [{operator: Exists, value: x}]"), alice, Denied, policy.Invalid},
		"a daemon's tolerations":                                 {pod("iron", "tolerations: [{key: node.kubernetes.io/disk-pressure, operator: Exists, effect: NoSchedule}]"), daemons, Allowed, ""},
		"a claim in its namespace":                               {claim("ml", "tolerations: [{key: a.example.com/b, operator: Exists, effect: NoSchedule}]"), alice, Allowed, ""},
		"a claim elsewhere":                                      {claim("iron", "tolerations: [{key: a.example.com/b, operator: Exists, effect: NoSchedule}]"), alice, Denied, policy.TolerationNotGranted},
		"a claim without tolerations":                            {claim("iron", ""), alice, Allowed, ""},
		"a node with a governed taint":                           {node("", "{key: dedicated, effect: NoSchedule}"), alice, Denied, policy.TaintNotGranted},
		"a node by those who may":                                {node("", "{key: dedicated, effect: NoSchedule}"), platform, Allowed, ""},
		"a node that is born with the taint":                     {node("pool: gold", ""), alice, Allowed, ""},
		"a rule over devices":                                    {rule("driver: d.example.com", "NoSchedule"), alice, Denied, policy.TaintNotGranted},
		"a rule by those who may, that selects every device":     {rule("", "NoSchedule"), platform, Warned, ""},
		"a namespace that gives itself what is granted":          {"{apiVersion: v1, kind: Namespace, metadata: {name: new, labels: {tier: gold}}}", alice, Denied, policy.LabelNotGranted},
		"a namespace by an administrator":                        {"{apiVersion: v1, kind: Namespace, metadata: {name: new, labels: {tier: gold}}}", Subject{User: "root", Groups: []string{"system:masters"}}, Allowed, ""},
		"an approval with what its schema has as a default":      {"{apiVersion: tollgate.dev/v1alpha1, kind: EvictionApproval, metadata: {name: a}, spec: {node: n1, taint: {key: k, effect: NoExecute}, maxPods: 1}}", alice, Allowed, ""},
		"a claim in another version that is the same":            {strings.Replace(claim("iron", "tolerations: [{key: a.example.com/b, operator: Exists, effect: NoSchedule}]"), "k8s.io/v1", "k8s.io/v1beta2", 1), alice, Denied, policy.TolerationNotGranted},
		"a version that is not":                                  {strings.Replace(claim("ml", ""), "k8s.io/v1", "k8s.io/v1beta1", 1), alice, Undecided, ""},
		"a field that there is not":                              {pod("iron", "tolerationz: []"), alice, Undecided, ""},
		"a slice by somebody who is no driver":                   {"{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: d.example.com, pool: {name: p, generation: 1, resourceSliceCount: 1}, devices: [{name: a, taints: [{key: k, effect: NoSchedule}]}]}}", alice, Denied, policy.TaintNotGranted},
		"a slice without taints":                                 {"{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: d.example.com, pool: {name: p, generation: 1, resourceSliceCount: 1}, devices: [{name: a}]}}", alice, Allowed, ""},
		"a policy that is not valid":                             {"{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: a}, spec: {taints: [{key: a//b}]}}", alice, Denied, policy.Invalid},
		"a mirror that a kubelet makes is not given anything":    {"{apiVersion: v1, kind: Pod, metadata: {name: m, namespace: gold, annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: n1, nodeSelector: {pool: x}, tolerations: [{operator: Exists}]}}", Subject{User: "system:node:n1", Groups: []string{"system:nodes"}}, Allowed, policy.PassNotGranted},
		"a workload that makes pods of another node than theirs": {template("iron", "nodeName: tainted"), alice, Denied, policy.TaintNotTolerated},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			checker := checkerOf(t, dedicated)
			objects := parsed(t, c.object)
			require.True(t, checker.Judged(objects[0].Unstructured))
			result := checker.Judge(t.Context(), objects[0], c.by)
			require.Equal(t, c.want, result.Verdict, "%+v", result)
			if c.reason == "" {
				require.Empty(t, result.Findings)
				return
			}
			require.NotEmpty(t, result.Findings)
			require.Equal(t, c.reason, result.Findings[0].Reason)
			require.NotEmpty(t, result.Findings[0].Field)
		})
	}
}

func TestManyObjectsAreJudgedAtOnce(t *testing.T) {
	t.Parallel()
	// More than the webhook would read of an API server in a second.
	checker := checkerOf(t, dedicated)
	for range 1000 {
		result := checker.Judge(t.Context(), parsed(t, pod("gold", "nodeName: none, runtimeClassName: none"))[0], Subject{})
		require.NotEqual(t, Undecided, result.Verdict, result.Message)
	}
}

func TestNotAskedAbout(t *testing.T) {
	t.Parallel()
	checker := checkerOf(t, dedicated)
	for object, judged := range map[string]bool{
		pod("kube-system", ""):     false,
		pod("tollgate-system", ""): false,
		pod("iron", ""):            true,
		"{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}":    false,
		"{apiVersion: v1, kind: Service, metadata: {name: s}}":                false,
		"{apiVersion: v1, kind: Node, metadata: {name: kube-system}}":         true,
		"{apiVersion: example.com/v1, kind: Deployment, metadata: {name: a}}": false,
		"{apiVersion: v1, kind: Pod, metadata: {name: a}}":                    true,
	} {
		require.Equal(t, judged, checker.Judged(parsed(t, object)[0].Unstructured), object)
	}
}

func TestNotesSayWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	checker := checkerOf(t, dedicated)
	require.Empty(t, checker.Notes())
	checker.Judge(t.Context(), parsed(t, pod("gold", ""))[0], Subject{})
	require.Empty(t, checker.Notes())
	checker.Judge(t.Context(), parsed(t, pod("iron", "tolerations: [{key: dedicated}]"))[0], Subject{})
	notes := strings.Join(checker.Notes(), "\n")
	require.Contains(t, notes, "needs --cluster")
	require.Contains(t, notes, "namespace iron is not among the manifests")
}

func TestTS06SpreadThatCountsWhatPodsCannotUseIsWarnedOf(t *testing.T) {
	t.Parallel()
	const spread = "topologySpreadConstraints: [{topologyKey: pool, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]"
	const labelled = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: iron, labels: {app: web}}, spec: {%s}}"
	const nodes = `
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {pool: a}}}
---
{apiVersion: v1, kind: Node, metadata: {name: b, labels: {pool: b}}, spec: {taints: [{key: broken, effect: NoSchedule}]}}
---
`
	workload := strings.Replace(template("iron", spread), "template: {", "template: {metadata: {labels: {app: web}}, ", 1)
	for sentence, c := range map[string]struct {
		text, object string
		off          bool
		want         string
		note         bool
	}{
		"a pod":                             {nodes, fmt.Sprintf(labelled, spread), false, "spec.topologySpreadConstraints[0]: topologyKey pool counts b, ", false},
		"a workload":                        {nodes, workload, false, "spec.template.spec.topologySpreadConstraints[0]: topologyKey pool counts b, ", false},
		"a DaemonSet is not spread":         {nodes, strings.Replace(workload, "Deployment", "DaemonSet", 1), false, "", false},
		"a pod that tolerates the taint":    {nodes, fmt.Sprintf(labelled, spread+", tolerations: [{key: broken}]"), false, "", false},
		"a constraint that asks for little": {nodes, fmt.Sprintf(labelled, strings.Replace(spread, "DoNotSchedule", "ScheduleAnyway", 1)), false, "", false},
		"a constraint that honors taints":   {nodes, fmt.Sprintf(labelled, strings.Replace(spread, "maxSkew", "nodeTaintsPolicy: Honor, maxSkew", 1)), false, "", false},
		"where no node is known":            {"", fmt.Sprintf(labelled, spread), false, "", true},
		"where nodes are not followed":      {nodes, fmt.Sprintf(labelled, spread), true, "", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			checker := checkerOf(t, c.text, func(config *configv1alpha1.TollgateConfiguration) {
				config.FeatureGates = map[string]bool{"NodeTaintEviction": !c.off}
			})
			result := checker.Judge(t.Context(), parsed(t, c.object)[0], Subject{User: "alice"})
			require.Equal(t, c.note, strings.Contains(strings.Join(checker.Notes(), "\n"), "there are no nodes among the manifests"))
			if c.want == "" {
				require.Equal(t, Allowed, result.Verdict, "%+v", result)
				return
			}
			require.Equal(t, Warned, result.Verdict, "%+v", result)
			require.Len(t, result.Warnings, 1)
			require.Contains(t, result.Warnings[0], c.want)
		})
	}
}

func TestALimitOnPodsIsNotKnown(t *testing.T) {
	t.Parallel()
	checker := checkerOf(t, `{apiVersion: tollgate.dev/v1alpha1, kind: TaintPolicy, metadata: {name: l}, spec: {taints: [{key: k}], setters: [{subjects: [{kind: User, name: alice}]}], limits: {maxAffectedPods: 3}}}`)
	result := checker.Judge(t.Context(), parsed(t, node("", "{key: k, effect: NoExecute}"))[0], Subject{User: "alice"})
	require.Equal(t, Undecided, result.Verdict)
	require.Contains(t, result.Message, "kubectl apply --dry-run=server")
	require.Equal(t, Allowed, checker.Judge(t.Context(), parsed(t, node("", "{key: k, effect: NoSchedule}"))[0], Subject{User: "alice"}).Verdict)
}

func TestTheConfigurationCounts(t *testing.T) {
	t.Parallel()
	toleration := `tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 30}]`
	guarded := `{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: s}, spec: {taints: [{key: node.kubernetes.io/not-ready}]}}`
	for sentence, c := range map[string]struct {
		change func(*configv1alpha1.TollgateConfiguration)
		want   Verdict
	}{
		"by default":         {func(*configv1alpha1.TollgateConfiguration) {}, Denied},
		"with other seconds": {func(c *configv1alpha1.TollgateConfiguration) { c.Admission.DefaultNotReadyTolerationSeconds = 30 }, Allowed},
		"with the feature off": {func(c *configv1alpha1.TollgateConfiguration) {
			c.FeatureGates = map[string]bool{"TolerationPolicies": false}
		}, Allowed},
		"in Tollgate's namespace": {func(c *configv1alpha1.TollgateConfiguration) { c.Namespace = "iron" }, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			checker := checkerOf(t, guarded, c.change)
			object := parsed(t, pod("iron", toleration))[0]
			require.Equal(t, c.want != "", checker.Judged(object.Unstructured))
			if c.want != "" {
				require.Equal(t, c.want, checker.Judge(t.Context(), object, Subject{}).Verdict)
			}
		})
	}
}

func TestPodsOfWorkloadsAreJudgedAsTheirControllersMakeThem(t *testing.T) {
	t.Parallel()
	daemons := strings.Replace(template("iron", "hostNetwork: true"), "Deployment", "DaemonSet", 1)
	tolerated := template("gold", "tolerations: [{key: dedicated, operator: Exists}]")
	text := dedicated + "\n---\n" + daemons + "\n---\n" + tolerated + "\n---\n" + `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: system}
spec: {taints: [{key: node.kubernetes.io/*}]}
`
	for sentence, c := range map[string]struct {
		object string
		want   Verdict
	}{
		"they inherit what their template was granted": {tolerated, Allowed},
		"daemons tolerate what they always do":         {daemons, Allowed},
		"a contradiction":                              {strings.Replace(template("gold", "nodeSelector: {pool: iron}"), "web", "other", 1), Denied},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			result, ok := checkerOf(t, text).JudgePod(t.Context(), parsed(t, c.object)[0])
			require.True(t, ok)
			require.Equal(t, c.want, result.Verdict, "%+v", result)
			require.True(t, strings.HasSuffix(result.Name, "-*"))
		})
	}
	_, ok := checkerOf(t, text).JudgePod(t.Context(), parsed(t, pod("iron", ""))[0])
	require.False(t, ok)
}

func TestPoliciesThatAreNotValidAreNamedWithTheirPosition(t *testing.T) {
	t.Parallel()
	_, err := (Policies{}).With(parsed(t, `
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: a}
spec: {taints: [{key: "a//b"}]}
---
apiVersion: tollgate.dev/v1alpha1
kind: GatePolicy
metadata: {name: b}
spec: {gatez: []}
---
apiVersion: tollgate.dev/v1
kind: TaintPolicy
metadata: {name: c}
---
apiVersion: tollgate.dev/v1alpha1
kind: TaintPolicy
spec: {taints: [{key: a}]}
`))
	require.ErrorContains(t, err, "f:2: TolerationPolicy a: spec.taints[0].key: ")
	require.ErrorContains(t, err, `f:7: GatePolicy b: unknown field "spec.gatez"`)
	require.ErrorContains(t, err, "f:12: TaintPolicy c: apiVersion is tollgate.dev/v1, want tollgate.dev/v1alpha1")
	require.ErrorContains(t, err, "f:16: TaintPolicy : metadata.name: a policy has to have a name")
}

func TestPoliciesOfOneNameReplaceEachOther(t *testing.T) {
	t.Parallel()
	one := `{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: a}, spec: {taints: [{key: one}]}}`
	two := strings.Replace(one, "one", "two", 1)
	both, err := (Policies{}).With(parsed(t, one+"\n---\n"+two))
	require.NoError(t, err)
	require.Equal(t, 1, both.Len())
	require.Equal(t, "two", both.apart().tolerations[0].Spec.Taints[0].Key)

	stored := Policies{}
	for _, o := range parsed(t, one+"\n---\n"+strings.Replace(one, "name: a", "name: b", 1)) {
		require.NoError(t, stored.AddStored(o.Unstructured))
	}
	over := stored.Over(both)
	require.Len(t, over.apart().tolerations, 2)
	require.Equal(t, "two", over.apart().tolerations[0].Spec.Taints[0].Key)
	require.Error(t, stored.AddStored(parsed(t, pod("a", ""))[0].Unstructured))
}

func TestSubjectsAreInTheGroupsThatTheyAlwaysAreIn(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"system:authenticated"}, Subject{}.UserInfo().Groups)
	require.NotEmpty(t, Subject{}.UserInfo().Username)
	require.Equal(t, []string{"a", "system:authenticated"}, Subject{User: "alice", Groups: []string{"a", "system:authenticated"}}.UserInfo().Groups)
	require.Equal(t, []string{"system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"}, Subject{User: "system:serviceaccount:ci:bot"}.UserInfo().Groups)
	require.Empty(t, Subject{User: "system:anonymous"}.UserInfo().Groups)
	require.Equal(t, "user alice (groups a, b)", Subject{User: "alice", Groups: []string{"a", "b"}}.String())
	require.Equal(t, "nobody in particular", Subject{}.String())
}

func TestUIDsTellObjectsApart(t *testing.T) {
	t.Parallel()
	seen := map[types.UID]bool{}
	for _, text := range []string{pod("a", ""), pod("b", ""), template("a", ""), strings.Replace(pod("a", ""), "web", "wab", 1)} {
		seen[uidOf(parsed(t, text)[0].Unstructured)] = true
	}
	require.Len(t, seen, 4)
}
