package cel

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	cheapText  = "request == null"
	costlyText = "lists.range(4000).all(i, i >= 0)"
)

func TestTurnsA14(t *testing.T) {
	t.Parallel()
	t.Run("a cheap expression is evaluated while others have all turns", func(t *testing.T) {
		t.Parallel()
		turns := NewTurns(1, 0)
		require.NoError(t, turns.take(t.Context(), true))
		holds, err := mustCompile(t, OfRequest, cheapText).Bool(t.Context(), &Review{Turns: turns}, nil)
		require.NoError(t, err)
		require.True(t, holds)
	})
	t.Run("many cheap expressions of one review need a turn when together they cost more than a little", func(t *testing.T) {
		t.Parallel()
		turns, review := NewTurns(1, 0), &Review{}
		review.Turns = turns
		require.NoError(t, turns.take(t.Context(), true))
		some := mustCompile(t, OfToleration, "lists.range(50).all(i, i >= 0) || toleration.key == ''")
		done := 0
		var err error
		for ; err == nil; done++ {
			_, err = some.Bool(t.Context(), review, numbered(done))
		}
		require.ErrorAs(t, err, new(*BusyError))
		require.Greater(t, done, 10)
		require.LessOrEqual(t, review.spentAtOnce, costAtOnce+taken(limits[little]))
		turns.leave()
		_, err = some.Bool(t.Context(), review, numbered(-1))
		require.NoError(t, err, "with a turn it goes on")
	})
	t.Run("a costly expression without a turn is no verdict, and says why", func(t *testing.T) {
		t.Parallel()
		turns := NewTurns(1, 0)
		require.NoError(t, turns.take(t.Context(), true))
		_, err := mustCompile(t, OfRequest, costlyText).Bool(t.Context(), &Review{Turns: turns}, nil)
		require.ErrorAs(t, err, new(*BusyError))
		require.NotErrorAs(t, err, new(*FailedError))
		require.EqualError(t, err, "0 requests wait for costly expressions to be evaluated; try again later")
	})
	t.Run("one waits for its turn, and the next is told at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			turns, program := NewTurns(1, 1), mustCompile(t, OfRequest, costlyText)
			require.NoError(t, turns.take(t.Context(), true))
			var waits sync.WaitGroup
			waits.Go(func() {
				holds, err := program.Bool(t.Context(), &Review{Turns: turns}, nil)
				require.NoError(t, err)
				require.True(t, holds)
			})
			synctest.Wait()
			_, err := program.Bool(t.Context(), &Review{Turns: turns}, nil)
			require.ErrorAs(t, err, new(*BusyError))
			turns.leave()
			waits.Wait()
		})
	})
	t.Run("who waits leaves at the end of its review, and nobody waits for it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			turns, program := NewTurns(1, 1), mustCompile(t, OfRequest, costlyText)
			require.NoError(t, turns.take(t.Context(), true))
			ctx, cancel := context.WithCancel(t.Context())
			var waits sync.WaitGroup
			waits.Go(func() {
				_, err := program.Bool(ctx, &Review{Turns: turns}, nil)
				require.ErrorIs(t, err, context.Canceled)
			})
			synctest.Wait()
			cancel()
			waits.Wait()
			turns.leave()
			_, err := program.Bool(t.Context(), &Review{Turns: turns}, nil)
			require.NoError(t, err)
		})
	})
	t.Run("who has had a turn in its review waits, however many do", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			turns, review := NewTurns(1, 0), &Review{}
			review.Turns = turns
			_, err := mustCompile(t, OfRequest, costlyText).Bool(t.Context(), review, nil)
			require.NoError(t, err)
			require.NoError(t, turns.take(t.Context(), true))
			var waits sync.WaitGroup
			waits.Go(func() {
				_, err := mustCompile(t, OfRequest, costlyText+" && true").Bool(t.Context(), review, nil)
				require.NoError(t, err)
			})
			synctest.Wait()
			turns.leave()
			waits.Wait()
		})
	})
	t.Run("who has had a turn goes before who waits for the first", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			turns := NewTurns(1, 1)
			require.NoError(t, turns.take(t.Context(), true))
			order := make(chan string, 2)
			for _, first := range []bool{true, false} {
				go func() {
					if err := turns.take(t.Context(), first); err != nil {
						order <- err.Error()
						return
					}
					order <- map[bool]string{true: "first", false: "begun"}[first]
					turns.leave()
				}()
				synctest.Wait()
			}
			turns.leave()
			require.Equal(t, "begun", <-order)
			require.Equal(t, "first", <-order)
		})
	})
	t.Run("a turn that comes when its review has ended is not lost", func(t *testing.T) {
		t.Parallel()
		turns := NewTurns(1, 1)
		require.NoError(t, turns.take(t.Context(), true))
		turn, err := turns.enter(true)
		require.NoError(t, err)
		turns.leave() // the turn is given, and nobody looks
		turns.abandon(turn)
		require.NoError(t, turns.take(t.Context(), true))
	})
	t.Run("others have the turn while an expression waits for an authorizer", func(t *testing.T) {
		t.Parallel()
		turns, asked := NewTurns(1, 0), 0
		review := &Review{Turns: turns}
		review.Request = newSample(t, `{}`).review().Request
		review.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
			asked++
			if err := turns.take(ctx, true); err != nil {
				return authorizer.DecisionNoOpinion, "", err
			}
			turns.leave()
			return authorizer.DecisionAllow, "", nil
		})
		holds, err := mustCompile(t, OfRequest, costlyText+" && authorizer.path('/x').check('get').allowed()").Bool(t.Context(), review, nil)
		require.NoError(t, err)
		require.True(t, holds)
		require.Positive(t, asked)
		require.NoError(t, turns.take(t.Context(), true), "the turn was given back, once")
		require.ErrorAs(t, turns.take(t.Context(), true), new(*BusyError))
	})
	t.Run("an error of the authorizer is not hidden by the end of the review", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		broken := errors.New("broken")
		turns := NewTurns(1, 0)
		review := &Review{Turns: turns}
		review.Request = newSample(t, `{}`).review().Request
		review.Authorizer = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			cancel()
			return authorizer.DecisionNoOpinion, "", broken
		})
		_, err := mustCompile(t, OfRequest, costlyText+" && authorizer.path('/x').check('get').allowed()").Bool(ctx, review, nil)
		require.ErrorIs(t, err, broken)
	})
	t.Run("nil turns bound nothing", func(t *testing.T) {
		t.Parallel()
		var turns *Turns
		require.NoError(t, turns.take(t.Context(), true))
		turns.leave()
	})
}
