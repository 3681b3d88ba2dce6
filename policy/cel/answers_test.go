package cel

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// expensive takes a third of what a review may cost.
const expensive = "lists.range(4000).all(i, i >= 0)"

func TestWhatDoesNotLookAtTheTolerationIsAskedOnceD01(t *testing.T) {
	t.Parallel()
	program := mustCompile(t, OfToleration, expensive+" && pod.kind == 'Pod'")
	r := review("anna")
	for i := range 100 {
		got, err := program.Bool(t.Context(), r, &Judged{Toleration: numbered(i).Toleration, Pod: r.Request.Object.Raw})
		require.NoError(t, err)
		require.True(t, got)
	}
	require.NotNil(t, r.answers.first)
	require.Empty(t, r.answers.more)
}

func TestTheSameTolerationIsAskedAboutOnceD01(t *testing.T) {
	t.Parallel()
	program := mustCompile(t, OfToleration, expensive+" && toleration.key == 'gpu'")
	r := review("anna")
	for range 100 {
		got, err := program.Bool(t.Context(), r, judged(toleration()))
		require.NoError(t, err)
		require.True(t, got)
	}
}

func TestAnAnswerIsOfAllThatWasAsked(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	gpu := corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpEqual, Value: "a", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(5))}
	change := func(to func(*corev1.Toleration)) *Judged {
		one := gpu
		to(&one)
		return &Judged{Toleration: &one}
	}
	for name, tt := range map[string]struct {
		place          Place
		text           string
		asked, another *Judged
	}{
		"the key":      {OfToleration, "toleration.key == 'gpu'", &Judged{Toleration: &gpu}, change(func(c *corev1.Toleration) { c.Key = "b" })},
		"the operator": {OfToleration, "has(toleration.operator)", &Judged{Toleration: &gpu}, change(func(c *corev1.Toleration) { c.Operator = "" })},
		"the value":    {OfToleration, "toleration.value == 'a'", &Judged{Toleration: &gpu}, change(func(c *corev1.Toleration) { c.Value = "b" })},
		"the effect":   {OfToleration, "has(toleration.effect)", &Judged{Toleration: &gpu}, change(func(c *corev1.Toleration) { c.Effect = "" })},
		"the seconds":  {OfToleration, "toleration.tolerationSeconds == 5", &Judged{Toleration: &gpu}, change(func(c *corev1.Toleration) { c.TolerationSeconds = new(int64(6)) })},
		"no seconds":   {OfToleration, "!has(toleration.tolerationSeconds)", change(func(c *corev1.Toleration) { c.TolerationSeconds = nil }), change(func(c *corev1.Toleration) { c.TolerationSeconds = new(int64(0)) })},
		"none at all":  {OfToleration, "toleration == null", &Judged{}, &Judged{Toleration: &corev1.Toleration{}}},
		"the pod":      {OfToleration, "pod.a == 1", &Judged{Pod: []byte(`{"a":1}`)}, &Judged{Pod: []byte(`{"a":2}`)}},
		"the claim":    {OfToleration, "claim.a == 1", &Judged{Claim: []byte(`{"a":1}`)}, &Judged{Claim: []byte(`{"a":2}`)}},
		"the operation": {
			OfTaint, "operation == 'Add'",
			&Judged{Taint: &corev1.Taint{Key: "a"}, Operation: "Add"}, &Judged{Taint: &corev1.Taint{Key: "a"}, Operation: "Remove"},
		},
		"the time of a taint": {
			OfTaint, "has(taint.timeAdded)",
			&Judged{Taint: &corev1.Taint{Key: "a", TimeAdded: &now}}, &Judged{Taint: &corev1.Taint{Key: "a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := mustCompile(t, tt.place, tt.text)
			r := review("anna")
			for range 2 {
				got, err := program.Bool(t.Context(), r, tt.asked)
				require.NoError(t, err)
				require.True(t, got)
				got, err = program.Bool(t.Context(), r, tt.another)
				require.NoError(t, err)
				require.False(t, got)
			}
			other := mustCompile(t, tt.place, "!("+tt.text+")")
			got, err := other.Bool(t.Context(), r, tt.asked)
			require.NoError(t, err)
			require.False(t, got)
		})
	}
}

func TestAFailureIsKeptAndAFaultIsNot(t *testing.T) {
	t.Parallel()
	r := review("anna")
	asked, fault := 0, errors.New("connection refused")
	r.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		asked++
		return authorizer.DecisionAllow, "", fault
	})
	program := mustCompile(t, OfRequest, "authorizer.path('/x').check('get').allowed()")
	_, err := program.Bool(t.Context(), r, nil)
	require.ErrorIs(t, err, fault)
	fault = nil
	for range 3 {
		got, err := program.Bool(t.Context(), r, nil)
		require.NoError(t, err)
		require.True(t, got)
	}
	require.Equal(t, 2, asked)

	failing := mustCompile(t, OfRequest, "authorizer.path('/x').check('get').allowed() && object.nothing == 1")
	for range 3 {
		_, err := failing.Bool(t.Context(), r, nil)
		require.ErrorAs(t, err, new(*FailedError))
	}
	require.Equal(t, 3, asked)
}

func TestWhatIsSaidAsideTakesNothingFromARefusalD01(t *testing.T) {
	t.Parallel()
	program := mustCompile(t, OfToleration, expensive+" && toleration.key != ''")
	r := review("anna")
	aside := r.Aside()
	require.Same(t, aside, r.Aside())
	require.Same(t, aside, aside.Aside())
	require.Nil(t, (*Review)(nil).Aside())
	exhaust := func(r *Review, from int) {
		for i := from; ; i++ {
			if _, err := program.Bool(t.Context(), r, numbered(i)); err != nil {
				require.EqualError(t, err, exhausted)
				return
			}
		}
	}
	exhaust(r.Aside(), 0)
	require.Zero(t, r.spent)
	got, err := program.Bool(t.Context(), r, numbered(100))
	require.NoError(t, err)
	require.True(t, got)

	exhaust(r, 101)
	_, err = program.Bool(t.Context(), r.Aside(), numbered(100))
	require.NoError(t, err, "what the one knows the other knows")
	got, err = mustCompile(t, OfRequest, "object.kind == 'Pod' && request.namespace == namespaceObject.metadata.name").Bool(t.Context(), (&Review{Request: r.Request, Namespace: r.Namespace}).Aside(), nil)
	require.NoError(t, err)
	require.True(t, got)
}
