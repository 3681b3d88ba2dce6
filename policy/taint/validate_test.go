package taint

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// everyField is a policy that uses all there is.
func everyField() v1alpha1.TaintPolicy {
	p := newPolicy("sre-only", "example.com/*", setBy("sre"), setByRBAC, setWhere(`operation == 'Remove' && taint.key != ''`),
		matching(`request.operation != 'DELETE'`), registering(true, bananaPool, bananaTaint),
		limited(v1alpha1.TaintLimits{
			MaxAffectedPods: new(int32(50)), MaxAffectedPercent: new(int32(10)), RequireSelector: true, RequirePreview: true,
			MaxTimeAddedSkew: duration(time.Minute), Window: metav1.Duration{Duration: 10 * time.Minute},
		}))
	p.Spec.Taints = append(p.Spec.Taints, v1alpha1.TaintSelector{Target: v1alpha1.TaintTargetDevice, Key: "*", Drivers: []string{"gpu.example.com"}})
	p.Spec.TTL, p.Spec.Message = duration(24*time.Hour), "Ask the people on call."
	return p
}

func TestAPolicyThatUsesAllThereIsIsValid(t *testing.T) {
	p := everyField()
	require.Empty(t, ValidatePolicy(&p))
	require.Empty(t, Compile([]v1alpha1.TaintPolicy{p}).Problems())
}

func TestFaultsOfAPolicyAreFound(t *testing.T) {
	long := make([]v1alpha1.TaintSetter, 65)
	for i := range long {
		long[i].RBAC = true
	}
	tests := map[string]struct {
		change func(*v1alpha1.TaintPolicySpec)
		want   string
	}{
		"no taints":                   {func(s *v1alpha1.TaintPolicySpec) { s.Taints = nil }, "spec.taints: Required"},
		"a class of devices":          {func(s *v1alpha1.TaintPolicySpec) { s.Taints[1].DeviceClasses = []string{"gpu"} }, "spec.taints[1].deviceClasses: Forbidden"},
		"a setter for nobody":         {func(s *v1alpha1.TaintPolicySpec) { s.Setters[1].RBAC = false }, "spec.setters[1]: Required"},
		"a subject without a name":    {func(s *v1alpha1.TaintPolicySpec) { s.Setters[0].Subjects[0].Name = "" }, "spec.setters[0].subjects[0].name: Required"},
		"an operation that is none":   {func(s *v1alpha1.TaintPolicySpec) { s.Setters[0].Operations = []v1alpha1.TaintOperation{"Wipe"} }, "spec.setters[0].operations[0]: Unsupported"},
		"an operation twice":          {func(s *v1alpha1.TaintPolicySpec) { s.Setters[0].Operations = []v1alpha1.TaintOperation{"Add", "Add"} }, "spec.setters[0].operations[1]: Duplicate"},
		"an expression with a typing": {func(s *v1alpha1.TaintPolicySpec) { s.Setters[2].Expression = "operation ==\n 1" }, "spec.setters[2].expression: Invalid"},
		"too many setters":            {func(s *v1alpha1.TaintPolicySpec) { s.Setters = long }, "spec.setters: Too many"},
		"too many subjects": {func(s *v1alpha1.TaintPolicySpec) {
			s.Setters[0].Subjects = slices.Repeat([]rbacv1.Subject{{Kind: "User", Name: "x"}}, 257)
		}, "spec.setters[0].subjects: Too many"},
		"a condition that is no boolean": {func(s *v1alpha1.TaintPolicySpec) { s.MatchConditions[0].Expression = "1" }, "spec.matchConditions[0].expression: Invalid"},
		"a condition about a taint": {func(s *v1alpha1.TaintPolicySpec) {
			s.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "taint.key == ''"}}
		}, "spec.matchConditions[0].expression: Invalid"},
		"a selector of every node": {func(s *v1alpha1.TaintPolicySpec) { s.Register[0].NodeSelector = metav1.LabelSelector{} }, "spec.register[0].nodeSelector: Required"},
		"a selector that is none": {func(s *v1alpha1.TaintPolicySpec) {
			s.Register[0].NodeSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
		}, "spec.register[0].nodeSelector.matchExpressions[0].operator: Invalid"},
		"nothing to register":             {func(s *v1alpha1.TaintPolicySpec) { s.Register[0].Taints = nil }, "spec.register[0].taints: Required"},
		"a registered key that is none":   {func(s *v1alpha1.TaintPolicySpec) { s.Register[0].Taints[0].Key = "a b" }, "spec.register[0].taints[0].key: Invalid"},
		"no registered key":               {func(s *v1alpha1.TaintPolicySpec) { s.Register[0].Taints[0].Key = "" }, "spec.register[0].taints[0].key: Required"},
		"a registered key of the system":  {func(s *v1alpha1.TaintPolicySpec) { s.Register[0].Taints[0].Key = "node.kubernetes.io/not-ready" }, "spec.register[0].taints[0].key: Invalid"},
		"a registered value that is none": {func(s *v1alpha1.TaintPolicySpec) { s.Register[0].Taints[0].Value = "a b" }, "spec.register[0].taints[0].value: Invalid"},
		"an effect of devices":            {func(s *v1alpha1.TaintPolicySpec) { s.Register[0].Taints[0].Effect = "None" }, "spec.register[0].taints[0].effect: Unsupported"},
		"a registered taint twice":        {func(s *v1alpha1.TaintPolicySpec) { s.Register[0].Taints = append(s.Register[0].Taints, bananaTaint) }, "spec.register[0].taints[1]: Duplicate"},
		"limits of nothing":               {func(s *v1alpha1.TaintPolicySpec) { s.Limits = &v1alpha1.TaintLimits{} }, "spec.limits: Required"},
		"less than no pods":               {func(s *v1alpha1.TaintPolicySpec) { s.Limits.MaxAffectedPods = new(int32(-1)) }, "spec.limits.maxAffectedPods: Invalid"},
		"more than all pods":              {func(s *v1alpha1.TaintPolicySpec) { s.Limits.MaxAffectedPercent = new(int32(101)) }, "spec.limits.maxAffectedPercent: Invalid"},
		"a skew below nothing":            {func(s *v1alpha1.TaintPolicySpec) { s.Limits.MaxTimeAddedSkew = duration(-1) }, "spec.limits.maxTimeAddedSkew: Invalid"},
		"a window of days":                {func(s *v1alpha1.TaintPolicySpec) { s.Limits.Window.Duration = 25 * time.Hour }, "spec.limits.window: Invalid"},
		"a selector where there is none":  {func(s *v1alpha1.TaintPolicySpec) { s.Taints = s.Taints[:1] }, "spec.limits.requireSelector: Forbidden"},
		"a preview where there is none":   {func(s *v1alpha1.TaintPolicySpec) { s.Taints = s.Taints[:1] }, "spec.limits.requirePreview: Forbidden"},
		"a time that is no time":          {func(s *v1alpha1.TaintPolicySpec) { s.TTL = duration(time.Second) }, "spec.ttl: Invalid"},
		"actions that exclude each other": {func(s *v1alpha1.TaintPolicySpec) { s.ValidationActions = []v1alpha1.ValidationAction{"Deny", "Warn"} }, "spec.validationActions: Invalid"},
		"a message of two lines":          {func(s *v1alpha1.TaintPolicySpec) { s.Message = "a\nb" }, "spec.message: Invalid"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := everyField()
			tt.change(&p.Spec)
			errs := ValidatePolicy(&p)
			require.NotEmpty(t, errs)
			texts := make([]string, 0, len(errs))
			for _, err := range errs {
				texts = append(texts, err.Error())
			}
			require.Contains(t, strings.Join(texts, "\n"), tt.want)
			require.Contains(t, Compile([]v1alpha1.TaintPolicy{p}).Problems(), p.Name)
		})
	}
}

func TestAnExpressionThatDoesNotCompileIsNamedByItsPosition(t *testing.T) {
	p := newPolicy("p", "*", setWhere("operation == 'Add' &&\n  taint.key = 'x'"))
	errs := ValidatePolicy(&p)
	require.Len(t, errs, 1)
	require.Contains(t, errs[0].Error(), "line 2, column 13")
}

func TestAnExpressionThatALaterTollgateHasStoredIsInForce(t *testing.T) {
	p := newPolicy("p", "*", setWhere("dyn([taint.key]).includes('a')")) // Kubernetes 1.37
	require.Len(t, ValidatePolicy(&p), 1, "it must not be written while an older Kubernetes may have to read it")
	set := Compile([]v1alpha1.TaintPolicy{p})
	require.Empty(t, set.Problems())
	for key, want := range map[string]policy.Verdict{"a": policy.Allowed, "b": policy.Denied} {
		decision, err := set.Judge(t.Context(), input(outside, []corev1.Taint{nodeTaint(key, "", corev1.TaintEffectNoSchedule)}, nil))
		require.NoError(t, err)
		require.Equal(t, want, decision.Verdict, key)
	}
}

func TestWhatIsProbablyNotMeantIsSaid(t *testing.T) {
	require.Empty(t, Warnings(new(everyField())))
	warnings := Warnings(new(newPolicy("p", "example.com/*", registering(false, bananaPool, bananaTaint), registering(true, bananaPool, bananaTaint))))
	require.Len(t, warnings, 2)
	require.Contains(t, warnings[0], "spec.setters: there are none, so nobody may")
	require.Contains(t, warnings[1], "spec.register[0].taints[0]: dedicated=banana:NoSchedule is not among spec.taints")
}
