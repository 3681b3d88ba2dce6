package handlers

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/preview"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/device"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// givenApprovals are approvals that a test gives.
type givenApprovals struct {
	list []v1alpha1.EvictionApproval
	err  error
}

func (g *givenApprovals) List(context.Context) ([]v1alpha1.EvictionApproval, error) {
	return g.list, g.err
}

// blast is a replica that knows pods, and judges what would evict them.
type blast struct {
	tracker   *tracker.Tracker
	ledger    *preview.Ledger
	clock     *clocktesting.FakePassiveClock
	registry  *prometheus.Registry
	approvals *givenApprovals
	unread    bool
	preview   *Preview
	policies  []v1alpha1.TaintPolicy
}

// limiting is a policy under which taints of example.com hit as many pods in ten
// minutes.
func limiting(limits v1alpha1.TaintLimits) v1alpha1.TaintPolicy {
	limits.Window = metav1.Duration{Duration: 10 * time.Minute}
	p := taintPolicies()[0]
	p.Name = "limits"
	p.Spec.Limits = &limits
	return p
}

func newBlast(t *testing.T, policies ...v1alpha1.TaintPolicy) *blast {
	t.Helper()
	b := &blast{
		tracker: tracker.New(), clock: clocktesting.NewFakePassiveClock(noon), approvals: &givenApprovals{}, policies: policies,
	}
	b.ledger = preview.NewLedger(&preview.View{Tracker: b.tracker}, b.clock)
	read := func() bool { return !b.unread }
	b.show(&preview.View{Tracker: b.tracker, PodsKnown: read, NodesKnown: read, DevicesKnown: read, BudgetsKnown: read})
	b.tracker.SetDevicesKnown(true)
	return b
}

// show has the preview look at what the options say.
func (b *blast) show(view *preview.View) {
	b.registry = prometheus.NewPedanticRegistry()
	b.preview = &Preview{
		View: view,
		Limits: &preview.Limits{
			View: view, Ledger: b.ledger, Approvals: b.approvals.List, Clock: b.clock,
		},
		Clock: b.clock, Metrics: NewPreviewMetrics(b.registry),
	}
}

// reviewer returns what the handlers of the replica decide by.
func (b *blast) reviewer() *reviewer {
	r := governedBy(b.policies...)
	r.ServerClock, r.Preview, r.DeviceTaints = b.clock, b.preview, b.tracker
	return r
}

// node adds a node with pods.
func (b *blast) node(name string, pods int) {
	b.tracker.SetNode(tracker.Node{Name: name, UID: types.UID(name)}, noon)
	for i := range pods {
		b.tracker.SetPod(podOn(name, i))
	}
}

func podOn(node string, i int) tracker.Pod {
	name := node + "-" + strconv.Itoa(i)
	return tracker.Pod{
		Key: tracker.Key{Namespace: "ns", Name: name, UID: types.UID(name)}, NodeName: node, Bound: noon.Add(-time.Hour),
		Origin: &tracker.Origin{OwnerKind: "ReplicaSet"},
	}
}

// user adds a pod that uses a device.
func (b *blast) user(name, dev string) {
	p := podOn("n1", 0)
	p.Key = tracker.Key{Namespace: "ns", Name: name, UID: types.UID(name)}
	p.Claims = []tracker.PodClaim{{Name: name}}
	b.tracker.SetPod(p)
	b.tracker.SetClaim(tracker.Claim{
		ClaimName: tracker.ClaimName{Namespace: "ns", Name: name}, UID: types.UID(name), Allocated: true,
		Devices:   []tracker.AllocatedDevice{{ID: device.ID{Driver: "gpu", Pool: "p", Name: dev}}},
		Consumers: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", UID: p.UID}},
	})
}

// taintNow returns a NoExecute taint as the mutator has stamped it.
func (b *blast) taintNow(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.NewTime(b.clock.Now().Truncate(time.Second)))}
}

// taints asks for taints on a node that had none, as somebody of sre.
func (b *blast) taints(t *testing.T, node string, dryRun bool, taints ...corev1.Taint) admission.Response {
	t.Helper()
	response, err := b.tryTaints(t, node, dryRun, taints...)
	require.NoError(t, err)
	return response
}

func (b *blast) tryTaints(t *testing.T, node string, dryRun bool, taints ...corev1.Taint) (admission.Response, error) {
	t.Helper()
	return answer(t.Context(), b.nodes(), asking(t, node, dryRun, taints...))
}

func (b *blast) nodes() Handler {
	return b.reviewer().handler(request.validateNode)
}

// asking returns the request of somebody of sre for taints on a node that had none.
func asking(t *testing.T, node string, dryRun bool, taints ...corev1.Taint) *review.Request {
	t.Helper()
	review := asUser(nodeReview(t, admissionv1.Update, nodeJSON(t, nil, taints...), nodeJSON(t, nil)), "ann", "sre")
	review.Request.Name, review.Request.DryRun = node, &dryRun
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	return req
}

// rule asks for a rule.
func (b *blast) rule(t *testing.T, object, old string) admission.Response {
	t.Helper()
	review := asUser(deviceReview(t, "devicetaintrules", "v1", object, old), "ann", "sre")
	review.Request.Name = ""
	return judged(t, b.reviewer().handler(request.validateRule), review)
}

func TestAWriteBeyondALimitIsRefused(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
	b.node("n1", 12)
	response := b.taints(t, "n1", false, b.taintNow("example.com/broken"))
	requireReason(t, "TooManyAffected", response)
	require.Equal(t, "spec.taints[0]", response.Result.Details.Causes[0].Field)
	require.Equal(t, "TaintPolicy/limits: spec.taints[0] (example.com/broken:NoExecute): hits 12 pods; at most 10 are allowed; to approve it, create an "+
		"EvictionApproval with spec {node: n1, taint: {key: example.com/broken, effect: NoExecute}, maxPods: 12}, then write this again", response.Result.Message)
	require.Equal(t, []string{"evicts 12 pods in 1 namespace: 12 now"}, response.Warnings)

	require.True(t, b.taints(t, "n1", false, b.taintNow("free.example.org/x")).Allowed, "no policy governs it")
	two := []corev1.Taint{b.taintNow("example.com/a"), b.taintNow("example.com/b")}
	require.Contains(t, b.taints(t, "n1", false, two...).Result.Message,
		"{node: n1, taint: {key: example.com/a, effect: NoExecute}, maxPods: 12} and another with spec {node: n1, taint: {key: example.com/b, effect: NoExecute}, maxPods: 12}")
}

func TestLimitsCountTogetherWhatIsWrittenInTheWindow(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
	for i := range 5 {
		b.node("n"+strconv.Itoa(i), 4)
	}
	require.True(t, b.taints(t, "n0", false, b.taintNow("example.com/broken")).Allowed)
	require.True(t, b.taints(t, "n4", true, b.taintNow("example.com/broken")).Allowed)
	require.True(t, b.taints(t, "n1", false, b.taintNow("example.com/broken")).Allowed, "a dry run is not in the way")
	require.True(t, b.taints(t, "n1", false, b.taintNow("example.com/broken")).Allowed, "nor is a write that is repeated")
	for _, dryRun := range []bool{true, false} {
		response := b.taints(t, "n2", dryRun, b.taintNow("example.com/broken"))
		requireReason(t, "TooManyAffected", response)
		require.Contains(t, response.Result.Message, "hits 4 pods, 12 together with the 8 that other writes of the last 10m hit; at most 10 are allowed")
	}
	// The first is seen, and its pods go; the second one never came to be.
	b.tracker.SetNode(tracker.Node{Name: "n0", UID: "n0", Taints: []corev1.Taint{b.taintNow("example.com/broken")}}, b.clock.Now())
	for i := range 4 {
		b.ledger.Leaving(podOn("n0", i).Key)
		b.tracker.DeletePod(podOn("n0", i).Key)
	}
	b.clock.SetTime(noon.Add(11 * time.Second))
	require.True(t, b.taints(t, "n3", false, b.taintNow("example.com/broken")).Allowed)
	requireReason(t, "TooManyAffected", b.taints(t, "n4", false, b.taintNow("example.com/broken")))
	b.clock.SetTime(noon.Add(11 * time.Minute))
	require.True(t, b.taints(t, "n4", false, b.taintNow("example.com/broken")).Allowed, "the window is over")
}

func TestAWriteThatIsRefusedIsNotInTheWay(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
	b.node("n1", 12)
	b.node("n2", 10)
	requireReason(t, "TooManyAffected", b.taints(t, "n1", false, b.taintNow("example.com/broken")))
	require.True(t, b.taints(t, "n2", false, b.taintNow("example.com/broken")).Allowed)
}

// TestOfWritesAtOnceNoMoreGetThroughThanTheLimitAllows judges them at the same moment.
func TestOfWritesAtOnceNoMoreGetThroughThanTheLimitAllows(t *testing.T) {
	const writes = 40
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))}))
	for i := range writes {
		b.node("n"+strconv.Itoa(i), 3)
	}
	var through atomic.Int32
	var running sync.WaitGroup
	for i := range writes {
		req := asking(t, "n"+strconv.Itoa(i), false, b.taintNow("example.com/broken"))
		running.Go(func() {
			response, err := answer(t.Context(), b.nodes(), req)
			if err == nil && response.Allowed {
				through.Add(1)
			}
		})
	}
	running.Wait()
	require.LessOrEqual(t, through.Load(), int32(3))
	require.Positive(t, through.Load())
}

func TestAShareOfThePodsOfTheCluster(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPercent: new(int32(10))}))
	b.node("n1", 11)
	b.node("n2", 88)
	response := b.taints(t, "n1", false, b.taintNow("example.com/broken"))
	requireReason(t, "TooManyAffected", response)
	require.Contains(t, response.Result.Message, "hits 11 pods of 99 in the cluster; at most 10 percent are allowed")
	b.tracker.SetPod(podOn("n2", 88))
	requireReason(t, "TooManyAffected", b.taints(t, "n1", false, b.taintNow("example.com/broken")))
	for i := range 10 {
		b.tracker.SetPod(podOn("n2", 89+i))
	}
	require.True(t, b.taints(t, "n1", false, b.taintNow("example.com/broken")).Allowed)
}

// labeledWrite asks for taints on node n1 that come with a label, as somebody.
func (b *blast) labeledWrite(t *testing.T, user []string, was, is map[string]string, taints ...corev1.Taint) admission.Response {
	t.Helper()
	review := asUser(nodeReview(t, admissionv1.Update, nodeJSON(t, is, taints...), nodeJSON(t, was)), user[0], user[1:]...)
	review.Request.Name = "n1"
	return judged(t, b.nodes(), review)
}

func TestC05TaintsThatPoliciesKeepAreLimitedWhoeverAddsThem(t *testing.T) {
	kept := limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(0))})
	kept.Spec.Register = []v1alpha1.TaintRegistration{{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "dark"}}, Reconcile: true,
		Taints: []v1alpha1.RegisteredTaint{{Key: "example.com/dark", Effect: corev1.TaintEffectNoExecute}},
	}}
	b := newBlast(t, kept)
	b.node("n1", 3)
	dark, outsider, sre := map[string]string{"pool": "dark"}, []string{"bob"}, []string{"ann", "sre"}
	taint := b.taintNow("example.com/dark")
	requireReason(t, "TaintNotGranted", b.labeledWrite(t, outsider, nil, dark, taint))
	requireReason(t, "TooManyAffected", b.labeledWrite(t, sre, nil, dark, taint))
	requireReason(t, "TooManyAffected", b.labeledWrite(t, outsider, dark, dark, taint))
}

func TestANodeThatIsNewIsLimitedByThePodsOfAnEarlierOne(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(2))}))
	for i := range 3 {
		b.tracker.SetPod(podOn("n1", i))
	}
	object := nodeJSON(t, nil, b.taintNow("example.com/broken"))
	create := func(user ...string) admission.Response {
		review := asUser(nodeReview(t, admissionv1.Create, object, ""), user[0], user[1:]...)
		review.Request.Name = "n1"
		return judged(t, b.nodes(), review)
	}
	requireReason(t, "TooManyAffected", create("ann", "sre"))
	require.True(t, create("system:node:n1", "system:nodes").Allowed, "a node registers with what it likes")
	b.tracker.DeletePod(podOn("n1", 0).Key)
	response := create("ann", "sre")
	requireReason(t, "", response)
	require.Equal(t, []string{"evicts 2 pods in 1 namespace: 2 now"}, response.Warnings)
}

func TestC25ASelectorOfUnknownFieldsIsLimitedAsIfItSelectedAll(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}))
	b.user("u0", "x0")
	b.user("u1", "x1")
	write := func(selector, old string) admission.Response {
		if old != "" {
			old = ruleJSON(old, "example.com/broken", "NoExecute")
		}
		review := asUser(deviceReview(t, "devicetaintrules", "v1alpha3", ruleJSON(selector, "example.com/broken", "NoExecute"), old), "ann", "sre")
		unobeyed := b.reviewer()
		unobeyed.WithoutDeviceTaintRules = true
		return judged(t, unobeyed.handler(request.validateRule), review)
	}
	requireReason(t, "TooManyAffected", write(`{"deviceClassName":"x"}`, ""))
	response := write(`{"deviceClassName":"x","device":"x0"}`, "")
	requireReason(t, "", response)
	require.Equal(t, []string{"evicts 1 pod in 1 namespace: 1 now", narrowerWarning}, response.Warnings)
	requireReason(t, "TooManyAffected", write(`{}`, `{"deviceClassName":"x"}`))
	requireReason(t, "TooManyAffected", write(`{"deviceClassName":"y"}`, `{"deviceClassName":"x"}`))
	requireReason(t, "", write(`{"deviceClassName":"x"}`, `{"deviceClassName":"x"}`))
	requireReason(t, "", write(`{"driver":"gpu"}`, `{"pool":"p"}`))
}

func TestALimitThatOnlyWarns(t *testing.T) {
	p := limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(10))})
	p.Spec.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.Warn}
	b := newBlast(t, p)
	b.node("n1", 12)
	response := b.taints(t, "n1", false, b.taintNow("example.com/broken"))
	require.True(t, response.Allowed)
	require.Len(t, response.Warnings, 2)
}

func TestARuleThatDoesNotDecodeDoesNotCountAgainstTheNextOnes(t *testing.T) {
	b := newBlast(t, limiting(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}))
	b.user("u0", "x0")
	b.user("u1", "x1")
	ask := func(object string) (admission.Response, error) {
		review := asUser(deviceReview(t, "devicetaintrules", "v1", object, ""), "ann", "sre")
		review.Request.Name = ""
		req, err := readRequest(marshal(t, review))
		require.NoError(t, err)
		return answer(t.Context(), b.reviewer().handler(request.validateRule), req)
	}
	rule := func(device string) string {
		return ruleJSON(`{"device":"`+device+`"}`, "example.com/broken", "NoExecute")
	}
	_, err := ask(strings.Replace(rule("x0"), `"name":"r"`, `"name":5`, 1))
	require.ErrorContains(t, err, "metadata.name: not a string")
	got, err := ask(rule("x1"))
	require.NoError(t, err)
	require.True(t, got.Allowed, "%v", got.Result)
}
