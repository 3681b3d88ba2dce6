package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

const (
	decided  = v1alpha1.LimitScopeDecided
	selected = v1alpha1.LimitScopeSelected
)

func TestTheFirstPolicyThatSelectsAnEvictionGovernsIt(t *testing.T) {
	t.Parallel()
	policies := func(list ...v1alpha1.EvictionPolicy) []v1alpha1.EvictionPolicy { return list }
	tests := map[string]struct {
		policies []v1alpha1.EvictionPolicy
		taint    *Taint
		want     string // empty for none
	}{
		"without a policy nobody does":               {nil, nodeTaint("a"), ""},
		"one of another key does not":                {policies(newPolicy("p", "b")), nodeTaint("a"), ""},
		"one of its key does":                        {policies(newPolicy("p", "a")), nodeTaint("a"), "p"},
		"the highest priority does":                  {policies(newPolicy("a", "a"), newPolicy("b", "*", prioritized(1))), nodeTaint("a"), "b"},
		"a priority below zero is below none":        {policies(newPolicy("a", "a", prioritized(-1)), newPolicy("b", "*")), nodeTaint("a"), "b"},
		"the widest priorities do not overflow":      {policies(newPolicy("a", "a", prioritized(-1<<31)), newPolicy("b", "a", prioritized(1<<31-1))), nodeTaint("a"), "b"},
		"of one priority the older does":             {policies(newPolicy("a", "a"), newPolicy("b", "a", created(noon.Add(-time.Second)))), nodeTaint("a"), "b"},
		"of one age the first by name does":          {policies(newPolicy("b", "a"), newPolicy("a", "a")), nodeTaint("a"), "a"},
		"how exact a selector is does not matter":    {policies(newPolicy("z", "a"), newPolicy("a", "*")), nodeTaint("a"), "a"},
		"a star leaves out system keys of nodes":     {policies(newPolicy("p", "*")), nodeTaint(corev1.TaintNodeNotReady), ""},
		"unless they are named":                      {policies(newPolicy("p", "node.kubernetes.io/*")), nodeTaint(corev1.TaintNodeNotReady), "p"},
		"a policy of nodes is not about devices":     {policies(newPolicy("p", "*")), deviceTaint("gpu.example.com", "a"), ""},
		"nor one of devices about nodes":             {policies(newPolicy("p", "*", ofDevices())), nodeTaint("a"), ""},
		"one of the driver does":                     {policies(newPolicy("p", "a", ofDevices("gpu.example.com"))), deviceTaint("gpu.example.com", "a"), "p"},
		"one of another driver does not":             {policies(newPolicy("p", "a", ofDevices("nic.example.com"))), deviceTaint("gpu.example.com", "a"), ""},
		"one that selects the pod does":              {policies(newPolicy("p", "a", onPods(labelled("app", "web")))), nodeTaint("a"), "p"},
		"one that selects other pods does not":       {policies(newPolicy("a", "a", onPods(labelled("app", "db"))), newPolicy("b", "a")), nodeTaint("a"), "b"},
		"one that selects the namespace does":        {policies(newPolicy("p", "a", inNamespaces(labelled("team", "shop")))), nodeTaint("a"), "p"},
		"one that selects other namespaces does not": {policies(newPolicy("p", "a", inNamespaces(labelled("team", "bank")))), nodeTaint("a"), ""},
		"an empty selector selects everything":       {policies(newPolicy("p", "a", onPods(&metav1.LabelSelector{}), inNamespaces(&metav1.LabelSelector{}))), nodeTaint("a"), "p"},
		"one of another value does not": {policies(newPolicy("p", "a", func(p *v1alpha1.EvictionPolicy) {
			p.Spec.Taints[0].Values = []string{"v"}
		})), nodeTaint("a"), ""},
		"one of several selectors is enough": {policies(newPolicy("p", "b", func(p *v1alpha1.EvictionPolicy) {
			p.Spec.Taints = append(p.Spec.Taints, v1alpha1.TaintSelector{Key: "a"})
		})), nodeTaint("a"), "p"},
		"one of another effect does not": {policies(newPolicy("p", "a", func(p *v1alpha1.EvictionPolicy) {
			p.Spec.Taints[0].Effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule}
		})), nodeTaint("a"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				slices.Reverse(tt.policies) // D07 the order of a list says nothing
				got, err := Compile(tt.policies).For(tt.taint, web())
				require.NoError(t, err)
				if tt.want == "" {
					require.Zero(t, got)
					continue
				}
				require.Equal(t, tt.want, got.Policy.Name)
				require.False(t, got.Protected)
			}
		})
	}
}

func TestLimitsBindWhatAPolicyGovernsOrAllThatItSelects(t *testing.T) {
	t.Parallel()
	set := Compile([]v1alpha1.EvictionPolicy{
		newPolicy("governs", "a", prioritized(9), paced(1, decided), limited(1, decided), onPods(labelled("app", "web"))),
		newPolicy("bounds-the-cluster", "*", prioritized(-9), paced(9, selected), limited(9, selected)),
		newPolicy("bounds-its-own", "*", paced(5, ""), limited(5, "")),
		newPolicy("bounds-the-shop", "a", prioritized(5), limited(3, selected), inNamespaces(labelled("team", "shop"))),
		newPolicy("bounds-the-bank", "a", prioritized(5), limited(3, selected), inNamespaces(labelled("team", "bank"))),
		newPolicy("has-none", "*"),
	})
	got, err := set.For(nodeTaint("a"), web())
	require.NoError(t, err)
	require.Equal(t, "governs", got.Policy.Name)
	require.Equal(t, []string{"governs", "bounds-the-cluster"}, names(got.Paces))
	require.Equal(t, []string{"governs", "bounds-the-shop", "bounds-the-cluster"}, names(got.Breakers))

	db := web()
	db.Labels = nil
	db.NamespaceLabels = nil
	got, err = set.For(nodeTaint("b"), db)
	require.NoError(t, err)
	require.Equal(t, "bounds-its-own", got.Policy.Name)
	require.Equal(t, []string{"bounds-its-own", "bounds-the-cluster"}, names(got.Paces))
	require.Equal(t, []string{"bounds-its-own", "bounds-the-cluster"}, names(got.Breakers))

	require.Equal(t, []string{"governs", "bounds-the-bank", "bounds-the-shop", "bounds-its-own", "has-none", "bounds-the-cluster"}, names(set.All()))
}

func TestAListOfOneIsNotWrittenOverByTheNext(t *testing.T) {
	t.Parallel()
	set := Compile([]v1alpha1.EvictionPolicy{
		newPolicy("first", "a", prioritized(1), limited(1, decided)),
		newPolicy("second", "a", limited(2, selected), onPods(labelled("app", "web"))),
	})
	two, err := set.For(nodeTaint("a"), web())
	require.NoError(t, err)
	one, err := set.For(nodeTaint("a"), &Subject{})
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second"}, names(two.Breakers))
	require.Equal(t, []string{"first"}, names(one.Breakers))
}

func TestOnlyThePolicyThatGovernsProtects(t *testing.T) {
	t.Parallel()
	critical := func() *Subject {
		s := web()
		s.PriorityClassName = "system-node-critical"
		return s
	}
	tests := map[string]struct {
		policies []v1alpha1.EvictionPolicy
		subject  *Subject
		want     bool
	}{
		"by priority class":            {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", protecting(nil, "system-node-critical"))}, critical(), true},
		"not those of another class":   {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", protecting(nil, "system-cluster-critical"))}, critical(), false},
		"not those without a class":    {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", protecting(nil, "system-cluster-critical"))}, web(), false},
		"by the labels of the pod":     {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", protecting(labelled("app", "web")))}, web(), true},
		"not those with other labels":  {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", protecting(labelled("app", "db")))}, web(), false},
		"not those without labels":     {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", protecting(labelled("app", "db")))}, &Subject{}, false},
		"either of both will do":       {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", protecting(labelled("app", "db"), "system-node-critical"))}, critical(), true},
		"not where another one counts": {[]v1alpha1.EvictionPolicy{newPolicy("p", "a", protecting(labelled("app", "web"))), newPolicy("q", "a", prioritized(1))}, web(), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Compile(tt.policies).For(nodeTaint("a"), tt.subject)
			require.NoError(t, err)
			require.NotNil(t, got.Policy)
			require.Equal(t, tt.want, got.Protected)
		})
	}
}

func TestANamespaceThatIsNotKnownIsNoVerdict(t *testing.T) {
	t.Parallel()
	unknown := func() *Subject { return &Subject{Namespace: "new"} }
	asking := inNamespaces(labelled("team", "shop"))
	tests := map[string]struct {
		policies []v1alpha1.EvictionPolicy
		asks     string // empty for no error
	}{
		"when a policy that might govern asks for its labels": {
			[]v1alpha1.EvictionPolicy{newPolicy("p", "a", asking)}, "p",
		},
		"when one that might govern asks first": {
			[]v1alpha1.EvictionPolicy{newPolicy("p", "a", asking, prioritized(1)), newPolicy("q", "a")}, "p",
		},
		"when one below might bound it": {
			[]v1alpha1.EvictionPolicy{newPolicy("p", "a", asking, limited(1, selected)), newPolicy("q", "a", prioritized(1))}, "p",
		},
		"but it does not matter to one below that bounds its own": {
			[]v1alpha1.EvictionPolicy{newPolicy("p", "a", asking, limited(1, decided)), newPolicy("q", "a", prioritized(1))}, "",
		},
		"nor to one of another taint": {
			[]v1alpha1.EvictionPolicy{newPolicy("p", "b", asking), newPolicy("q", "a")}, "",
		},
		"nor to one of other pods": {
			[]v1alpha1.EvictionPolicy{newPolicy("p", "a", asking, onPods(labelled("app", "db"))), newPolicy("q", "a")}, "",
		},
		"nor to one of every namespace": {
			[]v1alpha1.EvictionPolicy{newPolicy("q", "a", inNamespaces(&metav1.LabelSelector{}))}, "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Compile(tt.policies).For(nodeTaint("a"), unknown())
			if tt.asks == "" {
				require.NoError(t, err)
				require.Equal(t, "q", got.Policy.Name)
				return
			}
			var asked *NamespaceUnknownError
			require.ErrorAs(t, err, &asked)
			require.Equal(t, NamespaceUnknownError{Namespace: "new", Policy: tt.asks}, *asked)
			require.EqualError(t, err, `EvictionPolicy/p asks for labels of namespace "new", which are not known`)
			require.Zero(t, got)
		})
	}
}

func TestASetCanDoWithoutATarget(t *testing.T) {
	t.Parallel()
	set := Compile([]v1alpha1.EvictionPolicy{newPolicy("p", "*")})
	got, err := set.Without(v1alpha1.TaintTargetNode).For(nodeTaint("a"), &Subject{})
	require.NoError(t, err)
	require.Zero(t, got)
	for _, other := range []*Set{set, set.Without(), set.Without(v1alpha1.TaintTargetDevice)} {
		got, err = other.For(nodeTaint("a"), &Subject{})
		require.NoError(t, err)
		require.NotNil(t, got.Policy)
	}
	require.Nil(t, (*Set)(nil).Without(v1alpha1.TaintTargetNode))
}

func TestNoSetSelectsNothing(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]*Set{"nil": nil, "zero": {}, "empty": Compile(nil)} {
		got, err := set.For(nodeTaint("a"), &Subject{})
		require.NoError(t, err, name)
		require.Zero(t, got, name)
		given, err := set.WindowsFor(v1alpha1.TaintTargetNode, &Subject{})
		require.NoError(t, err, name)
		require.Empty(t, given, name)
		require.Zero(t, set.Len(), name)
		require.Empty(t, set.All(), name)
		require.Empty(t, set.Windows(), name)
		require.Nil(t, set.ByUID("uid of p"), name)
		require.False(t, set.HasWindow(v1alpha1.TaintTargetNode, "a"), name)
	}
}
