package handlers

import (
	"encoding/json"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

// currentPolicies are policies that do not change; nil ones have not been read.
type currentPolicies struct{ *policyset.Set }

func (c currentPolicies) Current() *policyset.Set { return c.Set }

// taintPolicies are a policy under which sre alone writes taints of example.com, and
// one by which nodes of the pool banana are dedicated to it from birth, and those of
// the pool cherry for ever.
func taintPolicies() []v1alpha1.TaintPolicy {
	pool := func(name string, reconcile bool) v1alpha1.TaintRegistration {
		return v1alpha1.TaintRegistration{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": name}},
			Taints:       []v1alpha1.RegisteredTaint{{Key: "dedicated", Value: name, Effect: corev1.TaintEffectNoSchedule}},
			Reconcile:    reconcile,
		}
	}
	setters := []v1alpha1.TaintSetter{{Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "sre"}}}}
	return []v1alpha1.TaintPolicy{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "sre-only"},
			Spec: v1alpha1.TaintPolicySpec{
				Taints: []v1alpha1.TaintSelector{
					{Target: v1alpha1.TaintTargetNode, Key: "example.com/*"}, {Target: v1alpha1.TaintTargetDevice, Key: "example.com/*"},
				},
				Setters: setters,
			},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "pools"},
			Spec: v1alpha1.TaintPolicySpec{
				Taints:   []v1alpha1.TaintSelector{{Target: v1alpha1.TaintTargetNode, Key: "dedicated"}},
				Setters:  setters,
				Register: []v1alpha1.TaintRegistration{pool("banana", false), pool("cherry", true)},
			},
		},
	}
}

func governedBy(policies ...v1alpha1.TaintPolicy) *reviewer {
	return newReviewer(Config{
		Readers:     Readers{Policies: currentPolicies{(*policyset.Set)(nil).WithTaints(policies)}},
		ServerClock: clocktesting.NewFakePassiveClock(noon),
		Users:       Users{Selves: []string{"system:serviceaccount:tollgate-system:tollgate"}},
		APIServer:   APIServer{MaxTimeAddedSkew: time.Minute},
		Features:    Features{NodeTaintTimestamps: true},
	})
}

// asUser is the review as somebody else sends it.
func asUser(review admissionv1.AdmissionReview, name string, groups ...string) admissionv1.AdmissionReview {
	review.Request.UserInfo = authenticationv1.UserInfo{Username: name, Groups: groups}
	return review
}

// judged is the response to a review, which has to be one.
func judged(t *testing.T, j Handler, review admissionv1.AdmissionReview) admission.Response {
	t.Helper()
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	response, err := answer(t.Context(), j, req)
	require.NoError(t, err)
	return response
}

func nodeJSON(t *testing.T, labels map[string]string, taints ...corev1.Taint) string {
	t.Helper()
	return string(marshal(t, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}))
}

var (
	banana   = corev1.Taint{Key: "dedicated", Value: "banana", Effect: corev1.TaintEffectNoSchedule}
	cherry   = corev1.Taint{Key: "dedicated", Value: "cherry", Effect: corev1.TaintEffectNoSchedule}
	notReady = corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	broken   = corev1.Taint{Key: "example.com/broken", Effect: corev1.TaintEffectNoExecute}
)

func TestC22ANodeIsBornWithItsTaints(t *testing.T) {
	pool := map[string]string{"pool": "banana"}
	early := *banana.DeepCopy()
	early.TimeAdded = new(metav1.NewTime(noon.Add(-time.Hour)))
	tests := map[string]struct {
		labels     map[string]string
		sent, want []corev1.Taint
	}{
		"that has none":                      {pool, nil, []corev1.Taint{banana}},
		"that is not ready":                  {pool, []corev1.Taint{notReady}, []corev1.Taint{notReady, banana}},
		"that has it":                        {pool, []corev1.Taint{banana, notReady}, []corev1.Taint{banana, notReady}},
		"that has it since an hour ago":      {pool, []corev1.Taint{early}, []corev1.Taint{banana}},
		"that has it with another value":     {pool, []corev1.Taint{notReady, cherry, broken}, []corev1.Taint{notReady, banana, broken}},
		"that has it with another effect":    {pool, []corev1.Taint{{Key: "dedicated", Value: "x", Effect: "NoExecute"}}, []corev1.Taint{{Key: "dedicated", Value: "x", Effect: "NoExecute"}, banana}},
		"of another pool":                    {map[string]string{"pool": "x"}, []corev1.Taint{notReady}, []corev1.Taint{notReady}},
		"whose taints are no valid ones too": {pool, []corev1.Taint{{}}, []corev1.Taint{{}, banana}},
	}
	for name, tt := range tests {
		for _, unstamped := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				j := governedBy(taintPolicies()...)
				j.NodeTaintTimestamps = !unstamped
				object := nodeJSON(t, tt.labels, tt.sent...)
				response := judged(t, j.mutating(request.mutateNode), nodeReview(t, admissionv1.Create, object, ""))
				got := stamped(t, object, response)
				require.Equal(t, tt.want, withoutTimes(got))
				for _, taint := range got {
					if !unstamped && taint.Key != "" {
						require.NotNil(t, taint.TimeAdded, "%s", taint.Key)
					}
				}
				again := nodeJSON(t, tt.labels, got...)
				require.Empty(t, judged(t, j.mutating(request.mutateNode), nodeReview(t, admissionv1.Create, again, "")).Patches, "a second round changes nothing")
			})
		}
	}
}

func withoutTimes(taints []corev1.Taint) []corev1.Taint {
	var bare []corev1.Taint
	for _, taint := range taints {
		bare = append(bare, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	return bare
}

func TestThePatchOfABirthFailsOnAnotherObject(t *testing.T) {
	j := governedBy(taintPolicies()...)
	response := judged(t, j.mutating(request.mutateNode), nodeReview(t, admissionv1.Create, nodeJSON(t, map[string]string{"pool": "banana"}, cherry), ""))
	patch, err := jsonpatch.DecodePatch(marshal(t, response.Patches))
	require.NoError(t, err)
	_, err = patch.Apply([]byte(nodeJSON(t, nil, notReady)))
	require.Error(t, err)
}

func TestTP18RegisteredTaintsAreNotAddedOnAnUpdate(t *testing.T) {
	j := governedBy(taintPolicies()...)
	object := nodeJSON(t, map[string]string{"pool": "cherry"}, notReady)
	require.Empty(t, judged(t, j.mutating(request.mutateNode), nodeReview(t, admissionv1.Update, object, object)).Patches)
}

func TestPoliciesThatHaveNotBeenReadAreAFault(t *testing.T) {
	unread := governedBy()
	unread.Policies = currentPolicies{}
	req, err := readRequest(marshal(t, nodeReview(t, admissionv1.Create, nodeJSON(t, nil), "")))
	require.NoError(t, err)
	for i, handle := range []Handler{
		unread.mutating(request.mutateNode), unread.handler(request.validateNode), unread.judging(request.judgeNodeStatus),
		unread.handler(request.validateRule), unread.handler(request.validateSlice),
	} {
		_, err := handle(t.Context(), req)
		require.ErrorIs(t, err, errNoPolicies, i)
	}
}

// nodeWrite is a write of a node that is judged by the policies above.
type nodeWrite struct {
	user     []string // name and groups
	now, old string   // old is empty for a creation
	reason   string   // of the denial; empty where it is allowed
}

func TestWritesOfNodesAreGoverned(t *testing.T) {
	node := func(pool string, taints ...corev1.Taint) string {
		return nodeJSON(t, map[string]string{"pool": pool}, taints...)
	}
	bob, sre, kubelet := []string{"bob"}, []string{"ann", "sre"}, []string{"system:node:n1", "system:nodes"}
	owned := `{"metadata":{"name":"n1","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u"}]},"spec":{}}`
	tests := map[string]nodeWrite{
		"bob taints":                                        {bob, node("x", broken), node("x"), "TaintNotGranted"},
		"C06 bob taints one that was clean":                 {bob, node("x", notReady, broken), node("x", notReady), "TaintNotGranted"},
		"bob untaints":                                      {bob, node("x"), node("x", broken), "TaintNotGranted"},
		"sre taints":                                        {sre, node("x", broken), node("x"), ""},
		"bob changes another taint":                         {bob, node("x", broken, corev1.Taint{Key: "free", Effect: "NoSchedule"}), node("x", broken), ""},
		"C23 the order changes":                             {bob, node("banana", broken, banana), node("banana", banana, broken), ""},
		"C23 one goes while the order changes":              {bob, node("banana", broken), node("banana", banana, broken), "TaintNotGranted"},
		"C22 a node registers without its taint":            {kubelet, node("banana", notReady), "", "RegisteredTaintMissing"},
		"C22 a node registers with its taint":               {kubelet, node("banana", notReady, banana, broken), "", ""},
		"C22 a node comes back and says who owns it":        {kubelet, owned, "", "NodeOwned"},
		"C22 a node says who owns it":                       {kubelet, owned, node("x"), "NodeOwned"},
		"C23 a node unburdens itself":                       {kubelet, node("banana"), node("banana", banana), "TaintNotGranted"},
		"a node leaves its pool":                            {kubelet, node("x", banana), node("banana", banana), "NodeLeavesSelector"},
		"bob creates a node with a taint":                   {bob, node("x", broken, notReady), "", "TaintNotGranted"},
		"bob creates a node with what it is born with":      {bob, node("banana", banana, notReady), "", ""},
		"sre takes away what is kept":                       {sre, node("cherry"), node("cherry", cherry), "RegisteredTaintRemoved"},
		"sre takes away what is not kept":                   {sre, node("banana"), node("banana", banana), ""},
		"Tollgate does as policies say":                     {[]string{"system:serviceaccount:tollgate-system:tollgate"}, node("x"), node("x", broken), ""},
		"a kubelet's own update that changes nothing":       {kubelet, node("banana", banana), node("banana", banana), ""},
		"the node lifecycle controller sets its own":        {[]string{"system:serviceaccount:kube-system:node-controller"}, node("x", notReady), node("x"), ""},
		"C07 a node that is on its way out is still judged": {bob, `{"metadata":{"name":"n1","deletionTimestamp":"2026-11-20T11:00:00Z","finalizers":["x/y"]},"spec":{}}`, node("x", broken), "TaintNotGranted"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j := governedBy(taintPolicies()...)
			operation := admissionv1.Create
			if tt.old != "" {
				operation = admissionv1.Update
			}
			requireReason(t, tt.reason, judged(t, j.handler(request.validateNode), asUser(nodeReview(t, operation, tt.now, tt.old), tt.user[0], tt.user[1:]...)))
		})
	}
}

// requireReason requires a denial for the reason alone, or none where it is empty.
func requireReason(t *testing.T, reason string, response admission.Response) {
	t.Helper()
	if reason == "" {
		require.True(t, response.Allowed, "%v", response.Result)
		return
	}
	require.False(t, response.Allowed)
	require.Len(t, response.Result.Details.Causes, 1, "%v", response.Result)
	require.Equal(t, reason, string(response.Result.Details.Causes[0].Type))
}

func TestC05ANodeDoesNotGetRidOfItsTaintsByItsStatus(t *testing.T) {
	j := governedBy(taintPolicies()...)
	in := nodeJSON(t, map[string]string{"pool": "banana"}, banana)
	kept := nodeJSON(t, map[string]string{"pool": "cherry"}, cherry)
	without := asUser(nodeReview(t, admissionv1.Update, nodeJSON(t, map[string]string{"pool": "cherry"}), kept), "system:node:n1", "system:nodes")
	requireReason(t, "", judged(t, j.judging(request.judgeNodeStatus), without)) // the API server takes the taints from the old object
	tests := map[string]struct {
		user   []string
		now    string
		reason string
	}{
		"by its labels":                        {[]string{"system:node:n1", "system:nodes"}, nodeJSON(t, nil, banana), "NodeLeavesSelector"},
		"by its owner":                         {[]string{"system:node:n1", "system:nodes"}, `{"metadata":{"name":"n1","labels":{"pool":"banana"},"ownerReferences":[{"name":"x"}]}}`, "NodeOwned"},
		"taints are not taken from there":      {[]string{"system:node:n1", "system:nodes"}, nodeJSON(t, map[string]string{"pool": "banana"}), ""},
		"others may label it":                  {[]string{"ann"}, nodeJSON(t, nil, banana), ""},
		"other labels are the node's business": {[]string{"system:node:n1", "system:nodes"}, nodeJSON(t, map[string]string{"pool": "banana", "a": "b"}, banana), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			review := asUser(nodeReview(t, admissionv1.Update, tt.now, in), tt.user[0], tt.user[1:]...)
			review.Request.SubResource = "status"
			requireReason(t, tt.reason, judged(t, j.judging(request.judgeNodeStatus), review))
		})
	}
}

func TestALimitThatCannotBeLookedAtIsAFault(t *testing.T) {
	policies := taintPolicies()
	policies[0].Spec.Limits = &v1alpha1.TaintLimits{MaxAffectedPods: new(int32(5))}
	j := governedBy(policies...)
	review := asUser(nodeReview(t, admissionv1.Update, nodeJSON(t, nil, broken), nodeJSON(t, nil)), "ann", "sre")
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	_, err = answer(t.Context(), j.handler(request.validateNode), req)
	require.ErrorContains(t, err, "feature gate", "nothing follows pods here")

	untainted := asUser(nodeReview(t, admissionv1.Update, nodeJSON(t, nil), nodeJSON(t, nil, broken)), "ann", "sre")
	require.True(t, judged(t, j.handler(request.validateNode), untainted).Allowed, "to lift a taint is never limited")
}

func TestAFaultHidesNoDenial(t *testing.T) {
	policies := taintPolicies()
	policies[0].Spec.Setters = []v1alpha1.TaintSetter{{RBAC: true}} // and nobody can be asked
	reviewer := governedBy(policies...)
	ahead := broken
	ahead.TimeAdded = new(metav1.NewTime(noon.Add(time.Hour)))
	tests := map[string]struct {
		handle Handler
		review admissionv1.AdmissionReview
		denied bool
	}{
		"a node":                      {reviewer.handler(request.validateNode), nodeReview(t, admissionv1.Update, nodeJSON(t, nil, broken), nodeJSON(t, nil)), false},
		"a node that is refused":      {reviewer.handler(request.validateNode), nodeReview(t, admissionv1.Update, nodeJSON(t, nil, ahead), nodeJSON(t, nil)), true},
		"a rule":                      {reviewer.handler(request.validateRule), deviceReview(t, "devicetaintrules", "v1", ruleJSON(`{"driver":"gpu"}`, "example.com/x", "None"), ""), false},
		"a rule that is refused":      {reviewer.handler(request.validateRule), deviceReview(t, "devicetaintrules", "v1", ruleJSON(`{"driver":"gpu"}`, "example.com/x", ""), ""), true},
		"a slice":                     {reviewer.handler(request.validateSlice), deviceReview(t, "resourceslices", "v1", slicePublished("NoSchedule"), ""), false},
		"a slice that is refused too": {reviewer.handler(request.validateSlice), deviceReview(t, "resourceslices", "v1", slicePublished(""), ""), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := readRequest(marshal(t, asUser(tt.review, "bob")))
			require.NoError(t, err)
			response, err := answer(t.Context(), tt.handle, req)
			if tt.denied {
				require.NoError(t, err)
				require.False(t, response.Allowed)
				return
			}
			require.ErrorContains(t, err, "judge taints")
		})
	}
}

func slicePublished(effect string) string {
	return `{"metadata":{"name":"s"},"spec":{"driver":"gpu","pool":{"name":"p"},"devices":[{"name":"a","taints":[{"key":"example.com/hot","effect":"` + effect + `","timeAdded":"2026-11-20T12:00:00Z"}]}]}}`
}

func TestAWriteIsNotChangedByBeingJudged(t *testing.T) {
	review := nodeReview(t, admissionv1.Create, nodeJSON(t, map[string]string{"pool": "banana"}, cherry), "")
	req, err := readRequest(marshal(t, review))
	require.NoError(t, err)
	before, err := json.Marshal(req)
	require.NoError(t, err)
	j := governedBy(taintPolicies()...)
	_, err = answer(t.Context(), j.mutating(request.mutateNode), req)
	require.NoError(t, err)
	after, err := json.Marshal(req)
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after))
}
