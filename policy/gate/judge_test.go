package gate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

var (
	controller = rbacv1.Subject{Kind: "ServiceAccount", Namespace: "queue-system", Name: "queue-controller"}
	admins     = rbacv1.Subject{Kind: "Group", Name: "admins"}

	asController = authenticationv1.UserInfo{Username: "system:serviceaccount:queue-system:queue-controller"}
	asAdmin      = authenticationv1.UserInfo{Username: "root", Groups: []string{"admins"}}
	asAlice      = authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}}
)

func gatePolicy(name string, gates []string, owners ...rbacv1.Subject) v1alpha1.GatePolicy {
	return v1alpha1.GatePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.GatePolicySpec{Gates: gates, Owners: owners, ValidationActions: []v1alpha1.ValidationAction{v1alpha1.Deny}},
	}
}

func held(gates ...string) corev1.PodSpec {
	var spec corev1.PodSpec
	for _, gate := range gates {
		spec.SchedulingGates = append(spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	return spec
}

func steered(spec corev1.PodSpec, key, value string) corev1.PodSpec {
	spec.NodeSelector = map[string]string{key: value}
	return spec
}

func required(spec corev1.PodSpec, key string) corev1.PodSpec {
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}},
		}}},
	}}
	return spec
}

// found names a finding by policy, reason and field.
func found(d policy.Decision) []string {
	var names []string
	for _, f := range d.Findings {
		names = append(names, strings.TrimPrefix(f.Policy, "GatePolicy/")+" "+string(f.Reason)+" "+f.Field)
	}
	return names
}

func TestOnlyOwnersOpenAGateOrTightenBehindIt(t *testing.T) {
	t.Parallel()
	const queue = "example.com/queue"
	queued := gatePolicy("queue", []string{queue}, controller)
	tests := map[string]struct {
		policies []v1alpha1.GatePolicy
		who      authenticationv1.UserInfo
		old, pod corev1.PodSpec
		want     []string
	}{
		"an owner removes it":                         {[]v1alpha1.GatePolicy{queued}, asController, held(queue), held(), nil},
		"another removes it":                          {[]v1alpha1.GatePolicy{queued}, asAlice, held(queue), held(), []string{"queue GateNotOwned spec.schedulingGates"}},
		"another leaves it":                           {[]v1alpha1.GatePolicy{queued}, asAlice, held(queue), held(queue), nil},
		"another removes a gate that nobody guards":   {[]v1alpha1.GatePolicy{queued}, asAlice, held(queue, "example.com/mine"), held(queue), nil},
		"another removes one of two that are guarded": {[]v1alpha1.GatePolicy{gatePolicy("all", []string{"example.com/*"})}, asAlice, held(queue, "example.com/b"), held(queue), []string{"all GateNotOwned spec.schedulingGates"}},
		"another reorders gates":                      {[]v1alpha1.GatePolicy{queued}, asAlice, held(queue, "b"), held("b", queue), nil},
		"KEP-3838 an owner tightens and lets go in one update": {
			[]v1alpha1.GatePolicy{queued}, asController, held(queue), required(steered(held(), "zone", "a"), "gpu"), nil,
		},
		"SD-04 another tightens and lets go in one update": {
			[]v1alpha1.GatePolicy{queued}, asAlice, held(queue), required(steered(held(), "zone", "a"), "gpu"), []string{
				"queue GatedPodNotOwned spec.affinity.nodeAffinity", "queue GatedPodNotOwned spec.nodeSelector", "queue GateNotOwned spec.schedulingGates",
			},
		},
		"another adds a node selector":                              {[]v1alpha1.GatePolicy{queued}, asAlice, held(queue), steered(held(queue), "zone", "a"), []string{"queue GatedPodNotOwned spec.nodeSelector"}},
		"another changes the node affinity":                         {[]v1alpha1.GatePolicy{queued}, asAlice, required(held(queue), "a"), required(held(queue), "b"), []string{"queue GatedPodNotOwned spec.affinity.nodeAffinity"}},
		"another tightens behind a gate that nobody guards":         {[]v1alpha1.GatePolicy{queued}, asAlice, held("b"), steered(held("b"), "zone", "a"), nil},
		"another changes nothing behind the gate":                   {[]v1alpha1.GatePolicy{queued}, asAlice, steered(held(queue), "zone", "a"), steered(held(queue), "zone", "a"), nil},
		"a pod that waits for nothing":                              {[]v1alpha1.GatePolicy{queued}, asAlice, held(), steered(held(), "zone", "a"), nil},
		"a member of a group that owns it":                          {[]v1alpha1.GatePolicy{gatePolicy("queue", []string{queue}, controller, admins)}, asAdmin, held(queue), held(), nil},
		"every policy that names the gate is asked (C26)":           {[]v1alpha1.GatePolicy{queued, gatePolicy("all", []string{"example.com/*"}, admins)}, asController, held(queue), held(), []string{"all GateNotOwned spec.schedulingGates"}},
		"a policy that names it twice says so once":                 {[]v1alpha1.GatePolicy{gatePolicy("all", []string{queue, "example.com/*"})}, asAlice, held(queue), held(), []string{"all GateNotOwned spec.schedulingGates"}},
		"a policy without owners":                                   {[]v1alpha1.GatePolicy{gatePolicy("nobody", []string{queue})}, asAdmin, held(queue), held(), []string{"nobody GateNotOwned spec.schedulingGates"}},
		"a pattern is of whole prefixes":                            {[]v1alpha1.GatePolicy{gatePolicy("all", []string{"example.com/*"})}, asAlice, held("not.example.com/a", "example.com.evil/b", "example.com"), held(), nil},
		"a gate without a prefix":                                   {[]v1alpha1.GatePolicy{gatePolicy("hold", []string{"hold"})}, asAlice, held("hold"), held(), []string{"hold GateNotOwned spec.schedulingGates"}},
		"C18 a user whose name begins like the owner's":             {[]v1alpha1.GatePolicy{queued}, authenticationv1.UserInfo{Username: asController.Username + "x"}, held(queue), held(), []string{"queue GateNotOwned spec.schedulingGates"}},
		"C18 nobody is exempt without being named":                  {[]v1alpha1.GatePolicy{queued}, authenticationv1.UserInfo{Username: "root", Groups: []string{"system:masters"}}, held(queue), held(), []string{"queue GateNotOwned spec.schedulingGates"}},
		"preferences are node affinity too":                         {[]v1alpha1.GatePolicy{queued}, asAlice, held(queue), corev1.PodSpec{SchedulingGates: held(queue).SchedulingGates, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}}}}, []string{"queue GatedPodNotOwned spec.affinity.nodeAffinity"}},
		"an empty selector is none":                                 {[]v1alpha1.GatePolicy{queued}, asAlice, held(queue), corev1.PodSpec{SchedulingGates: held(queue).SchedulingGates, NodeSelector: map[string]string{}}, nil},
		"no policies":                                               {nil, asAlice, held(queue), held(), nil},
		"a policy with a gate that cannot be one guards the others": {[]v1alpha1.GatePolicy{gatePolicy("queue", []string{"*", queue})}, asAlice, held(queue, "b"), held(), []string{"queue GateNotOwned spec.schedulingGates"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Compile(tt.policies).Judge(&tt.who, &tt.pod, &tt.old)
			require.Equal(t, tt.want, found(d))
			require.Equal(t, len(tt.want) == 0, d.Verdict == policy.Allowed)
		})
	}
}

func TestADenialNamesPolicyFieldValueAndWhoMay(t *testing.T) {
	t.Parallel()
	p := gatePolicy("queue", []string{"example.com/queue"}, controller, admins, rbacv1.Subject{Kind: "User", Name: "carol"}, rbacv1.Subject{Kind: "User"})
	p.Spec.Message = "ask the queue team"
	old, pod := held("example.com/queue"), held()
	d := Compile([]v1alpha1.GatePolicy{p}).Judge(&asAlice, &pod, &old)
	require.Len(t, d.Findings, 1)
	require.Equal(t, "GatePolicy/queue: spec.schedulingGates (example.com/queue): only an owner of the gate may remove it: ask the queue team; "+
		"allowed to service account queue-system/queue-controller, group admins, user carol (the policy is not fully in force, see its status)", d.Findings[0].String())
}

func TestActionsSayWhatAViolationLeadsTo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		actions []v1alpha1.ValidationAction
		denied  bool
	}{
		"none is Deny":          {nil, true},
		"Deny":                  {[]v1alpha1.ValidationAction{v1alpha1.Deny}, true},
		"Warn and Audit":        {[]v1alpha1.ValidationAction{v1alpha1.Warn, v1alpha1.Audit}, false},
		"an unknown one denies": {[]v1alpha1.ValidationAction{v1alpha1.Audit, "Hope"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gatePolicy("p", []string{"g"})
			p.Spec.ValidationActions = tt.actions
			old, pod := held("g"), held()
			d := Compile([]v1alpha1.GatePolicy{p}).Judge(&asAlice, &pod, &old)
			require.Equal(t, tt.denied, d.Verdict == policy.Denied)
			require.Len(t, d.Findings, 1)
		})
	}
}

func TestTheBoundOfFindingsDoesNotChangeTheVerdict(t *testing.T) {
	t.Parallel()
	audit := gatePolicy("a-audit", []string{"example.com/*"})
	audit.Spec.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.Audit}
	deny := gatePolicy("z-deny", []string{"example.com/last"})
	gates := make([]string, 0, 101)
	for i := range 100 {
		gates = append(gates, fmt.Sprintf("example.com/g%d", i))
	}
	old, pod := held(append(gates, "example.com/last")...), held()
	d := Compile([]v1alpha1.GatePolicy{audit, deny}).Judge(&asAlice, &pod, &old)
	require.Equal(t, policy.Denied, d.Verdict)
	require.LessOrEqual(t, len(d.Findings), policy.MaxFindings)
	require.True(t, slices.ContainsFunc(d.Findings, func(f policy.Finding) bool { return f.Reason == policy.MoreFindings }))
}

func TestTheOrderOfPoliciesDoesNotMatter(t *testing.T) {
	t.Parallel()
	var policies []v1alpha1.GatePolicy
	for i := range 20 {
		policies = append(policies, gatePolicy(fmt.Sprintf("p%02d", i), []string{"example.com/*", fmt.Sprintf("example.com/g%d", i%4)}))
	}
	old := steered(held("example.com/g0", "example.com/g1", "hold"), "zone", "a")
	pod := held("hold")
	want := Compile(policies).Judge(&asAlice, &pod, &old)
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		random.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		require.Equal(t, want, Compile(policies).Judge(&asAlice, &pod, &old))
	}
}

func TestNoSetAllows(t *testing.T) {
	t.Parallel()
	var none *Set
	old, pod := held("g"), held()
	require.Equal(t, policy.Allowed, none.Judge(&asAlice, &pod, &old).Verdict)
	require.Zero(t, none.Len())
	require.Equal(t, policy.Allowed, new(Set).Judge(&asAlice, &pod, &old).Verdict)
}
