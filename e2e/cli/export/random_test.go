package export

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// dice makes up policies and requests.
type dice struct{ *rand.Rand }

// seedEnv says with which seed to start.
const seedEnv = "TOLLGATE_SEED"

// newDice says with which seed it starts, so that a failure can be had again.
func newDice(t *testing.T) dice {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(seedEnv); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, seedEnv)
	}
	t.Logf("%s=%d", seedEnv, seed)
	return dice{rand.New(rand.NewPCG(seed, 1))}
}

func pick[T any](d dice, items ...T) T { return items[d.IntN(len(items))] }

func some[T any](d dice, most int, items ...T) []T {
	picked := slices.Clone(items)
	d.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	return picked[:d.IntN(min(most, len(picked))+1)]
}

var (
	keys = []string{
		"dedicated", "other", "example.com/a", "example.com/b", "example.company/a",
		"node.kubernetes.io/not-ready", "node.kubernetes.io/memory-pressure", "node.kubernetes.io/network-unavailable",
	}
	values     = []string{"", "a", "b", "5", "10"}
	effects    = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	namespaces = []string{"team-a", "team-b", "infra", "lone"}
	classes    = []string{"gpu.example.com", "net.example.com"}
)

// people are who sends requests, and their groups beside that of all tenants.
var people = []struct {
	name   string
	groups []string
}{
	{"jane", nil},
	{"jane", []string{"sre"}},
	{"jim", nil},
	{"jim", []string{"ops", "sre"}},
	{"root", []string{"ops"}},
	{"system:serviceaccount:infra:robot", []string{"system:serviceaccounts", "system:serviceaccounts:infra"}},
}

// expressions are grants of users.
var expressions = []string{
	"toleration.key == 'dedicated' || !has(toleration.key)",
	"has(toleration.effect) && toleration.tolerationSeconds < 100", // fails where there are none
	"(pod != null ? pod : claim).metadata.?labels[?'app'].orValue('') == 'web'",
	"object.metadata.labels['app'] == 'web'", // fails where there is none
	"'sre' in request.userInfo.groups && namespaceObject.metadata.name.startsWith('team-')",
	"authorizer.group('tollgate.dev').resource('taints').name(toleration.key).check('tolerate').allowed()",
}

// setterExpressions are setters of users.
var setterExpressions = []string{
	"taint.key.startsWith('example.com/') && operation != 'Remove'",
	"has(taint.timeAdded)",
	"object.metadata.?labels[?'app'].orValue('') == 'web'",
}

// conditions are of both kinds of policies.
var conditions = []string{
	"request.userInfo.username != 'root'",
	"object.metadata.labels['app'] != 'monitor'", // fails where there is none
}

func (d dice) subjects() []rbacv1.Subject {
	all := []rbacv1.Subject{
		{Kind: rbacv1.GroupKind, Name: pick(d, "sre", "ops")},
		{Kind: rbacv1.UserKind, Name: pick(d, "jane", "jim")},
		{Kind: rbacv1.ServiceAccountKind, Name: "robot", Namespace: "infra"},
	}
	return append(some(d, 1, all...), pick(d, all...))
}

func (d dice) labelSelector() *metav1.LabelSelector {
	if d.IntN(2) == 0 {
		return &metav1.LabelSelector{MatchLabels: map[string]string{pick(d, "tier", "app"): pick(d, "gold", "web")}}
	}
	e := metav1.LabelSelectorRequirement{Key: pick(d, "tier", "app"), Operator: pick(d, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
	if e.Operator == metav1.LabelSelectorOpNotIn {
		e.Values = []string{"gold", "web"}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{e}}
}

func (d dice) selector(device bool) v1alpha1.TaintSelector {
	s := v1alpha1.TaintSelector{Key: pick(d, append([]string{"*", "example.com/*", "node.kubernetes.io/*"}, keys...)...), Target: v1alpha1.TaintTargetNode}
	if d.IntN(2) == 0 {
		s.Values = some(d, 2, values...)
	}
	if d.IntN(2) == 0 {
		s.Effects = some(d, 2, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	}
	if device {
		s.Target, s.DeviceClasses = v1alpha1.TaintTargetDevice, some(d, 1, classes...)
	}
	return s
}

func (d dice) grant() v1alpha1.TolerationGrant {
	var g v1alpha1.TolerationGrant
	switch d.IntN(5) {
	case 0:
		g.Namespaces = []string{pick(d, "team-*", "i*", "lone")}
	case 1:
		g.NamespaceSelector = d.labelSelector()
	case 2:
		g.Subjects = d.subjects()
	case 3:
		g.RBAC = true
	default:
		g.Expression = pick(d, expressions...)
	}
	if d.IntN(3) == 0 {
		g.ObjectSelector = d.labelSelector()
	}
	if d.IntN(3) == 0 {
		g.MaxTolerationSeconds = new(pick[int64](d, 0, 10, 300))
	}
	return g
}

func (d dice) conditions() []admissionregistrationv1.MatchCondition {
	var list []admissionregistrationv1.MatchCondition
	if d.IntN(5) == 0 {
		for i, text := range some(d, 2, conditions...) {
			list = append(list, admissionregistrationv1.MatchCondition{Name: "c" + strconv.Itoa(i), Expression: text})
		}
	}
	return list
}

func (d dice) actions() []v1alpha1.ValidationAction {
	return []v1alpha1.ValidationAction{pick(d, v1alpha1.Deny, v1alpha1.Deny, v1alpha1.Deny, v1alpha1.Warn)}
}

func (d dice) tolerationPolicy(name string) v1alpha1.TolerationPolicy {
	p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	device := d.IntN(3) == 0
	for range 1 + d.IntN(3) {
		p.Spec.Taints = append(p.Spec.Taints, d.selector(device))
	}
	for range d.IntN(4) {
		p.Spec.Grants = append(p.Spec.Grants, d.grant())
	}
	p.Spec.MatchConditions, p.Spec.ValidationActions = d.conditions(), d.actions()
	p.Spec.Message = pick(d, "", `ask "platform"`)
	return p
}

func (d dice) taintPolicy(name string) v1alpha1.TaintPolicy {
	p := v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for range 1 + d.IntN(2) {
		p.Spec.Taints = append(p.Spec.Taints, d.selector(false))
	}
	for range d.IntN(4) {
		var s v1alpha1.TaintSetter
		switch d.IntN(3) {
		case 0:
			s.RBAC = true
		case 1:
			s.Expression = pick(d, setterExpressions...)
		default:
			s.Subjects = d.subjects()
		}
		s.Operations = some(d, 2, v1alpha1.TaintAdd, v1alpha1.TaintChange, v1alpha1.TaintRemove)
		p.Spec.Setters = append(p.Spec.Setters, s)
	}
	p.Spec.MatchConditions, p.Spec.ValidationActions = d.conditions(), d.actions()
	return p
}

func (d dice) toleration() corev1.Toleration {
	t := corev1.Toleration{
		Key:      pick(d, append([]string{""}, keys...)...),
		Operator: pick[corev1.TolerationOperator](d, "", "Equal", "Exists", "Exists", "Lt", "Gt"),
		Effect:   pick(d, append([]corev1.TaintEffect{""}, effects...)...),
	}
	if t.Key == "" {
		t.Operator = corev1.TolerationOpExists
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		t.Value = pick(d, "-1", "5", "7", "10", "9223372036854775807", "-9223372036854775808")
	case corev1.TolerationOpEqual, "":
		t.Value = pick(d, values...)
	}
	if t.Effect == corev1.TaintEffectNoExecute && d.IntN(2) == 0 {
		t.TolerationSeconds = new(pick[int64](d, -5, 0, 10, 300, 600))
	}
	return t
}

func (d dice) tolerations() []corev1.Toleration {
	list := make([]corev1.Toleration, 1+d.IntN(5))
	for i := range list {
		list[i] = d.toleration()
	}
	return list
}

func (d dice) labels() map[string]string {
	labels := map[string]string{}
	for _, key := range some(d, 2, "app", "tier") {
		labels[key] = pick(d, "web", "monitor", "gold")
	}
	return labels
}
