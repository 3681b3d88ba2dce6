package replicas

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// requireHandedOver fails unless a leader that was told to end gives the lease back while
// it still answers, and another replica has it before it would have run out. It returns
// when that has it.
func requireHandedOver(t *testing.T, from, to *replica, told time.Time) time.Time {
	t.Helper()
	given, taken := from.gaveBack(t, told), to.waitTerm(t, told)
	require.Less(t, given.Sub(told), drainPeriod, "it still answers")
	require.Less(t, taken.Sub(given), leaseDuration)
	return taken
}

func TestE06ARollingRestartUnderLoadFailsNoReview(t *testing.T) {
	leader, standby := waitLeader(t)
	load := startLoad(t, 20, 500)
	began := time.Now()
	// Each of them leads when its turn comes, and the other one is told so.
	for _, turn := range []struct{ ends, leadsNext *replica }{{leader, standby}, {standby, leader}} {
		told := turn.ends.signal(t, syscall.SIGTERM)
		eventually(t, "it says that it is not ready", func(ctx context.Context) error {
			status, body, err := suite.Fetch(ctx, turn.ends.HealthURL+"/readyz")
			if err == nil && status == http.StatusOK {
				err = fmt.Errorf("it is: %s", body)
			}
			return err
		})
		unready := time.Since(told)
		taken := requireHandedOver(t, turn.ends, turn.leadsNext, told)
		turn.ends.wait(t)
		require.GreaterOrEqual(t, time.Since(told), drainPeriod)
		t.Logf("%s: not ready after %s, its successor leads after %s, ended after %s", turn.ends.Name,
			unready.Round(time.Millisecond), taken.Sub(told).Round(time.Millisecond), time.Since(told).Round(time.Millisecond))
		turn.ends.restart(t)
	}
	load.stop()
	reviews, slowest, failures := load.result()
	t.Logf("%d reviews in %s, the slowest took %s", reviews, time.Since(began).Round(time.Second), slowest.Round(time.Millisecond))
	require.Empty(t, failures, "%v", failures)
	require.Greater(t, reviews, 500)
}

func TestBothReplicasStartAtOnceWithoutACertificateAndShareOne(t *testing.T) {
	secrets := clientOf(t).CoreV1().Secrets("tollgate-system")
	for _, r := range []*replica{first, second} {
		r.signal(t, syscall.SIGTERM)
	}
	first.wait(t)
	second.wait(t)
	err := secrets.Delete(t.Context(), "tollgate-serving-certificate", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	var both errgroup.Group
	for _, r := range []*replica{first, second} {
		both.Go(func() error { return r.Start(t.Context()) })
	}
	require.NoError(t, both.Wait())
	waitGiven(t, first, second)

	roots := caBundle(t)
	var served []string
	for _, r := range []*replica{first, second} {
		dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
		conn, err := dialer.DialContext(t.Context(), "tcp", r.address)
		require.NoError(t, err, "what the API server trusts is what %s shows", r.Name)
		secured, ok := conn.(*tls.Conn)
		require.True(t, ok)
		served = append(served, secured.ConnectionState().PeerCertificates[0].SerialNumber.String())
		require.NoError(t, conn.Close())
	}
	require.Equal(t, served[0], served[1], "both show the same certificate")
	_, err = ask(t.Context(), callerOf(roots, false), review(t))
	require.NoError(t, err)
}

func TestJ09ALeaderThatCrashesAgainAndAgainDoesNotKeepReviewsFromBeingAnswered(t *testing.T) {
	load := startLoad(t, 8, 80)
	var deaths []death
	for range rounds(t, 1) {
		leader, standby := waitLeader(t)
		killed := leader.signal(t, syscall.SIGKILL)
		leader.wait(t)
		deaths = append(deaths, death{killed, leader.waitNotGiven(t)})
		standby.waitTerm(t, killed)
		leader.restart(t)
	}
	requireOnlyOf(t, load, nil, deaths...)
}
