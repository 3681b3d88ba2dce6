package taint

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

var (
	bananaTaint = v1alpha1.RegisteredTaint{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}
	bananaPool  = map[string]string{"pool": "banana"}
	notReadyYet = nodeTaint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoSchedule)
)

func asTaint(r v1alpha1.RegisteredTaint) corev1.Taint { return nodeTaint(r.Key, r.Value, r.Effect) }

func TestRegisterGivesTaintsByLabels(t *testing.T) {
	plain := newPolicy("a", "dedicated", registering(false, bananaPool, bananaTaint))
	kept := newPolicy("b", "dedicated", registering(true, bananaPool, bananaTaint))
	otherValue := newPolicy("c", "dedicated", registering(true, bananaPool, v1alpha1.RegisteredTaint{Key: "dedicated", Value: "apple", Effect: "NoSchedule"}))
	otherEffect := newPolicy("d", "dedicated", registering(false, bananaPool, v1alpha1.RegisteredTaint{Key: "dedicated", Value: "banana", Effect: "NoExecute"}))
	permutations([]v1alpha1.TaintPolicy{otherEffect, otherValue, kept, plain}, func(order []v1alpha1.TaintPolicy) {
		set := Compile(order)
		require.Empty(t, set.Register(map[string]string{"pool": "apple"}))
		got := set.Register(bananaPool)
		require.Len(t, got, 2)
		require.Equal(t, "a", got[0].Policy)
		require.Equal(t, asTaint(bananaTaint), got[0].Taint, "the first by name, of each key and effect")
		require.True(t, got[0].Reconcile, "kept if one of those that name the same taint asks for it")
		require.Equal(t, "d", got[1].Policy)
		require.False(t, got[1].Reconcile)
	})
	require.False(t, Compile([]v1alpha1.TaintPolicy{plain, otherValue}).Register(bananaPool)[0].Reconcile, "another value is not the same taint")
	require.False(t, (*Set)(nil).Registers())
	require.Empty(t, (*Set)(nil).Register(bananaPool))
}

func TestMissingIsWhatHasNoTaintOfTheKeyAndEffect(t *testing.T) {
	set := Compile([]v1alpha1.TaintPolicy{newPolicy("a", "dedicated", registering(true, bananaPool, bananaTaint))})
	require.Len(t, set.Missing(bananaPool, []corev1.Taint{notReadyYet}), 1)
	require.Empty(t, set.Missing(bananaPool, []corev1.Taint{asTaint(bananaTaint)}))
	require.Empty(t, set.Missing(bananaPool, []corev1.Taint{nodeTaint("dedicated", "apple", "NoSchedule")}))
	require.Empty(t, set.Missing(nil, nil))
}

func node(labels map[string]string, taints ...corev1.Taint) *Node {
	return &Node{Name: "n1", Labels: labels, Taints: taints}
}

func (n *Node) owned(by ...string) *Node {
	for _, name := range by {
		n.Owners = append(n.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "u"})
	}
	return n
}

func TestANodeKeepsWhatItIsBornWith(t *testing.T) {
	born := newPolicy("born", "dedicated", setBy("sre"), registering(false, bananaPool, bananaTaint))
	kept := newPolicy("kept", "dedicated", setBy("sre"), registering(true, bananaPool, bananaTaint))
	banana, apple := asTaint(bananaTaint), nodeTaint("dedicated", "apple", "NoSchedule")
	tests := map[string]struct {
		p        v1alpha1.TaintPolicy
		user     *authenticationv1.UserInfo
		now, old *Node
		want     []policy.Reason
	}{
		"C22 a node registers without its taint":        {born, kubelet, node(bananaPool, notReadyYet), nil, []policy.Reason{policy.RegisteredTaintMissing}},
		"C22 a node registers with another value":       {born, kubelet, node(bananaPool, apple), nil, []policy.Reason{policy.RegisteredTaintMissing}},
		"a node registers with its taint":               {born, kubelet, node(bananaPool, notReadyYet, banana), nil, []policy.Reason{}},
		"a node of another pool registers":              {born, kubelet, node(map[string]string{"pool": "apple"}), nil, []policy.Reason{}},
		"an administrator creates a node without":       {born, sre, node(bananaPool), nil, []policy.Reason{policy.RegisteredTaintMissing}},
		"a taint that is not kept is removed":           {born, sre, node(bananaPool), node(bananaPool, banana), []policy.Reason{}},
		"a taint that is kept is not, by nobody":        {kept, sre, node(bananaPool), node(bananaPool, banana), []policy.Reason{policy.RegisteredTaintRemoved}},
		"a taint that is kept is not changed":           {kept, sre, node(bananaPool, apple), node(bananaPool, banana), []policy.Reason{policy.RegisteredTaintRemoved}},
		"a taint that is kept goes with the labels":     {kept, sre, node(nil), node(bananaPool, banana), []policy.Reason{}},
		"one that another value stands for is nobody's": {kept, sre, node(bananaPool), node(bananaPool, apple), []policy.Reason{}},
		"C28 a node that lacks it is left alone":        {kept, sre, node(bananaPool, notReadyYet), node(bananaPool), []policy.Reason{}},
		"C23 taints that move are not removed":          {kept, sre, node(bananaPool, banana, notReadyYet), node(bananaPool, notReadyYet, banana), []policy.Reason{}},
		"C05 a node leaves the selector":                {born, kubelet, node(map[string]string{"pool": "x"}, banana), node(bananaPool, banana), []policy.Reason{policy.NodeLeavesSelector}},
		"C05 a node drops the label":                    {kept, kubelet, node(nil, banana), node(bananaPool, banana), []policy.Reason{policy.NodeLeavesSelector}},
		"a node changes other labels":                   {born, kubelet, node(map[string]string{"pool": "banana", "x": "y"}, banana), node(bananaPool, banana), []policy.Reason{}},
		"an administrator moves a node":                 {born, sre, node(nil, banana), node(bananaPool, banana), []policy.Reason{}},
		"C18 a user with the name of a node is not one": {born, &authenticationv1.UserInfo{Username: "system:node:n1"}, node(nil), node(bananaPool), []policy.Reason{}},
		"C22 a node says who owns it":                   {born, kubelet, node(nil).owned("x"), node(nil), []policy.Reason{policy.NodeOwned}},
		"C22 a node comes with an owner":                {born, kubelet, node(nil).owned("x"), nil, []policy.Reason{policy.NodeOwned}},
		"C22 a node drops its owner":                    {born, kubelet, node(nil), node(nil).owned("x"), []policy.Reason{policy.NodeOwned}},
		"an owner that stays":                           {born, kubelet, node(nil).owned("x"), node(nil).owned("x"), []policy.Reason{}},
		"an administrator says who owns a node":         {born, sre, node(nil).owned("x"), node(nil), []policy.Reason{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			found := Compile([]v1alpha1.TaintPolicy{tt.p}).JudgeNode(NodeChange{New: tt.now, Old: tt.old, User: tt.user})
			require.Equal(t, tt.want, reasons(policy.Decide(found)), "%v", found)
			for _, f := range found {
				if f.Reason != policy.NodeOwned {
					require.Equal(t, "TaintPolicy/"+tt.p.Name, f.Policy)
				}
			}
		})
	}
}

func TestC05ANodeDoesNotMoveToAnotherPool(t *testing.T) {
	apple := v1alpha1.RegisteredTaint{Key: "dedicated", Value: "apple", Effect: corev1.TaintEffectNoSchedule}
	set := Compile([]v1alpha1.TaintPolicy{newPolicy("pools", "dedicated",
		registering(true, bananaPool, bananaTaint), registering(true, map[string]string{"pool": "apple"}, apple))})
	moved := NodeChange{New: node(map[string]string{"pool": "apple"}), Old: node(bananaPool), User: kubelet}
	require.Equal(t, []policy.Reason{policy.NodeLeavesSelector}, reasons(policy.Decide(set.JudgeNode(moved))))
}

func TestARegisteredTaintIsRefusedAsThePolicySays(t *testing.T) {
	p := newPolicy("born", "dedicated", acting(v1alpha1.Warn), registering(false, bananaPool, bananaTaint))
	decision := policy.Decide(Compile([]v1alpha1.TaintPolicy{p}).JudgeNode(NodeChange{New: node(bananaPool), User: kubelet}))
	require.Equal(t, policy.Allowed, decision.Verdict)
	require.True(t, decision.Findings[0].Has(v1alpha1.Warn))
}

func TestChosenAreTheWritesThatAreTheRequesters(t *testing.T) {
	set := Compile([]v1alpha1.TaintPolicy{
		newPolicy("born", "*", registering(false, bananaPool, bananaTaint)),
		newPolicy("kept", "*", registering(true, map[string]string{"pool": "apple"}, bananaTaint)),
	})
	banana, own := asTaint(bananaTaint), nodeTaint("own", "", "NoSchedule")
	applePool := map[string]string{"pool": "apple"}
	tests := map[string]struct {
		user     *authenticationv1.UserInfo
		now, old *Node
		want     []string
	}{
		"a node registers with what it likes":       {kubelet, node(nil, own, notReadyYet), nil, nil},
		"C18 another node does not register for it": {&authenticationv1.UserInfo{Username: "system:node:n2", Groups: []string{"system:nodes"}}, node(nil, own), nil, []string{"own:NoSchedule"}},
		"C18 neither does one with its name alone":  {&authenticationv1.UserInfo{Username: "system:node:n1"}, node(nil, own), nil, []string{"own:NoSchedule"}},
		"an administrator creates a node":           {sre, node(nil, own, notReadyYet), nil, []string{"own:NoSchedule"}},
		"with what policies give it":                {sre, node(bananaPool, own, banana), nil, []string{"own:NoSchedule"}},
		"a taint of that key and another value":     {sre, node(bananaPool, nodeTaint("dedicated", "apple", "NoSchedule")), nil, []string{"dedicated=apple:NoSchedule"}},
		"one that is not kept is not put back":      {sre, node(bananaPool, banana), node(bananaPool), []string{"dedicated=banana:NoSchedule"}},
		"one that is kept is":                       {sre, node(applePool, banana), node(applePool), nil},
		"as of now":                                 {sre, node(applePool, at(banana, noon.Add(-3*time.Second))), node(applePool), nil},
		"one that is kept since a time they choose": {outside, node(applePool, at(banana, noon.Add(-time.Minute))), node(applePool), []string{"dedicated=banana:NoSchedule"}},
		"another time for one that is kept":         {outside, node(applePool, at(banana, noon.Add(-time.Hour))), node(applePool, at(banana, noon)), []string{"dedicated=banana:NoSchedule"}},
		"the value of one that is kept, back":       {outside, node(applePool, banana), node(applePool, nodeTaint("dedicated", "apple", "NoSchedule")), []string{"dedicated=banana:NoSchedule"}},
		"C05 one with the label that gives it":      {outside, node(applePool, banana), node(nil), []string{"dedicated=banana:NoSchedule"}},
		"C05 one with a label that makes it kept":   {outside, node(applePool, banana), node(bananaPool), []string{"dedicated=banana:NoSchedule"}},
		"C05 one that the node is given no more":    {outside, node(bananaPool, banana), node(applePool), []string{"dedicated=banana:NoSchedule"}},
		"a node that exists is not not ready":       {sre, node(nil, notReadyYet), node(nil), []string{"node.kubernetes.io/not-ready:NoSchedule"}},
		"what is removed is always chosen":          {sre, node(bananaPool), node(bananaPool, banana), []string{"dedicated=banana:NoSchedule"}},
		"a node does not change itself as it likes": {kubelet, node(nil, own), node(nil), []string{"own:NoSchedule"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var old []corev1.Taint
			if tt.old != nil {
				old = tt.old.Taints
			}
			var got []string
			for _, w := range set.Chosen(NodeChange{New: tt.now, Old: tt.old, User: tt.user}, NodeWrites(tt.now.Taints, old, noon), noon) {
				got = append(got, (&governed{Write: &w, operation: w.Operation}).named().String())
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestDriversAreServiceAccountsOnTheirOwnNode(t *testing.T) {
	account := func(nodes ...string) *authenticationv1.UserInfo {
		u := &authenticationv1.UserInfo{Username: "system:serviceaccount:gpu:driver", Extra: map[string]authenticationv1.ExtraValue{}}
		if len(nodes) > 0 {
			u.Extra["authentication.kubernetes.io/node-name"] = nodes
		}
		return u
	}
	tests := map[string]struct {
		user *authenticationv1.UserInfo
		node string
		want bool
	}{
		"on its node":                      {account("n1"), "n1", true},
		"C24 on another node":              {account("n1"), "n2", false},
		"of no node":                       {account("n1"), "", true},
		"C24 that runs nowhere":            {account(), "n1", false},
		"of no node and that runs nowhere": {account(), "", true},
		"a person":                         {outside, "", false},
		"a node":                           {kubelet, "n1", false},
		"C18 a name that looks like one":   {&authenticationv1.UserInfo{Username: "system:serviceaccount:gpu"}, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, PublishesSlice(tt.user, tt.node))
		})
	}
}

func TestChangedLabelsAreNamed(t *testing.T) {
	require.Equal(t, []string{"a", "b", "c"}, changedLabels(map[string]string{"a": "1", "b": "2", "d": "4"}, map[string]string{"b": "3", "c": "3", "d": "4"}))
	require.Empty(t, changedLabels(maps.Clone(bananaPool), bananaPool))
}
