package handlers

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slow answers when it is let, as it is by then.
type slow struct {
	*stored

	let chan struct{}
}

func (s slow) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	select {
	case <-s.let:
		return s.stored.Get(ctx, key, into, options...)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// everyFlight are the reads that requests share.
func everyFlight(reader client.Reader) map[string]func(context.Context) error {
	namespaces := NewNamespaces(storing(), reader, clock.RealClock{})
	nodes := newLiveNodes(reader, nil, clock.RealClock{})
	known := newOwners(reader, clock.RealClock{}, nil)
	return map[string]func(context.Context) error{
		"namespace": func(ctx context.Context) error {
			_, err := namespaces.Namespace(ctx, "apple")
			return err
		},
		"confirmed namespace": func(ctx context.Context) error {
			_, err := namespaces.Confirmed(ctx, "apple")
			return err
		},
		"node": func(ctx context.Context) error {
			_, _, err := nodes.taints(ctx, "n")
			return err
		},
		"owner": func(ctx context.Context) error {
			reference := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs"}
			_, err := known.of(ctx, "apple", reference, "", time.Time{})
			return err
		},
	}
}

func TestOneWhoLeavesDoesNotEndTheReadForTheOthers(t *testing.T) {
	for _, name := range []string{"namespace", "confirmed namespace", "node", "owner"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := storing(
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apple"}}, nodeTainted("n"),
					&appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs")},
				)
				reader := slow{objects, make(chan struct{})}
				read := everyFlight(reader)[name]
				impatient, leave := context.WithCancelCause(t.Context())
				gone := errors.New("the request is over")
				var left, stayed error
				var all sync.WaitGroup
				all.Go(func() { left = read(impatient) })
				synctest.Wait()
				all.Go(func() { stayed = read(t.Context()) })
				synctest.Wait()
				time.Sleep(gathering)
				leave(gone)
				synctest.Wait()
				require.ErrorIs(t, left, gone)
				close(reader.let)
				all.Wait()
				require.NoError(t, stayed)
				require.Equal(t, 1, objects.asked())
			})
		})
	}
}

func TestAReadThatHangsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, read := range everyFlight(slow{storing(), nil}) {
			began := time.Now()
			require.ErrorIs(t, read(t.Context()), context.DeadlineExceeded, name)
			require.Equal(t, flightTimeout, time.Since(began), name)
		}
	})
}

// twoReads returns a read that counts itself in reads and ends when its channel of let is closed.
func twoReads() (let [2]chan struct{}, reads *int, read func(context.Context) (int, error)) {
	let, reads = [2]chan struct{}{make(chan struct{}), make(chan struct{})}, new(int)
	return let, reads, func(context.Context) (int, error) {
		*reads++
		n := *reads
		<-let[n-1]
		return n, nil
	}
}

func TestNobodyIsGivenWhatWasReadBeforeTheyAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flights := flights[int]{clock: clock.RealClock{}}
		let, reads, begin := twoReads()
		read := func(ctx context.Context) (int, error) {
			n, err := begin(ctx)
			if n == 1 {
				err = io.ErrUnexpectedEOF // which is no news to those who came later
			}
			return n, err
		}
		var first, later [2]landed[int]
		var firstErrs, laterErrs [2]error
		var all sync.WaitGroup
		for i := range first {
			since := time.Now()
			all.Go(func() { first[i], firstErrs[i] = flights.read(t.Context(), "a", since, read) })
		}
		synctest.Wait()
		time.Sleep(time.Millisecond)
		for i := range later {
			since := time.Now()
			all.Go(func() { later[i], laterErrs[i] = flights.read(t.Context(), "a", since, read) })
		}
		synctest.Wait()
		require.Equal(t, 1, *reads, "it is one read at a time")
		close(let[0])
		synctest.Wait()
		require.Equal(t, 2, *reads, "and one for all who came later")
		close(let[1])
		all.Wait()
		for i := range first {
			require.ErrorIs(t, firstErrs[i], io.ErrUnexpectedEOF)
			require.NoError(t, laterErrs[i])
			require.Equal(t, 1, first[i].value)
			require.Equal(t, 2, later[i].value)
		}
	})
}

func TestReadsThatGatherDoNotWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flights := flights[int]{clock: clock.RealClock{}, gathers: gathering}
		let, reads, read := twoReads()
		var got [4]landed[int]
		var errs [4]error
		var all sync.WaitGroup
		ask := func(i int) {
			since := time.Now()
			all.Go(func() { got[i], errs[i] = flights.read(t.Context(), "a", since, read) })
			synctest.Wait()
		}
		ask(0)
		time.Sleep(gathering / 2)
		ask(1)
		time.Sleep(gathering)
		synctest.Wait()
		require.Equal(t, 1, *reads, "for both")
		ask(2)
		ask(3)
		time.Sleep(gathering)
		synctest.Wait()
		require.Equal(t, 2, *reads, "and one for both who came later, while the first is under way")
		close(let[1])
		synctest.Wait()
		require.Equal(t, 2, got[2].value)
		close(let[0])
		all.Wait()
		for i, want := range []int{1, 1, 2, 2} {
			require.NoError(t, errs[i])
			require.Equal(t, want, got[i].value)
		}
	})
}

func TestATemplateThatGainsATolerationWhileItIsReadIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live := storing(&appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs")})
		config := testConfig()
		config.Policies = dedicatedTo(t, byAlice)
		config.Live = live
		endpoint := Validate(config)
		allowed := func() bool {
			req, err := readRequest(marshal(t, asked(t, "pods", "", controllerNamed("replicaset-controller"), ownedBy("apps/v1", "ReplicaSet", "web", "rs"), nil)))
			require.NoError(t, err)
			response, err := answer(t.Context(), endpoint.Review, req)
			require.NoError(t, err)
			return response.Allowed
		}
		require.False(t, allowed())
		time.Sleep(time.Millisecond)
		live.store(&appsv1.ReplicaSet{ObjectMeta: metaOf("web", "rs"), Spec: appsv1.ReplicaSetSpec{Template: templateWith(exampleToleration)}})
		require.True(t, allowed())
		require.Equal(t, 2, live.asked(), "and what was kept is not asked for twice")
		require.True(t, allowed())
		require.Equal(t, 2, live.asked())
	})
}
