package toleration

import (
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// The oracle knows nothing of selectors, indexes and grants that were compiled: it
// has a list of every taint there is and asks Kubernetes which of them a
// toleration tolerates.

var (
	universeKeys = []string{
		"dedicated", "other", "example.com/a", "example.com/b", "example.company/a",
		"node.kubernetes.io/not-ready", "node.cloudprovider.kubernetes.io/shutdown", "third.example/x",
	}
	universeValues  = []string{"", "a", "b", "-1", "0", "5", "10", "05", "-9223372036854775808", "9223372036854775807"}
	universeEffects = []corev1.TaintEffect{noSchedule, prefer, noExecute}
	universe        = everyTaint()
)

func everyTaint() []corev1.Taint {
	var taints []corev1.Taint
	for _, key := range universeKeys {
		for _, value := range universeValues {
			for _, effect := range universeEffects {
				taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: effect})
			}
		}
	}
	return taints
}

func oracleTolerates(tol *corev1.Toleration, taint *corev1.Taint) bool {
	return tol.ToleratesTaint(logr.Discard(), taint, true)
}

func oracleSelects(sel *v1alpha1.TaintSelector, taint *corev1.Taint) bool {
	prefix, name, slashed := strings.Cut(taint.Key, "/")
	system := slashed && name != "" && (prefix == "node.kubernetes.io" || prefix == "node.cloudprovider.kubernetes.io")
	key := sel.Key == taint.Key || (sel.Key == prefix+"/*" && slashed) || (sel.Key == "*" && !system)
	value := len(sel.Values) == 0 || slices.Contains(sel.Values, taint.Value)
	effect := len(sel.Effects) == 0 || slices.Contains(sel.Effects, taint.Effect)
	return key && value && effect
}

type dice struct{ *rand.Rand }

func newDice(t *testing.T) dice {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return dice{rand.New(rand.NewPCG(seed, 1))}
}

func pick[T any](d dice, items ...T) T { return items[d.IntN(len(items))] }

func some[T any](d dice, most int, items []T) []T {
	picked := slices.Clone(items)
	d.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	return picked[:d.IntN(min(most, len(picked))+1)]
}

func (d dice) selector() v1alpha1.TaintSelector {
	patterns := append([]string{"*", "example.com/*", "node.kubernetes.io/*"}, universeKeys...)
	return v1alpha1.TaintSelector{
		Key:     pick(d, patterns...),
		Values:  some(d, 3, universeValues),
		Effects: some(d, 2, universeEffects),
	}
}

func (d dice) toleration() corev1.Toleration {
	tol := corev1.Toleration{
		Key:      pick(d, append([]string{"", ""}, universeKeys...)...),
		Operator: pick[corev1.TolerationOperator](d, "", "Equal", "Exists", "Exists", "Lt", "Gt"),
		Effect:   pick(d, "", noSchedule, prefer, noExecute),
	}
	switch tol.Operator {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		tol.Value = pick(d, "-1", "0", "5", "7", "10", "-9223372036854775808", "9223372036854775807")
	case corev1.TolerationOpEqual, "":
		tol.Value = pick(d, universeValues...)
	}
	if tol.Effect == noExecute && d.IntN(2) == 0 {
		tol.TolerationSeconds = new(pick[int64](d, -5, 0, 10, 300, 600))
	}
	return tol
}

func (d dice) grant() v1alpha1.TolerationGrant {
	var g v1alpha1.TolerationGrant
	which := 1 + d.IntN(7)
	if which&1 != 0 {
		g.Namespaces = append(some(d, 2, []string{"team-a", "team-b", "infra"}), pick(d, "team-*", "i*", "lone", "*"))
	}
	if which&2 != 0 {
		g.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": pick(d, "gold", "iron")}}
	}
	if which&4 != 0 {
		g.Subjects = []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: pick(d, "sre", "ops")}, {Kind: rbacv1.UserKind, Name: pick(d, "jane", "jim")}}
	}
	if d.IntN(3) == 0 {
		g.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(d, "web", "monitor")}}
	}
	if d.IntN(3) == 0 {
		g.MaxTolerationSeconds = new(pick[int64](d, 0, 10, 300, 599))
	}
	return g
}

func (d dice) policy(name string) v1alpha1.TolerationPolicy {
	p := v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for range 1 + d.IntN(3) {
		p.Spec.Taints = append(p.Spec.Taints, d.selector())
	}
	for range d.IntN(3) {
		p.Spec.Grants = append(p.Spec.Grants, d.grant())
	}
	return p
}

func (d dice) policies(most int) []v1alpha1.TolerationPolicy {
	policies := make([]v1alpha1.TolerationPolicy, d.IntN(most+1))
	for i := range policies {
		policies[i] = d.policy("p" + strconv.Itoa(i))
	}
	return policies
}

func (d dice) input() Input {
	namespace := pick(d, "team-a", "team-c", "infra", "lone", "other")
	in := inputOf(namespace)
	in.NamespaceLabels["tier"] = pick(d, "gold", "iron", "lead")
	in.Labels = map[string]string{"app": pick(d, "web", "monitor")}
	in.User = authenticationv1.UserInfo{Username: pick(d, "jane", "joe"), Groups: []string{pick(d, "sre", "dev"), "system:authenticated"}}
	in.RequesterUnknown = d.IntN(4) == 0
	for range d.IntN(4) {
		in.Asked[0].New = append(in.Asked[0].New, d.toleration())
	}
	if d.IntN(2) == 0 {
		in.Asked[0].Old = some(d, len(in.Asked[0].New), in.Asked[0].New)
		for range d.IntN(2) {
			in.Asked[0].Old = append(in.Asked[0].Old, d.toleration())
		}
	}
	return in
}

// oracleRefused returns what must be refused, as "policy field".
func oracleRefused(policies []v1alpha1.TolerationPolicy, in Input) []string {
	pairs := []string{}
	old := slices.Clone(in.Asked[0].Old)
	for i := range in.Asked[0].New {
		tol := in.Asked[0].New[i]
		if at := slices.IndexFunc(old, func(o corev1.Toleration) bool { return oracleSame(o, tol) }); at >= 0 {
			old = slices.Delete(old, at, at+1)
			continue
		}
		if tol.Key == "node.kubernetes.io/not-ready" && tol.Operator == "Exists" && tol.TolerationSeconds != nil && *tol.TolerationSeconds == 300 {
			continue
		}
		for j := range policies {
			if !oracleAllows(&policies[j].Spec, &tol, in) {
				pairs = append(pairs, policies[j].Name+" "+in.Asked[0].Path.Index(i).String())
			}
		}
	}
	slices.Sort(pairs)
	return pairs
}

func oracleSame(a, b corev1.Toleration) bool {
	normal := func(t corev1.Toleration) string {
		seconds := "forever"
		if t.TolerationSeconds != nil {
			seconds = strconv.FormatInt(max(0, *t.TolerationSeconds), 10)
		}
		return strings.Join([]string{t.Key, strings.Replace(string(t.Operator)+"Equal", "EqualEqual", "Equal", 1), t.Value, string(t.Effect), seconds}, "|")
	}
	return normal(a) == normal(b)
}

func oracleAllows(spec *v1alpha1.TolerationPolicySpec, tol *corev1.Toleration, in Input) bool {
	guarded, evicts := false, false
	for _, taint := range universe {
		for i := range spec.Taints {
			if oracleTolerates(tol, &taint) && oracleSelects(&spec.Taints[i], &taint) {
				guarded = true
				evicts = evicts || taint.Effect == noExecute
			}
		}
	}
	granted := slices.ContainsFunc(spec.Grants, func(g v1alpha1.TolerationGrant) bool {
		named := len(g.Namespaces) == 0 || slices.ContainsFunc(g.Namespaces, func(pattern string) bool {
			ok, err := path.Match(pattern, in.Namespace)
			return ok && err == nil
		})
		labelled := g.NamespaceSelector == nil || g.NamespaceSelector.MatchLabels["tier"] == in.NamespaceLabels["tier"]
		object := g.ObjectSelector == nil || g.ObjectSelector.MatchLabels["app"] == in.Labels["app"]
		subject := len(g.Subjects) == 0 || in.RequesterUnknown || slices.ContainsFunc(g.Subjects, func(s rbacv1.Subject) bool {
			return (s.Kind == rbacv1.UserKind && s.Name == in.User.Username) || (s.Kind == rbacv1.GroupKind && slices.Contains(in.User.Groups, s.Name))
		})
		short := g.MaxTolerationSeconds == nil || !evicts ||
			(tol.Effect == noExecute && tol.TolerationSeconds != nil && *tol.TolerationSeconds <= *g.MaxTolerationSeconds)
		return named && labelled && object && subject && short
	})
	return !guarded || granted
}

func TestJudgeAgreesWithTheOracle(t *testing.T) {
	d := newDice(t)
	verdicts := map[policy.Verdict]int{}
	for range 2000 {
		policies, in := d.policies(4), d.input()
		got := judge(t, Compile(policies), in)
		pairs := refused(got)
		slices.Sort(pairs)
		want := oracleRefused(policies, in)
		require.Equal(t, want, pairs, "policies %+v, input %+v", policies, in)
		require.Equal(t, len(want) > 0, got.Verdict == policy.Denied)
		verdicts[got.Verdict]++
	}
	require.Greater(t, verdicts[policy.Allowed], 300)
	require.Greater(t, verdicts[policy.Denied], 300)
}
