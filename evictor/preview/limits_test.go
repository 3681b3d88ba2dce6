package preview

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/taint"
	"github.com/tollgate-dev/tollgate/tracker"
)

var (
	limitsNoon = time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	self       = authenticationv1.UserInfo{Username: "system:serviceaccount:tollgate-system:tollgate"}
)

// leader is a leader that knows pods and puts taints on nodes.
type leader struct {
	tracker   *tracker.Tracker
	ledger    *Ledger
	approvals *given
	allowed   error // what the authorizer fails with
	known     func() bool
	limits    *Limits
}

// given are approvals that a test gives.
type given struct {
	list []v1alpha1.EvictionApproval
	err  error
}

func (g *given) List(context.Context) ([]v1alpha1.EvictionApproval, error) { return g.list, g.err }

func newLeader(nodesKnown func() bool) *leader {
	clock := clocktesting.NewFakePassiveClock(limitsNoon)
	l := &leader{tracker: tracker.New(), approvals: &given{}, known: nodesKnown}
	l.ledger = NewLedger(&View{Tracker: l.tracker}, clock)
	l.limits = &Limits{
		View:   &View{Tracker: l.tracker, PodsKnown: limitsYes, NodesKnown: nodesKnown},
		Ledger: l.ledger, Approvals: l.approvals.List, Clock: clock,
		Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "", l.allowed
		}),
	}
	return l
}

func limitsYes() bool { return true }
func limitsNo() bool  { return false }

// node adds a node with pods.
func (l *leader) node(name string, pods int) *corev1.Node {
	l.tracker.SetNode(tracker.Node{Name: name, UID: types.UID(name)}, limitsNoon)
	for i := range pods {
		of := name + "-" + strconv.Itoa(i)
		l.tracker.SetPod(tracker.Pod{Key: tracker.Key{Namespace: "ns", Name: of, UID: types.UID(of)}, NodeName: name, Bound: limitsNoon.Add(-time.Hour)})
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": "banana"}}}
}

// keep asks for a taint on a node.
func (l *leader) keep(node *corev1.Node, set *taint.Set, effect corev1.TaintEffect) (Verdict, error) {
	return l.limits.Node(context.Background(), set, NodeWrite{
		Node: node, User: self, Given: []corev1.Taint{{Key: "dedicated", Value: "banana", Effect: effect}},
	})
}

// limiting is a policy that governs dedicated, and lets a write hit as many pods.
func limiting(name string, pods int32, change func(*v1alpha1.TaintPolicySpec)) v1alpha1.TaintPolicy {
	p := v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TaintPolicySpec{
		Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}},
		Limits: &v1alpha1.TaintLimits{MaxAffectedPods: &pods, Window: metav1.Duration{Duration: 10 * time.Minute}},
	}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func compiled(policies ...v1alpha1.TaintPolicy) *taint.Set { return taint.Compile(policies) }

func where(expression string) func(*v1alpha1.TaintPolicySpec) {
	return func(s *v1alpha1.TaintPolicySpec) {
		s.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}
	}
}

func approval(name, node string, pods int32) v1alpha1.EvictionApproval {
	return v1alpha1.EvictionApproval{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(limitsNoon)},
		Spec:       v1alpha1.EvictionApprovalSpec{Node: node, Taint: v1alpha1.ApprovedTaint{Key: "dedicated", Effect: corev1.TaintEffectNoExecute}, MaxPods: pods},
	}
}

func TestTheLeaderIsHeldToTheLimits(t *testing.T) {
	l := newLeader(limitsYes)
	set := compiled(limiting("p", 10, nil))
	first, second, big := l.node("n1", 6), l.node("n2", 6), l.node("big", 12)

	verdict, err := l.keep(first, set, corev1.TaintEffectNoExecute)
	require.NoError(t, err)
	require.False(t, verdict.Exceeded())
	verdict.Settle(true)
	require.Empty(t, first.Spec.Taints, "the node is not written to")

	verdict, err = l.keep(second, set, corev1.TaintEffectNoExecute)
	require.NoError(t, err)
	require.True(t, verdict.Exceeded(), "the first counts at once")
	require.Equal(t, policy.TooManyAffected, verdict.Findings[0].Reason)
	require.Equal(t, "TaintPolicy/p: spec.taints[0] (dedicated=banana:NoExecute): hits 6 pods, 12 together with the 6 that other writes of the last 10m hit; "+
		"at most 10 are allowed; to approve it, create an EvictionApproval with spec {node: n2, taint: {key: dedicated, effect: NoExecute}, maxPods: 6}",
		verdict.Findings[0].String(), "and nobody has to write it again")
	verdict.Settle(false)

	verdict, err = l.keep(second, set, corev1.TaintEffectNoSchedule)
	require.NoError(t, err)
	require.False(t, verdict.Exceeded(), "nobody is evicted")
	verdict.Settle(true)

	l.approvals.list = []v1alpha1.EvictionApproval{approval("a", "big", 12)}
	verdict, err = l.keep(big, set, corev1.TaintEffectNoExecute)
	require.NoError(t, err)
	require.False(t, verdict.Exceeded())
	require.Equal(t, []string{"beyond the limit of TaintPolicy/p, as approved by EvictionApproval/a"}, verdict.Beyond)
	verdict.Settle(true)
}

func TestAWriteOfTheLeaderThatIsNotMadeIsNotInTheWay(t *testing.T) {
	l := newLeader(limitsYes)
	set := compiled(limiting("p", 10, nil))
	first, second := l.node("n1", 6), l.node("n2", 6)
	verdict, err := l.keep(first, set, corev1.TaintEffectNoExecute)
	require.NoError(t, err)
	verdict.Settle(false)
	verdict, err = l.keep(second, set, corev1.TaintEffectNoExecute)
	require.NoError(t, err)
	require.False(t, verdict.Exceeded())
}

func TestMatchConditionsSeeTheWriteOfTheLeader(t *testing.T) {
	for name, tt := range map[string]struct {
		condition string
		exceeded  bool
	}{
		"who writes":                    {`request.userInfo.username.startsWith('system:serviceaccount:tollgate-system:')`, true},
		"another who does not":          {`request.userInfo.username == 'ann'`, false},
		"what is written":               {`request.resource.resource == 'nodes' && request.operation == 'UPDATE' && request.name == 'n1' && object.kind == 'Node'`, true},
		"the labels of the node":        {`object.metadata.labels.pool == 'apple'`, false},
		"the taint is new":              {`object.spec.taints.size() == 1 && !has(oldObject.spec.taints)`, true},
		"what the cache does not have":  {`object.status.nodeInfo.architecture2 == 'x'`, true},
		"somebody who may is not asked": {`authorizer.group('').resource('nodes').check('taint').allowed()`, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(limitsYes)
			verdict, err := l.keep(l.node("n1", 1), compiled(limiting("p", 0, where(tt.condition))), corev1.TaintEffectNoExecute)
			require.NoError(t, err)
			require.Equal(t, tt.exceeded, verdict.Exceeded())
		})
	}
}

func TestWhatIsNotKnownIsAFaultWhereALimitHolds(t *testing.T) {
	warns := func(s *v1alpha1.TaintPolicySpec) { s.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.Warn} }
	other := func(s *v1alpha1.TaintPolicySpec) { s.Taints[0].Key = "other" }
	for name, tt := range map[string]struct {
		leader *leader
		want   error
	}{
		"pods have not been read":      {newLeader(limitsNo), ErrUnread},
		"nodes are not followed":       {newLeader(nil), ErrUnfollowed},
		"nothing is followed, and nil": {&leader{tracker: tracker.New()}, ErrUnfollowed},
	} {
		t.Run(name, func(t *testing.T) {
			node := tt.leader.node("n1", 1)
			_, err := tt.leader.keep(node, compiled(limiting("p", 0, nil)), corev1.TaintEffectNoExecute)
			require.ErrorIs(t, err, tt.want)
			for _, set := range []*taint.Set{nil, compiled(limiting("p", 0, other)), compiled(limiting("p", 0, warns))} {
				verdict, err := tt.leader.keep(node, set, corev1.TaintEffectNoExecute)
				require.NoError(t, err)
				require.False(t, verdict.Exceeded())
				verdict.Settle(true)
			}
			_, err = tt.leader.keep(node, compiled(limiting("p", 0, nil)), corev1.TaintEffectNoSchedule)
			require.NoError(t, err)
		})
	}
}

func TestAFaultHidesNoLimit(t *testing.T) {
	asks := where(`authorizer.group('').resource('nodes').check('taint').allowed()`)
	warns := func(s *v1alpha1.TaintPolicySpec) { s.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.Warn} }
	nobody, unread := errors.New("nobody answers"), errors.New("not read")
	for name, tt := range map[string]struct {
		policies []v1alpha1.TaintPolicy
		unread   error
		want     error
		findings int
	}{
		"a fault is no verdict":                     {[]v1alpha1.TaintPolicy{limiting("a", 0, asks)}, nil, nobody, 0},
		"nor beside a limit that is kept":           {[]v1alpha1.TaintPolicy{limiting("a", 0, asks), limiting("b", 1, nil)}, nil, nobody, 0},
		"another limit refuses":                     {[]v1alpha1.TaintPolicy{limiting("a", 0, asks), limiting("b", 0, nil)}, nil, nil, 1},
		"approvals that cannot be read":             {[]v1alpha1.TaintPolicy{limiting("a", 0, nil)}, unread, unread, 0},
		"and are not needed":                        {[]v1alpha1.TaintPolicy{limiting("a", 1, nil)}, unread, nil, 0},
		"and are, for a limit that does not refuse": {[]v1alpha1.TaintPolicy{limiting("a", 0, warns)}, unread, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(limitsYes)
			l.allowed, l.approvals.err = nobody, tt.unread
			node := l.node("n1", 1)
			verdict, err := l.keep(node, compiled(tt.policies...), corev1.TaintEffectNoExecute)
			require.ErrorIs(t, err, tt.want)
			require.Len(t, verdict.Findings, tt.findings)
			verdict.Settle(false)
			require.Zero(t, l.ledger.Others(Query{Window: time.Hour, Governs: func(*Hit) bool { return true }}))
		})
	}
}

func TestApprovalsAreReadFromTheCache(t *testing.T) {
	a := approval("a", "n1", 12)
	list, err := ListApprovals(listing{items: []v1alpha1.EvictionApproval{a}})(t.Context())
	require.NoError(t, err)
	require.Equal(t, []v1alpha1.EvictionApproval{a}, list)
}

// listing is a reader of approvals.
type listing struct {
	client.Reader

	items []v1alpha1.EvictionApproval
}

func (l listing) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*v1alpha1.EvictionApprovalList).Items = l.items
	return nil
}
