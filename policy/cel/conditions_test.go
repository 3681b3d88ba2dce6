package cel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	holds   = "object.metadata.name == 'web-0'"
	doesNot = "object.metadata.name == 'other'"
	fails   = "object.spec.nodeName == 'n1'"
	broken  = "nothing == 1"
	faulty  = "authorizer.path('/x').check('get').allowed()"
)

func conditions(expressions ...string) []admissionregistrationv1.MatchCondition {
	list := make([]admissionregistrationv1.MatchCondition, len(expressions))
	for i, text := range expressions {
		list[i] = admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: text}
	}
	return list
}

func TestConditionsHoldTogether(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("connection refused")
	tests := map[string]struct {
		conditions []admissionregistrationv1.MatchCondition
		want       bool
		failure    string
		fault      error
	}{
		"none":                                      {nil, true, "", nil},
		"all hold":                                  {conditions(holds, holds), true, "", nil},
		"one does not":                              {conditions(holds, doesNot), false, "", nil},
		"one fails":                                 {conditions(holds, fails), false, `the condition "c1": no such key: nodeName (line 1, column 12)`, nil},
		"the first that fails is told":              {conditions(fails, "object.spec.x == 1"), false, `the condition "c0": no such key: nodeName (line 1, column 12)`, nil},
		"false decides after one that failed":       {conditions(fails, doesNot), false, "", nil},
		"false decides after a fault":               {conditions(faulty, doesNot), false, "", nil},
		"a fault counts for more than a failure":    {conditions(fails, faulty), false, "", unreachable},
		"D03 one that does not compile is no false": {conditions(holds, broken), false, `the condition "c1": does not compile: line 1, column 1: undeclared reference to 'nothing'; seen here are authorizer, namespaceObject, object, oldObject, request`, nil},
		"D03 beside one that is false":              {conditions(broken, doesNot), false, "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := review("anna")
			r.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionAllow, "", unreachable
			})
			got, err := CompileConditions(tt.conditions).Match(t.Context(), r)
			require.Equal(t, tt.want, got)
			switch {
			case tt.failure != "":
				require.ErrorAs(t, err, new(*FailedError))
				require.EqualError(t, err, tt.failure)
			case tt.fault != nil:
				require.ErrorIs(t, err, tt.fault)
				require.NotErrorAs(t, err, new(*FailedError))
			default:
				require.NoError(t, err)
			}
		})
	}
}

func TestConditionsUseWhatOneOfThemUses(t *testing.T) {
	t.Parallel()
	require.Equal(t, Uses{}, CompileConditions(nil).Uses())
	require.Equal(t, Uses{Object: true}, CompileConditions(conditions(holds, "true")).Uses())
	require.Equal(t, Uses{Object: true, Requester: true}, CompileConditions(conditions(holds, faulty)).Uses())
}

func TestValidateConditions(t *testing.T) {
	t.Parallel()
	path := field.NewPath("spec", "matchConditions")
	named := func(name, text string) admissionregistrationv1.MatchCondition {
		return admissionregistrationv1.MatchCondition{Name: name, Expression: text}
	}
	tests := map[string]struct {
		conditions []admissionregistrationv1.MatchCondition
		want       []string
	}{
		"those that are right": {append(conditions(holds, doesNot), named("example.com/c", "true")), nil},
		"one without a name":   {[]admissionregistrationv1.MatchCondition{named("", "true")}, []string{"spec.matchConditions[0].name: Required value: conditions are told by their names"}},
		"two of the same name": {[]admissionregistrationv1.MatchCondition{named("a", "true"), named("a", "true")}, []string{`spec.matchConditions[1].name: Duplicate value: "a"`}},
		"a name with a space":  {[]admissionregistrationv1.MatchCondition{named("a b", "true")}, []string{"spec.matchConditions[0].name: Invalid value"}},
		"one without a text":   {[]admissionregistrationv1.MatchCondition{named("a", " ")}, []string{"spec.matchConditions[0].expression: Required value: a CEL expression"}},
		"D03 one that does not compile": {
			conditions("true", "true && x"),
			[]string{`spec.matchConditions[1].expression: Invalid value: "true && x": line 1, column 9: undeclared reference to 'x'`},
		},
		"one that is no bool": {conditions("'a'"), []string{"spec.matchConditions[0].expression: Invalid value: \"'a'\": has to be a bool, and is a string"}},
		"too many":            {make([]admissionregistrationv1.MatchCondition, 65), []string{"spec.matchConditions: Too many: 65: must have at most 64 items"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := ValidateConditions(tt.conditions, path)
			require.Len(t, errs, len(tt.want))
			for i, want := range tt.want {
				require.ErrorContains(t, errs[i], want)
			}
		})
	}
}

func TestValidateJudgesWhatIsBeingWritten(t *testing.T) {
	t.Parallel()
	path := field.NewPath("spec", "message")
	require.Empty(t, Validate(OfToleration, "'no ' + toleration.key", String, path))
	require.Len(t, Validate(OfToleration, "", String, path), 1)
	long := Validate(OfToleration, "'"+strings.Repeat("x", maxLength)+"'", String, path)
	require.Len(t, long, 1)
	require.EqualError(t, long[0], "spec.message: Too long: may not be more than 16384 bytes")

	const newer = "dyn([1, 2]).includes(1)" // 1.37
	require.Len(t, Validate(OfToleration, newer, Bool, path), 1, "not every supported Kubernetes has it")
	got, err := mustCompile(t, OfToleration, newer).Bool(t.Context(), review("anna"), nil)
	require.NoError(t, err, "stored by a Tollgate that knows it, it works")
	require.True(t, got)
}
