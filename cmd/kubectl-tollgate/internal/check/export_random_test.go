package check

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// dice makes up policies and requests.
type dice struct{ *rand.Rand }

// seedEnv says with which seed to start.
const seedEnv = "TOLLGATE_SEED"

// newDice says with which seed it starts, so that a failure can be had again.
func newDice(tb testing.TB) dice {
	tb.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(seedEnv); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(tb, err, seedEnv)
	}
	tb.Logf("%s=%d", seedEnv, seed)
	return diceOf(seed)
}

func diceOf(seed uint64) dice { return dice{rand.New(rand.NewPCG(seed, 1))} }

func pick[T any](d dice, items ...T) T { return items[d.IntN(len(items))] }

func some[T any](d dice, most int, items ...T) []T {
	picked := slices.Clone(items)
	d.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	return picked[:d.IntN(min(most, len(picked))+1)]
}

var (
	keys = []string{
		"dedicated", "other", "example.com/a", "example.com/b", "example.company/a", "node.kubernetes.io/not-ready",
		"node.kubernetes.io/unreachable", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/network-unavailable",
		"node.cloudprovider.kubernetes.io/shutdown",
	}
	values     = []string{"", "a", "b", "0", "5", "10", "05", "9223372036854775807"}
	numbers    = []string{"-1", "0", "5", "7", "10", "-9223372036854775808", "9223372036854775807"}
	effects    = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	classNames = []string{"gpu.example.com", "net.example.com", "other.example.com"}
	drivers    = []string{"gpu.example.com", "net.example.com"}
	names      = []string{"team-a", "team-b", "infra", "lone"}
	users      = []string{
		"jane", "jim", "root", "system:serviceaccount:infra:robot", "system:serviceaccount:kube-system:replicaset-controller",
		"system:serviceaccount:kube-system:node-controller", "system:serviceaccount:tollgate-system:tollgate",
	}
	groups = []string{"sre", "ops", "system:masters"}
)

// expressions are grants of users.
var expressions = []string{
	"toleration.key == 'dedicated'",
	"toleration.operator == 'Equal' && !has(toleration.operator)",
	"has(toleration.effect) && toleration.effect != 'NoExecute'",
	"toleration.tolerationSeconds < 100", // fails where there are none
	"!has(toleration.tolerationSeconds) || toleration.tolerationSeconds > 0",
	"has(toleration.key) ? toleration.key.startsWith('example.com/') : request.userInfo.username == 'jane'",
	"(pod != null ? pod : claim).metadata.?labels[?'app'].orValue('') == 'web' // a comment",
	"object.metadata.labels['app'] == 'web'", // fails where there is none
	"namespaceObject.metadata.labels.exists(l, l == 'tier') && toleration.value in ['a', '5']",
	"'sre' in request.userInfo.groups",
	"authorizer.group('tollgate.dev').resource('taints').name(toleration.key).check('tolerate').allowed()",
}

// conditions are of both kinds of policies.
var conditions = []string{
	"request.userInfo.username != 'root'",
	"object == null || object.metadata.?labels[?'app'].orValue('') != 'monitor'",
	"request.operation == 'DELETE' || object.metadata.labels['app'] != 'x'", // fails where there is none
	"request.operation != 'CREATE' || request.namespace != 'lone'",
}

func (d dice) subjects() []rbacv1.Subject {
	all := []rbacv1.Subject{
		{Kind: rbacv1.GroupKind, Name: pick(d, groups...)},
		{Kind: rbacv1.UserKind, Name: pick(d, "jane", "jim")},
		{Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: "infra"},
	}
	return append(some(d, 2, all...), pick(d, all...))
}

func (d dice) labelSelector() *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	switch d.IntN(3) {
	case 0:
		selector.MatchLabels = map[string]string{pick(d, "tier", "app"): pick(d, "gold", "web")}
	case 1:
		operator := pick(d, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn)
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: pick(d, "tier", "app"), Operator: operator, Values: []string{"gold", "web"}}}
	default:
		operator := pick(d, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: pick(d, "tier", "app"), Operator: operator}}
	}
	return selector
}

func (d dice) selector(device, ofTaints bool) v1alpha1.TaintSelector {
	s := v1alpha1.TaintSelector{
		Key: pick(d, append([]string{"*", "example.com/*", "node.kubernetes.io/*"}, keys...)...),
	}
	if d.IntN(2) == 0 {
		s.Values, s.Effects = some(d, 3, values...), some(d, 2, effects...)
	}
	if !device {
		return s
	}
	s.Target = v1alpha1.TaintTargetDevice
	if len(s.Effects) > 0 {
		s.Effects = some(d, 2, corev1.TaintEffect("None"), corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	}
	if ofTaints {
		s.Drivers = some(d, 2, drivers...)
	} else {
		s.DeviceClasses = some(d, 2, classNames...)
	}
	return s
}

func (d dice) grant() v1alpha1.TolerationGrant {
	var g v1alpha1.TolerationGrant
	which := 1 + d.IntN(31)
	if which&1 != 0 {
		g.Namespaces = slices.Compact(slices.Sorted(slices.Values(append(some(d, 2, names...), pick(d, "team-*", "i*", "lone", "*")))))
	}
	if which&2 != 0 {
		g.NamespaceSelector = d.labelSelector()
	}
	if which&4 != 0 {
		g.Subjects = d.subjects()
	}
	g.RBAC = which&24 == 8
	if which&24 == 16 {
		g.Expression = pick(d, expressions...)
	}
	if which&24 == 24 && which&7 == 0 {
		g.RBAC, g.Expression = true, pick(d, expressions...)
	}
	if d.IntN(3) == 0 {
		g.ObjectSelector = d.labelSelector()
	}
	if d.IntN(3) == 0 {
		g.MaxTolerationSeconds = new(pick[int64](d, 0, 10, 300, 599))
	}
	return g
}

func (d dice) conditions() []admissionregistrationv1.MatchCondition {
	var list []admissionregistrationv1.MatchCondition
	if d.IntN(4) == 0 {
		for i, text := range some(d, 2, conditions...) {
			list = append(list, admissionregistrationv1.MatchCondition{Name: "c" + strconv.Itoa(i), Expression: text})
		}
	}
	return list
}

func (d dice) actions() []v1alpha1.ValidationAction {
	return pick(d, nil, []v1alpha1.ValidationAction{v1alpha1.Deny}, []v1alpha1.ValidationAction{v1alpha1.Deny, v1alpha1.Audit}, []v1alpha1.ValidationAction{v1alpha1.Warn})
}

func (d dice) tolerationPolicy(name string, device bool) v1alpha1.TolerationPolicy {
	p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for range 1 + d.IntN(3) {
		p.Spec.Taints = append(p.Spec.Taints, d.selector(device, false))
	}
	for range d.IntN(4) {
		p.Spec.Grants = append(p.Spec.Grants, d.grant())
	}
	p.Spec.MatchConditions, p.Spec.ValidationActions = d.conditions(), d.actions()
	p.Spec.Message = pick(d, "", "ask \"platform\" \\ 'team'")
	p.Spec.MessageExpression = pick(d, "", "", "'not ' + toleration.key", "toleration.tolerationSeconds > 3 ? 'a' : 'b'")
	return p
}

func (d dice) toleration() corev1.Toleration {
	t := corev1.Toleration{
		Key:      pick(d, append([]string{"", ""}, keys...)...),
		Operator: pick[corev1.TolerationOperator](d, "", "Equal", "Exists", "Exists", "Exists", "Lt", "Gt"),
		Effect:   pick(d, append([]corev1.TaintEffect{""}, effects...)...),
	}
	if t.Key == "" {
		t.Operator = corev1.TolerationOpExists
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		t.Value = pick(d, numbers...)
	case corev1.TolerationOpEqual, "":
		t.Value = pick(d, values...)
	}
	if t.Effect == corev1.TaintEffectNoExecute && d.IntN(2) == 0 {
		t.TolerationSeconds = new(pick[int64](d, -5, 0, 10, 300, 600))
	}
	return t
}

func (d dice) tolerations(least int) []corev1.Toleration {
	list := make([]corev1.Toleration, least+d.IntN(5))
	for i := range list {
		list[i] = d.toleration()
		if i > 0 && d.IntN(8) == 0 {
			list[i] = list[i-1]
		}
	}
	return list
}

func (d dice) labels() map[string]string {
	labels := map[string]string{}
	for _, key := range some(d, 2, "app", "tier") {
		labels[key] = pick(d, "web", "monitor", "gold", "iron", "")
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

func (d dice) user() authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: pick(d, append(users, "jane", "jim", "jim")...), Groups: append(some(d, 2, groups...), "system:authenticated")}
}

// permissions are what RBAC allows, as "user verb key"; an empty key is every one.
func (d dice) permissions() authorizer.Authorizer {
	allowed := map[string]bool{}
	for range d.IntN(12) {
		who := pick(d, "jane", "jim", "system:serviceaccount:team-a:default", "system:serviceaccount:lone:runner")
		allowed[who+" "+pick(d, "tolerate", "taint")+" "+pick(d, append([]string{""}, keys...)...)] = true
	}
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		by := a.GetUser().GetName() + " " + a.GetVerb() + " "
		if a.GetResource() == "taints" && a.GetAPIGroup() == v1alpha1.GroupVersion.Group && (allowed[by+a.GetName()] || allowed[by]) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

// everybody may do everything.
var everybody = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
})
