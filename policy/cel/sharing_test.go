package cel

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestExpressionsWithTheSameTextAreEvaluatedOnceAReview(t *testing.T) {
	t.Parallel()
	checks := 0
	r := review("anna")
	r.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		checks++
		return authorizer.DecisionAllow, "", nil
	})
	var first *Program
	for range 100 {
		program := mustCompile(t, OfToleration, "authorizer.path('/once').check('get').allowed() && toleration.key == 'gpu'")
		if first == nil {
			first = program
		}
		require.Same(t, first, program)
		got, err := program.Bool(t.Context(), r, judged(toleration()))
		require.NoError(t, err)
		require.True(t, got)
	}
	require.Equal(t, 1, checks)
}

func TestPlacesAndTypesDoNotShareAProgram(t *testing.T) {
	t.Parallel()
	kept := []*Program{mustCompile(t, OfToleration, "toleration == null"), mustCompile(t, OfRequest, "object == null")}
	_, err := Compile(OfTaint, "toleration == null", Bool)
	require.ErrorContains(t, err, "undeclared reference to 'toleration'")
	_, err = Compile(OfRequest, "object == null", String)
	require.EqualError(t, err, "has to be a string, and is a bool")
	require.NotSame(t, kept[1], mustCompile(t, OfTaint, "object == null"))
	require.NotSame(t, kept[1], mustCompile(t, OfRequest, "object == null "))
	runtime.KeepAlive(kept)
}

func TestProgramsThatNoPolicyUsesAreReleased(t *testing.T) {
	t.Parallel()
	compiled := func(text string) weak.Pointer[Program] {
		program := mustCompile(t, OfRequest, text)
		_, err := program.Bool(t.Context(), review("anna"), nil) // with a plan
		require.NoError(t, err)
		return weak.Make(program)
	}
	for i := range 10 {
		text := fmt.Sprintf("object.kind == 'released-%d'", i)
		p := compiled(text)
		require.Eventually(t, func() bool {
			runtime.GC()
			_, listed := programs.Load(source{place: OfRequest, text: text})
			return p.Value() == nil && !listed
		}, time.Minute, time.Millisecond)
		require.NotNil(t, mustCompile(t, OfRequest, text))
	}
}
