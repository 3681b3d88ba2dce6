package taint

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

func TestWhoMaySetTaints(t *testing.T) {
	broken := nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)
	other := nodeTaint("other.org/x", "", corev1.TaintEffectNoExecute)
	notReady := nodeTaint(corev1.TaintNodeNotReady, "", corev1.TaintEffectNoExecute)
	sreOnly := newPolicy("sre-only", "example.com/*", setBy("sre"))
	everything := newPolicy("everything", "*", setBy("sre"))
	system := newPolicy("system", "node.kubernetes.io/*", setBy("sre"))
	controller := &authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:node-controller"}
	tests := map[string]struct {
		user     *authenticationv1.UserInfo
		now, old []corev1.Taint
		policies []v1alpha1.TaintPolicy
		want     policy.Verdict
	}{
		"nobody is asked without a policy":                      {outside, []corev1.Taint{broken}, nil, nil, policy.Allowed},
		"a setter adds":                                         {sre, []corev1.Taint{broken}, nil, []v1alpha1.TaintPolicy{sreOnly}, policy.Allowed},
		"a setter removes":                                      {sre, nil, []corev1.Taint{broken}, []v1alpha1.TaintPolicy{sreOnly}, policy.Allowed},
		"nobody else adds":                                      {outside, []corev1.Taint{broken}, nil, []v1alpha1.TaintPolicy{sreOnly}, policy.Denied},
		"nobody else removes":                                   {outside, nil, []corev1.Taint{broken}, []v1alpha1.TaintPolicy{sreOnly}, policy.Denied},
		"C23 a node does not remove its own":                    {kubelet, nil, []corev1.Taint{broken}, []v1alpha1.TaintPolicy{sreOnly}, policy.Denied},
		"C28 what stands is not judged again":                   {outside, []corev1.Taint{broken, other}, []corev1.Taint{broken}, []v1alpha1.TaintPolicy{sreOnly}, policy.Allowed},
		"other taints are free":                                 {outside, []corev1.Taint{other}, nil, []v1alpha1.TaintPolicy{sreOnly}, policy.Allowed},
		"every policy has to allow it":                          {sre, []corev1.Taint{broken}, nil, []v1alpha1.TaintPolicy{sreOnly, newPolicy("locked", "example.com/broken")}, policy.Denied},
		"a policy without setters lets nobody":                  {sre, []corev1.Taint{broken}, nil, []v1alpha1.TaintPolicy{newPolicy("locked", "*")}, policy.Denied},
		"the star leaves the system keys out":                   {outside, []corev1.Taint{notReady}, nil, []v1alpha1.TaintPolicy{everything}, policy.Allowed},
		"system keys are governed where they are named":         {outside, []corev1.Taint{notReady}, nil, []v1alpha1.TaintPolicy{system}, policy.Denied},
		"system controllers may always set system keys":         {controller, []corev1.Taint{notReady}, nil, []v1alpha1.TaintPolicy{system}, policy.Allowed},
		"system controllers may not set others":                 {controller, []corev1.Taint{broken}, nil, []v1alpha1.TaintPolicy{everything}, policy.Denied},
		"C18 a name that looks like a controller's is nobody's": {&authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:node-controller2"}, []corev1.Taint{notReady}, nil, []v1alpha1.TaintPolicy{system}, policy.Denied},
		"C18 system:masters are no exception":                   {&authenticationv1.UserInfo{Username: "root", Groups: []string{"system:masters"}}, []corev1.Taint{broken}, nil, []v1alpha1.TaintPolicy{sreOnly}, policy.Denied},
		"C26 of two policies the stricter wins":                 {sre, nil, []corev1.Taint{broken}, []v1alpha1.TaintPolicy{sreOnly, newPolicy("add-only", "example.com/*", setBy("sre", v1alpha1.TaintAdd))}, policy.Denied},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decision := judge(t, input(tt.user, tt.now, tt.old), tt.policies...)
			require.Equal(t, tt.want, decision.Verdict, "%v", decision.Findings)
			for _, f := range decision.Findings {
				require.Equal(t, policy.TaintNotGranted, f.Reason)
			}
		})
	}
}

func TestAReviewEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	set := Compile([]v1alpha1.TaintPolicy{newPolicy("sre-only", "*", setBy("sre"))})
	_, err := set.Judge(ctx, input(outside, []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}, nil))
	require.ErrorIs(t, err, context.Canceled)
}

func TestSettersAreForOperations(t *testing.T) {
	banana := nodeTaint("dedicated", "banana", corev1.TaintEffectNoSchedule)
	apple := nodeTaint("dedicated", "apple", corev1.TaintEffectNoSchedule)
	all := []v1alpha1.TaintOperation{v1alpha1.TaintAdd, v1alpha1.TaintChange, v1alpha1.TaintRemove}
	tests := map[string]struct {
		now, old []corev1.Taint
		values   []string
		needs    v1alpha1.TaintOperation
	}{
		"a new taint":                           {[]corev1.Taint{banana}, nil, nil, v1alpha1.TaintAdd},
		"another value":                         {[]corev1.Taint{apple}, []corev1.Taint{banana}, nil, v1alpha1.TaintChange},
		"a taint that goes":                     {nil, []corev1.Taint{banana}, nil, v1alpha1.TaintRemove},
		"a value that the policy does not know": {[]corev1.Taint{apple}, []corev1.Taint{banana}, []string{"banana"}, v1alpha1.TaintRemove},
		"a value that it comes to know":         {[]corev1.Taint{banana}, []corev1.Taint{apple}, []string{"banana"}, v1alpha1.TaintAdd},
		"a time that is lost":                   {[]corev1.Taint{banana}, []corev1.Taint{at(banana, noon)}, nil, v1alpha1.TaintChange},
	}
	for name, tt := range tests {
		for _, allowed := range all {
			t.Run(name+" for one who may "+string(allowed), func(t *testing.T) {
				p := newPolicy("p", "dedicated", setBy("sre", allowed))
				p.Spec.Taints[0].Values = tt.values
				want := policy.Denied
				if allowed == tt.needs {
					want = policy.Allowed
				}
				require.Equal(t, want, judge(t, input(sre, tt.now, tt.old), p).Verdict)
			})
		}
	}
}

func TestSettersByRBAC(t *testing.T) {
	broken := []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}
	p := newPolicy("p", "example.com/*", setByRBAC)

	in := input(outside, broken, nil)
	in.Review.Authorizer = authorizing(func(a authorizer.Attributes) (bool, error) {
		require.Equal(t, "taint", a.GetVerb())
		require.Equal(t, "tollgate.dev", a.GetAPIGroup())
		require.Equal(t, "taints", a.GetResource())
		require.Equal(t, "bob", a.GetUser().GetName())
		return a.GetName() == "example.com/broken", nil
	})
	require.Equal(t, policy.Allowed, judge(t, in, p).Verdict)

	in.Writes = NodeWrites([]corev1.Taint{nodeTaint("example.com/else", "", corev1.TaintEffectNoExecute)}, nil, noon)
	require.Equal(t, policy.Denied, judge(t, in, p).Verdict)

	in.Review.Authorizer = authorizing(func(authorizer.Attributes) (bool, error) { return false, errNobodyAnswers })
	_, err := Compile([]v1alpha1.TaintPolicy{p}).Judge(t.Context(), in)
	require.ErrorIs(t, err, errNobodyAnswers, "a fault is no verdict")

	in.Review.Authorizer = nil
	_, err = Compile([]v1alpha1.TaintPolicy{p}).Judge(t.Context(), in)
	require.Error(t, err)

	asked := 0
	in.Review.Authorizer = authorizing(func(authorizer.Attributes) (bool, error) {
		asked++
		return asked > 1, map[bool]error{true: errNobodyAnswers}[asked == 1]
	})
	require.Equal(t, policy.Allowed, judge(t, in, newPolicy("p", "example.com/*", setByRBAC, setByRBAC)).Verdict,
		"one that allows it is enough, and then faults of others do not matter")

	setBy("sre")(&p.Spec)
	in = input(sre, broken, nil)
	require.Equal(t, policy.Allowed, judge(t, in, p).Verdict, "who is named need not ask")
}

func TestSettersByExpression(t *testing.T) {
	broken := []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}
	tests := map[string]struct {
		expression string
		now, old   []corev1.Taint
		want       policy.Verdict
		problem    string
	}{
		"the taint":            {`taint.key == 'example.com/broken' && taint.effect == 'NoExecute'`, broken, nil, policy.Allowed, ""},
		"the old taint":        {`taint.key == 'example.com/broken' && operation == 'Remove'`, nil, broken, policy.Allowed, ""},
		"the operation":        {`operation == 'Remove'`, broken, nil, policy.Denied, ""},
		"the requester":        {`request.userInfo.username == 'ann'`, broken, nil, policy.Allowed, ""},
		"one that fails":       {`object.metadata.labels['x'] == 'y'`, broken, nil, policy.Denied, "an expression that could allow it failed"},
		"one that is not true": {`false`, broken, nil, policy.Denied, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := input(sre, tt.now, tt.old)
			in.Review.Request.Object.Raw = []byte(`{"metadata":{"name":"n1"}}`)
			decision := judge(t, in, newPolicy("p", "example.com/*", setWhere(tt.expression)))
			require.Equal(t, tt.want, decision.Verdict, "%v", decision.Findings)
			if tt.problem != "" {
				require.Contains(t, decision.Findings[0].Problem, tt.problem)
			}
		})
	}
}

func TestMatchConditionsSayWhichRequestsAreLookedAt(t *testing.T) {
	broken := []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}
	in := input(outside, broken, nil)
	in.Review.Request.Object.Raw = []byte(`{"metadata":{"name":"n1"}}`)
	require.Equal(t, policy.Allowed, judge(t, in, newPolicy("p", "*", matching(`request.userInfo.username == 'ann'`))).Verdict)
	require.Equal(t, policy.Denied, judge(t, in, newPolicy("p", "*", matching(`request.userInfo.username == 'bob'`))).Verdict)

	failed := judge(t, in, newPolicy("p", "*", matching(`object.metadata.labels['x'] == 'y'`)))
	require.Equal(t, policy.Denied, failed.Verdict, "a condition that fails does not switch the policy off")
	require.Contains(t, failed.Findings[0].Problem, "a match condition could not be evaluated")
}

func TestADenialSaysEverything(t *testing.T) {
	p := newPolicy("sre-only", "example.com/*", setBy("sre"), setBy("admins", v1alpha1.TaintAdd))
	p.Spec.Message = "Ask the people on call."
	found := judge(t, input(outside, nil, []corev1.Taint{nodeTaint("example.com/broken", "disk", corev1.TaintEffectNoExecute)}), p).Findings
	require.Len(t, found, 1)
	require.Equal(t, "TaintPolicy/sre-only: spec.taints (example.com/broken=disk:NoExecute): bob may not remove this taint: "+
		"Ask the people on call.; allowed to group sre", found[0].String())

	nobody := judge(t, input(outside, []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}, nil), newPolicy("locked", "*")).Findings
	require.Contains(t, nobody[0].String(), "the policy lets nobody do it")
}

func TestActionsAreThoseOfThePolicy(t *testing.T) {
	broken := []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}
	decision := judge(t, input(outside, broken, nil), newPolicy("p", "*", acting(v1alpha1.Warn, v1alpha1.Audit)))
	require.Equal(t, policy.Allowed, decision.Verdict)
	require.True(t, decision.Findings[0].Has(v1alpha1.Warn))
	require.True(t, decision.Findings[0].Has(v1alpha1.Audit))
	require.Equal(t, policy.Denied, judge(t, input(outside, broken, nil), newPolicy("p", "*", acting("Shrug"))).Verdict)
}

func TestAPolicyWithAFaultGovernsWhatItCan(t *testing.T) {
	broken := []corev1.Taint{nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)}
	p := newPolicy("p", "example.com/*", setWhere(`this does not compile`), setBy("sre"))
	set := Compile([]v1alpha1.TaintPolicy{p})
	require.Contains(t, set.Problems(), "p")
	require.Equal(t, policy.Allowed, judge(t, input(sre, broken, nil), p).Verdict, "the other setter holds")
	denied := judge(t, input(outside, broken, nil), p)
	require.Equal(t, policy.Denied, denied.Verdict)
	require.Contains(t, denied.Findings[0].Remedy, "not fully in force")
}

func TestFindingsAreBoundedAndTheVerdictIsNot(t *testing.T) {
	var taints []corev1.Taint
	for i := range 200 {
		taints = append(taints, nodeTaint("example.com/"+string(rune('a'+i%26))+string(rune('a'+i/26)), "", corev1.TaintEffectNoExecute))
	}
	warns := newPolicy("a-warns", "*", acting(v1alpha1.Warn))
	denies := newPolicy("b-denies", "example.com/zc")
	decision := judge(t, input(outside, taints, nil), warns, denies)
	require.LessOrEqual(t, len(decision.Findings), policy.MaxFindings)
	require.Equal(t, policy.Denied, decision.Verdict, "what denies is not cut")
	require.Contains(t, reasons(decision), policy.MoreFindings)
}

func TestTimesFarFromNowAreRefused(t *testing.T) {
	broken := nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute)
	minute := newPolicy("p", "example.com/*", setBy("sre"), limited(v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(time.Minute)}))
	tests := map[string]struct {
		now, old []corev1.Taint
		want     policy.Verdict
	}{
		"none given":                             {[]corev1.Taint{broken}, nil, policy.Allowed},
		"now":                                    {[]corev1.Taint{at(broken, noon)}, nil, policy.Allowed},
		"a minute before":                        {[]corev1.Taint{at(broken, noon.Add(-time.Minute))}, nil, policy.Allowed},
		"more than a minute before":              {[]corev1.Taint{at(broken, noon.Add(-61*time.Second))}, nil, policy.Denied},
		"more than a minute after":               {[]corev1.Taint{at(broken, noon.Add(61*time.Second))}, nil, policy.Denied},
		"moved back":                             {[]corev1.Taint{at(broken, noon.Add(-time.Hour))}, []corev1.Taint{at(broken, noon)}, policy.Denied},
		"an old one that stays while it changes": {[]corev1.Taint{at(nodeTaint("example.com/broken", "x", "NoExecute"), noon.Add(-time.Hour))}, []corev1.Taint{at(broken, noon.Add(-time.Hour))}, policy.Allowed},
		"an old one that goes":                   {nil, []corev1.Taint{at(broken, noon.Add(-time.Hour))}, policy.Allowed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decision := judge(t, input(sre, tt.now, tt.old), minute)
			require.Equal(t, tt.want, decision.Verdict, "%v", decision.Findings)
			if tt.want == policy.Denied {
				require.Equal(t, []policy.Reason{policy.TimeAddedSkewed}, reasons(decision))
			}
		})
	}

	exact := newPolicy("p", "example.com/*", setBy("sre"), limited(v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(0)}))
	require.Equal(t, policy.Allowed, judge(t, input(sre, []corev1.Taint{at(broken, noon.Add(-2*time.Second))}, nil), exact).Verdict,
		"what the API server or Tollgate has stamped is near to now, and no client's doing")
}

func TestATimeFromBeforeThePolicyGovernedIsLookedAt(t *testing.T) {
	p := newPolicy("p", "dedicated", setBy("sre"), limited(v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(time.Minute)}))
	p.Spec.Taints[0].Values = []string{"banana"}
	lastYear := noon.AddDate(-1, 0, 0)
	old := at(nodeTaint("dedicated", "apple", corev1.TaintEffectNoExecute), lastYear)
	now := at(nodeTaint("dedicated", "banana", corev1.TaintEffectNoExecute), lastYear)
	decision := judge(t, input(sre, []corev1.Taint{now}, []corev1.Taint{old}), p)
	require.Equal(t, []policy.Reason{policy.TimeAddedSkewed}, reasons(decision))
	require.Equal(t, "it is that of dedicated=apple:NoExecute: remove that first, or give a time within 1m0s of the present", decision.Findings[0].Remedy)
	require.Equal(t, policy.Allowed, judge(t, input(sre, []corev1.Taint{at(now, noon)}, []corev1.Taint{old}), p).Verdict)

	ofDevices()(&p.Spec)
	p.Spec.Taints[0].Values, p.Spec.Taints[0].Key = nil, "k"
	written := func(key string) *resourcev1.DeviceTaintRuleSpec {
		spec := rule(driver("gpu"), key, "v", resourcev1.DeviceTaintEffectNone)
		spec.Taint.TimeAdded = new(metav1.NewTime(lastYear))
		return spec
	}
	rekeyed := ruleInput(sre, RuleChange{Old: written("free"), New: written("k")})
	require.Equal(t, []policy.Reason{policy.TimeAddedSkewed}, reasons(judge(t, rekeyed, p)))
}

// TestFaultsHideNoDenialAndStopNoPolicyThatOnlyWarns judges by RBAC that nobody can be
// asked about.
func TestFaultsHideNoDenialAndStopNoPolicyThatOnlyWarns(t *testing.T) {
	broken := []corev1.Taint{at(nodeTaint("example.com/broken", "", corev1.TaintEffectNoExecute), noon.Add(-time.Hour))}
	asks := matching(`authorizer.group('').resource('nodes').check('taint').allowed()`)
	skew := limited(v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(time.Minute)})
	tests := map[string]struct {
		policies []v1alpha1.TaintPolicy
		want     []policy.Reason // nil for a fault
	}{
		"a fault is no verdict":                      {[]v1alpha1.TaintPolicy{newPolicy("a", "*", setByRBAC)}, nil},
		"nor is one in a condition":                  {[]v1alpha1.TaintPolicy{newPolicy("a", "*", setBy("sre"), asks)}, nil},
		"another policy refuses":                     {[]v1alpha1.TaintPolicy{newPolicy("a", "*", setByRBAC), newPolicy("b", "*")}, []policy.Reason{policy.TaintNotGranted}},
		"another policy refuses, beside a condition": {[]v1alpha1.TaintPolicy{newPolicy("a", "*", asks), newPolicy("b", "*")}, []policy.Reason{policy.TaintNotGranted}},
		"the same policy refuses":                    {[]v1alpha1.TaintPolicy{newPolicy("a", "*", setByRBAC, skew)}, []policy.Reason{policy.TimeAddedSkewed}},
		"a policy that only warns":                   {[]v1alpha1.TaintPolicy{newPolicy("a", "*", setByRBAC, acting(v1alpha1.Warn))}, []policy.Reason{policy.TaintNotGranted}},
		"a condition of one that only warns":         {[]v1alpha1.TaintPolicy{newPolicy("a", "*", asks, acting(v1alpha1.Audit))}, []policy.Reason{policy.TaintNotGranted}},
		"one that warns beside one that cannot say":  {[]v1alpha1.TaintPolicy{newPolicy("a", "*", setByRBAC, acting(v1alpha1.Warn)), newPolicy("b", "*", setByRBAC)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := input(outside, broken, nil)
			in.Review.Authorizer = authorizing(func(authorizer.Attributes) (bool, error) { return false, errNobodyAnswers })
			decision, err := Compile(tt.policies).Judge(t.Context(), in)
			if tt.want == nil {
				require.ErrorIs(t, err, errNobodyAnswers)
				require.Equal(t, policy.Denied, decision.Verdict)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, reasons(decision))
			f := decision.Findings[0]
			require.Equal(t, !f.Denies(), strings.Contains(f.Problem, "(not all of the policy could be judged)"), f.Problem)
		})
	}
}

func TestTheTimeOfATaintThatLeavesThePolicyIsNotItsConcern(t *testing.T) {
	p := newPolicy("p", "dedicated", setBy("sre"), limited(v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(time.Minute)}))
	p.Spec.Taints[0].Values = []string{"banana"}
	now := at(nodeTaint("dedicated", "apple", corev1.TaintEffectNoSchedule), noon.Add(-time.Hour))
	old := nodeTaint("dedicated", "banana", corev1.TaintEffectNoSchedule)
	require.Equal(t, policy.Allowed, judge(t, input(sre, []corev1.Taint{now}, []corev1.Taint{old}), p).Verdict)
}

func TestTheTimeOfARuleIsNotTheClientsWhereItStays(t *testing.T) {
	p := newPolicy("p", "*", ofDevices(), setBy("sre"), limited(v1alpha1.TaintLimits{MaxTimeAddedSkew: duration(time.Minute)}))
	old := rule(driver("gpu"), "k", "v", resourcev1.DeviceTaintEffectNone)
	renamed := rule(driver("gpu"), "l", "v", resourcev1.DeviceTaintEffectNone)
	in := ruleInput(sre, RuleChange{Old: old, New: renamed})
	in.Now = noon.Add(time.Hour)
	require.Equal(t, policy.Allowed, judge(t, in, p).Verdict)
	in = ruleInput(sre, RuleChange{New: renamed})
	in.Now = noon.Add(time.Hour)
	require.Equal(t, policy.Denied, judge(t, in, p).Verdict)
}
