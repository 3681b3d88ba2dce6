package vap

import (
	"reflect"
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
)

// fieldChange sets a field of a TaintPolicy. What is exported changes with it, or the field
// is in a note.
type fieldChange struct {
	set func(*v1alpha1.TaintPolicySpec)
	// note is the field of the note; empty for what is exported.
	note string
	// partial says that verdicts hang on the field.
	partial bool
}

func limit(limits v1alpha1.TaintLimits) func(*v1alpha1.TaintPolicySpec) {
	return func(s *v1alpha1.TaintPolicySpec) { s.Limits = &limits }
}

func register(s *v1alpha1.TaintPolicySpec) {
	s.Register = []v1alpha1.TaintRegistration{{
		NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}, Reconcile: true,
		Taints: []v1alpha1.RegisteredTaint{{Key: "a", Value: "v", Effect: corev1.TaintEffectNoSchedule}},
	}}
}

var taintFields = map[string]fieldChange{
	"taints[].target": {set: func(s *v1alpha1.TaintPolicySpec) { s.Taints[0].Target = v1alpha1.TaintTargetDevice }, note: "spec.taints", partial: true},
	"taints[].key":    {set: func(s *v1alpha1.TaintPolicySpec) { s.Taints[0].Key = "b" }},
	"taints[].values": {set: func(s *v1alpha1.TaintPolicySpec) { s.Taints[0].Values = []string{"v"} }},
	"taints[].effects": {set: func(s *v1alpha1.TaintPolicySpec) {
		s.Taints[0].Effects = []corev1.TaintEffect{corev1.TaintEffectNoExecute}
	}},
	"taints[].drivers": {set: func(s *v1alpha1.TaintPolicySpec) {
		s.Taints[0].Target, s.Taints[0].Drivers = v1alpha1.TaintTargetDevice, []string{"gpu.example.com"}
	}, note: "spec.taints", partial: true},
	"setters[].subjects": {set: func(s *v1alpha1.TaintPolicySpec) {
		s.Setters[0].Subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "jane"}}
	}},
	"setters[].rbac":       {set: func(s *v1alpha1.TaintPolicySpec) { s.Setters[0].RBAC = true }},
	"setters[].expression": {set: func(s *v1alpha1.TaintPolicySpec) { s.Setters[0].Expression = "has(taint.value)" }},
	"setters[].operations": {set: func(s *v1alpha1.TaintPolicySpec) {
		s.Setters[0].Operations = []v1alpha1.TaintOperation{v1alpha1.TaintAdd}
	}},
	"matchConditions": {set: func(s *v1alpha1.TaintPolicySpec) {
		s.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "request.operation == 'CREATE'"}}
	}},
	"register[].nodeSelector":    {set: register, note: "spec.register", partial: true},
	"register[].taints[].key":    {set: register, note: "spec.register", partial: true},
	"register[].taints[].value":  {set: register, note: "spec.register", partial: true},
	"register[].taints[].effect": {set: register, note: "spec.register", partial: true},
	"register[].reconcile":       {set: register, note: "spec.register", partial: true},
	"limits.maxAffectedPods":     {set: limit(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1))}), note: "spec.limits.maxAffectedPods", partial: true},
	"limits.maxAffectedPercent":  {set: limit(v1alpha1.TaintLimits{MaxAffectedPercent: new(int32(1))}), note: "spec.limits.maxAffectedPercent", partial: true},
	"limits.requireSelector": {set: func(s *v1alpha1.TaintPolicySpec) {
		s.Taints[0].Target, s.Limits = v1alpha1.TaintTargetDevice, &v1alpha1.TaintLimits{RequireSelector: true}
	}},
	"limits.requirePreview": {set: func(s *v1alpha1.TaintPolicySpec) {
		s.Taints[0].Target, s.Limits = v1alpha1.TaintTargetDevice, &v1alpha1.TaintLimits{RequirePreview: true}
	}},
	"limits.maxTimeAddedSkew": {
		set:  limit(v1alpha1.TaintLimits{MaxTimeAddedSkew: &metav1.Duration{Duration: time.Minute}}),
		note: "spec.limits.maxTimeAddedSkew", partial: true,
	},
	// It says how long pods are counted, and means nothing by itself.
	"limits.window": {
		set:  limit(v1alpha1.TaintLimits{MaxAffectedPods: new(int32(1)), Window: metav1.Duration{Duration: time.Minute}}),
		note: "spec.limits.maxAffectedPods", partial: true,
	},
	"ttl":               {set: func(s *v1alpha1.TaintPolicySpec) { s.TTL = &metav1.Duration{Duration: time.Hour} }, note: "spec.ttl"},
	"validationActions": {set: func(s *v1alpha1.TaintPolicySpec) { s.ValidationActions = []v1alpha1.ValidationAction{v1alpha1.Warn} }},
	"message":           {set: func(s *v1alpha1.TaintPolicySpec) { s.Message = "no" }},
}

// meaninglessForTaints are the fields that a valid TaintPolicy does not have.
var meaninglessForTaints = []string{"taints[].deviceClasses"}

func TestEveryFieldOfATaintPolicyIsExportedOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	export := func(change func(*v1alpha1.TaintPolicySpec)) Exported {
		p := v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.TaintPolicySpec{
			Taints:  []v1alpha1.TaintSelector{{Key: "a"}},
			Setters: []v1alpha1.TaintSetter{{Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "ops"}}}},
		}}
		change(&p.Spec)
		exported, err := Taints(&p, []v1alpha1.TaintPolicy{p}, DefaultSettings())
		require.NoError(t, err)
		return exported
	}
	plain := export(func(*v1alpha1.TaintPolicySpec) {})
	for _, path := range fieldsOf(reflect.TypeFor[v1alpha1.TaintPolicySpec](), "") {
		change, ok := taintFields[path]
		if !ok {
			require.Contains(t, meaninglessForTaints, path, "%s is new: decide what `kubectl tollgate export vap` makes of it", path)
			continue
		}
		changed := export(change.set)
		if change.note == "" {
			require.NotEqual(t, plain.Objects, changed.Objects, path)
			continue
		}
		require.Condition(t, func() bool {
			for _, note := range changed.Notes {
				if note.Field == change.note && note.Partial == change.partial {
					return true
				}
			}
			return false
		}, "%s: %v", path, changed.Notes)
		require.Equal(t, change.partial, len(changed.Missing()) > 0, path)
	}
}

func TestATaintPolicyWithAFaultIsNotExported(t *testing.T) {
	t.Parallel()
	p := v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.TaintPolicySpec{
		Taints: []v1alpha1.TaintSelector{{Key: "a"}}, Setters: []v1alpha1.TaintSetter{{Expression: "taint.kye == 'a'"}},
	}}
	_, err := Taints(&p, nil, DefaultSettings())
	require.ErrorContains(t, err, "spec.setters[0].expression")
	p.Spec.Setters, p.Name = nil, strings.Repeat("p", 240)
	_, err = Taints(&p, nil, DefaultSettings())
	require.ErrorContains(t, err, "give it a shorter name")
}

func TestItIsSaidHowOftenASetterAsksWhatIsAuthorized(t *testing.T) {
	t.Parallel()
	for expression, asks := range map[string]bool{
		"operation == 'Add'": false,
		"authorizer.group('tollgate.dev').resource('taints').name(taint.key).check('taint').allowed()": true,
	} {
		p := v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.TaintPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "a"}}, Setters: []v1alpha1.TaintSetter{{Expression: expression}},
		}}
		exported, err := Taints(&p, nil, DefaultSettings())
		require.NoError(t, err)
		require.Equal(t, asks, slices.Contains(exported.Notes, AboutQuestions("spec.setters[0].expression")))
	}
}

func TestItIsSaidHowManyKeysRBACIsAskedAbout(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{false, true} {
		p := v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.TaintPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "a"}}, Setters: []v1alpha1.TaintSetter{{RBAC: asks, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "jane"}}}},
		}}
		exported, err := Taints(&p, nil, DefaultSettings())
		require.NoError(t, err)
		require.Equal(t, asks, slices.Contains(exported.Notes, AboutKeys))
	}
}

func TestAnExportSaysThatNobodyGivesTaintsTheirTimeFirst(t *testing.T) {
	t.Parallel()
	for expression, noted := range map[string]bool{"has(taint.timeAdded)": true, "taint.key == 'a'": false} {
		p := &v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.Taints = []v1alpha1.TaintSelector{{Key: "a"}}
		p.Spec.Setters = []v1alpha1.TaintSetter{{Expression: expression}}
		exported, err := Taints(p, nil, DefaultSettings())
		require.NoError(t, err)
		fields := map[string]bool{}
		for _, note := range exported.Notes {
			fields[note.Field] = true
		}
		require.Equal(t, noted, fields["spec.setters"], expression)
	}
}
