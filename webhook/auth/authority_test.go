package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"
)

var _ authorizer.Authorizer = (*Authority)(nil)

// cluster answers reviews, and remembers them.
type cluster struct {
	mu      sync.Mutex
	asked   []authorizationv1.SubjectAccessReviewSpec
	atOnce  int
	most    int
	answers func(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)
}

func (c *cluster) Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	c.mu.Lock()
	c.asked = append(c.asked, review.Spec)
	c.atOnce++
	c.most = max(c.most, c.atOnce)
	c.mu.Unlock()
	status, err := c.answers(ctx, &review.Spec)
	c.mu.Lock()
	c.atOnce--
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	review.Status = status
	return review, nil
}

func (c *cluster) questions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

// always answers every review alike.
func always(status authorizationv1.SubjectAccessReviewStatus, err error) *cluster {
	return &cluster{answers: func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
		return status, err
	}}
}

func may(name, verb, key string, groups ...string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, Groups: groups},
		Verb: verb, APIGroup: "tollgate.dev", APIVersion: "v1alpha1", Resource: "taints", Name: key, ResourceRequest: true,
	}
}

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// unlimited lets all questions of a test be put at once.
var unlimited = AuthorityLimits{PerSecond: 1e9, Burst: 1e9}

func TestTheAnswerIsThatOfTheAPIServer(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status authorizationv1.SubjectAccessReviewStatus
		want   authorizer.Decision
		kept   bool
	}{
		"allowed":              {authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "by a role"}, authorizer.DecisionAllow, true},
		"nobody allows it":     {authorizationv1.SubjectAccessReviewStatus{Reason: "by a role"}, authorizer.DecisionNoOpinion, true},
		"denied":               {authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "by a role"}, authorizer.DecisionDeny, true},
		"denied and allowed":   {authorizationv1.SubjectAccessReviewStatus{Denied: true, Allowed: true, Reason: "by a role"}, authorizer.DecisionDeny, true},
		"allowed for all that": {authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "by a role", EvaluationError: "no such role"}, authorizer.DecisionAllow, true},
		"a no that may pass":   {authorizationv1.SubjectAccessReviewStatus{Reason: "by a role", EvaluationError: "no such role"}, authorizer.DecisionNoOpinion, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := always(tt.status, nil)
			a := NewAuthority(c, clocktesting.NewFakeClock(start), unlimited)
			for range 2 {
				decision, reason, err := a.Authorize(t.Context(), may("anna", "tolerate", "gpu"))
				require.NoError(t, err)
				require.Equal(t, tt.want, decision)
				require.Equal(t, "by a role", reason)
			}
			if tt.kept {
				require.Equal(t, 1, c.questions())
			} else {
				require.Equal(t, 2, c.questions())
			}
			aware := a.ConditionsAwareAuthorize(t.Context(), may("anna", "tolerate", "gpu"))
			require.Equal(t, tt.want == authorizer.DecisionAllow, aware.IsAllow())
		})
	}
}

func TestAnAnswerHoldsForTenSeconds(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{true, false} {
		c := always(authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}, nil)
		now := clocktesting.NewFakeClock(start)
		a := NewAuthority(c, now, unlimited)
		ask := func() authorizer.Decision {
			decision, _, err := a.Authorize(t.Context(), may("anna", "tolerate", "gpu"))
			require.NoError(t, err)
			return decision
		}
		before := ask()
		c.answers = always(authorizationv1.SubjectAccessReviewStatus{Allowed: !allowed}, nil).answers
		now.SetTime(start.Add(keptFor))
		require.Equal(t, before, ask())
		require.Equal(t, 1, c.questions())
		now.SetTime(start.Add(keptFor + time.Second))
		require.NotEqual(t, before, ask())
		require.Equal(t, 2, c.questions())
	}
}

func TestAnErrorIsNoAnswerAndIsAskedAgain(t *testing.T) {
	t.Parallel()
	unreachable := errors.New("connection refused")
	c := always(authorizationv1.SubjectAccessReviewStatus{Allowed: true}, unreachable)
	a := NewAuthority(c, clocktesting.NewFakeClock(start), unlimited)
	for i := range 3 {
		decision, _, err := a.Authorize(t.Context(), may("anna", "tolerate", "gpu"))
		require.ErrorIs(t, err, unreachable)
		require.NotEqual(t, authorizer.DecisionAllow, decision)
		require.Equal(t, i+1, c.questions())
	}
	c.answers = always(authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil).answers
	decision, _, err := a.Authorize(t.Context(), may("anna", "tolerate", "gpu"))
	require.NoError(t, err)
	require.Equal(t, authorizer.DecisionAllow, decision)
}

func TestTheSameQuestionAtOnceIsAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := &cluster{answers: func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
			<-release
			return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
		}}
		a := NewAuthority(c, clocktesting.NewFakeClock(start), unlimited)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				decision, _, err := a.Authorize(t.Context(), may("anna", "tolerate", "gpu"))
				if err != nil || decision != authorizer.DecisionAllow {
					t.Errorf("got %v, %v", decision, err)
				}
			})
		}
		synctest.Wait()
		require.Equal(t, 1, c.questions())
		close(release)
		all.Wait()
		require.Equal(t, 1, c.questions())
	})
}

func TestOneWhoLeavesDoesNotEndTheQuestionForTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := &cluster{answers: func(ctx context.Context, _ *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
			select {
			case <-release:
				return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
			case <-ctx.Done():
				return authorizationv1.SubjectAccessReviewStatus{}, ctx.Err()
			}
		}}
		a := NewAuthority(c, clocktesting.NewFakeClock(start), unlimited)
		impatient, leave := context.WithCancelCause(t.Context())
		gone := errors.New("the request is over")
		var left, stayed error
		var decision authorizer.Decision
		var all sync.WaitGroup
		all.Go(func() { _, _, left = a.Authorize(impatient, may("anna", "tolerate", "gpu")) })
		synctest.Wait()
		all.Go(func() { decision, _, stayed = a.Authorize(t.Context(), may("anna", "tolerate", "gpu")) })
		synctest.Wait()
		leave(gone)
		synctest.Wait()
		close(release)
		all.Wait()
		require.ErrorIs(t, left, gone)
		require.NoError(t, stayed)
		require.Equal(t, authorizer.DecisionAllow, decision)
		require.Equal(t, 1, c.questions())
	})
}

func TestAnAPIServerThatHangsIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{answers: func(ctx context.Context, _ *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
			<-ctx.Done()
			return authorizationv1.SubjectAccessReviewStatus{}, ctx.Err()
		}}
		a := NewAuthority(c, clocktesting.NewFakeClock(start), unlimited)
		began := time.Now()
		_, _, err := a.Authorize(t.Context(), may("anna", "tolerate", "gpu"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, patience, time.Since(began))
	})
}

func TestQuestionsUnderWayAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := &cluster{answers: func(ctx context.Context, _ *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
			select {
			case <-release:
				return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
			case <-ctx.Done():
				return authorizationv1.SubjectAccessReviewStatus{}, ctx.Err()
			}
		}}
		a := NewAuthority(c, clocktesting.NewFakeClock(start), unlimited)
		ask := func(n int) (errs chan error) {
			errs = make(chan error, n)
			for i := range n {
				go func() {
					_, _, err := a.Authorize(t.Context(), may("anna", "tolerate", fmt.Sprintf("key-%d", i)))
					errs <- err
				}()
			}
			return errs
		}
		answered := ask(3 * atOnce)
		synctest.Wait()
		require.Equal(t, atOnce, c.questions(), "the others wait")
		close(release)
		for range 3 * atOnce {
			require.NoError(t, <-answered)
		}
		require.LessOrEqual(t, c.most, atOnce)

		release = make(chan struct{})
		a = NewAuthority(c, clocktesting.NewFakeClock(start), unlimited)
		waited := ask(atOnce + 1)
		for range atOnce + 1 {
			require.ErrorIs(t, <-waited, context.DeadlineExceeded, "nobody waits for ever")
		}
	})
}

func TestAnswersKeptAreLimited(t *testing.T) {
	t.Parallel()
	c := always(authorizationv1.SubjectAccessReviewStatus{}, nil)
	a := NewAuthority(c, clocktesting.NewFakeClock(start), unlimited)
	for i := range kept + 100 {
		_, _, err := a.Authorize(t.Context(), may("anna", "tolerate", fmt.Sprintf("key-%d", i)))
		require.NoError(t, err)
	}
	require.Len(t, a.answers.Keys(), kept)
}

func TestConditionsAreNotEvaluated(t *testing.T) {
	t.Parallel()
	decision, _, err := NewAuthority(nil, clocktesting.NewFakeClock(start), unlimited).EvaluateConditions(t.Context(), authorizer.ConditionsAwareDecision{}, nil)
	require.ErrorIs(t, err, authorizer.ErrorConditionEvaluationNotSupported)
	require.Equal(t, authorizer.DecisionDeny, decision)
}

func BenchmarkAnswerThatIsKept(b *testing.B) {
	a := NewAuthority(always(authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil), clocktesting.NewFakeClock(start), unlimited)
	question := may("system:serviceaccount:shop:deployer", "tolerate", "example.com/gpu",
		"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := a.Authorize(b.Context(), question); err != nil {
			b.Fatal(err)
		}
	}
}
