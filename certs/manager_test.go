package certs

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// running starts a Manager in the bubble of the test and returns a function that stops it.
func running(t *testing.T, c *cluster, f fault, change ...func(*Options)) (m *Manager, stop func()) {
	t.Helper()
	o := Options{
		Client: c.client(f), Clock: clock.RealClock{}, Metrics: NewMetrics(prometheus.NewPedanticRegistry()),
		OwnCA:          testCA(),
		Configurations: testConfig,
	}
	for _, f := range change {
		f(&o)
	}
	m, err := New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(quiet(t))
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	synctest.Wait()
	return m, func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// TestManagerRuns runs in a bubble, which fails if a goroutine outlives Start (L06).
func TestManagerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
		m, stop := running(t, c, nil, func(o *Options) { o.recheck = 100 * day })
		require.NoError(t, m.Ready(nil))
		require.False(t, m.NeedLeaderElection())

		first := m.use.load()
		time.Sleep(defaultServingLifetime / 2)
		require.True(t, m.use.load().same(first))
		time.Sleep(defaultServingLifetime/2 - day)
		require.False(t, m.use.load().same(first), "renewed in time")

		time.Sleep(defaultCALifetime)
		synctest.Wait()
		require.NoError(t, m.Ready(nil))
		require.False(t, m.use.load().issuer.Equal(first.issuer), "the CA was rolled over")
		stop()
	})
}

func TestManagerIsWokenByEdits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
		m, stop := running(t, c, nil)
		began := time.Now()
		want := c.secret(t).Data[dataBundle]

		v := c.validating(t)
		v.Webhooks[0].ClientConfig.CABundle = nil
		_, err := c.client(nil).AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, want, c.validating(t).Webhooks[0].ClientConfig.CABundle)

		c.edit(t, func(s *corev1.Secret) { s.Data[dataServingKey] = []byte("garbage") })
		synctest.Wait()
		require.Empty(t, parseState(c.secret(t)).problems)
		require.NoError(t, m.Ready(nil))

		require.NoError(t, c.client(nil).CoreV1().Secrets(testNamespace).Delete(t.Context(), testSecret, metav1.DeleteOptions{}))
		synctest.Wait()
		require.NotNil(t, c.secret(t))
		require.Equal(t, began, time.Now(), "without waiting for the recheck")
		stop()
	})
}

func TestManagerFindsWhatNoWatchTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
		_, stop := running(t, c, func(a k8stesting.Action) error {
			if a.GetVerb() == "watch" {
				return errors.New("connection refused")
			}
			return nil
		})
		v := c.validating(t)
		want := v.Webhooks[0].ClientConfig.CABundle
		v.Webhooks[0].ClientConfig.CABundle = nil
		_, err := c.client(nil).AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), v, metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(defaultSecretRecheck)
		synctest.Wait()
		require.Equal(t, want, c.validating(t).Webhooks[0].ClientConfig.CABundle)
		stop()
	})
}

func TestManagerDoesNotFightFast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
		_, stop := running(t, c, nil)
		before := count(c.writes(), "patch validatingwebhookconfigurations")
		want := c.secret(t).Data[dataBundle]
		for range 100 {
			v := c.validating(t)
			v.Webhooks[0].ClientConfig.CABundle = nil
			_, err := c.client(nil).AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(t.Context(), v, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		require.LessOrEqual(t, count(c.writes(), "patch validatingwebhookconfigurations")-before, refreshBurst)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, want, c.validating(t).Webhooks[0].ClientConfig.CABundle)
		stop()
	})
}

func TestF10ManagerRetriesSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
		var mu sync.Mutex
		tries, denied := 0, true
		m, stop := running(t, c, func(a k8stesting.Action) error {
			mu.Lock()
			defer mu.Unlock()
			if a.GetVerb() == "create" && denied {
				tries++
				return forbidden("secrets")
			}
			return nil
		})
		time.Sleep(10 * time.Minute)
		require.ErrorIs(t, m.Ready(nil), errNoCertificate)
		require.ErrorContains(t, m.Ready(nil), "write secret: ")
		mu.Lock()
		require.Greater(t, tries, 10)
		require.Less(t, tries, 60, "at most one in ten seconds")
		denied = false
		mu.Unlock()
		time.Sleep(defaultSecretRecheck + defaultSecretRecheck/10)
		synctest.Wait()
		require.NoError(t, m.Ready(nil))
		stop()
	})
}

func TestManagerStopsWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		m, stop := running(t, c, func(k8stesting.Action) error { return errors.New("connection refused") })
		require.Error(t, m.Ready(nil))
		stop()
	})
}

// TestF09Requests checks the requests against the rights of a Role with resourceNames:
// create is the only one without a name.
func TestF09Requests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
		var mu sync.Mutex
		requests := map[string]bool{}
		_, stop := running(t, c, func(a k8stesting.Action) error {
			mu.Lock()
			defer mu.Unlock()
			requests[described(a)] = true
			return nil
		})
		c.edit(t, func(s *corev1.Secret) { s.Annotations = map[string]string{annotationRollOver: ""} })
		time.Sleep(day)
		stop()
		var got []string
		for r := range requests {
			got = append(got, r)
		}
		require.ElementsMatch(t, []string{
			"create secrets",
			"get secrets tollgate-certificates", "list secrets tollgate-certificates",
			"watch secrets tollgate-certificates", "update secrets tollgate-certificates",
			"get validatingwebhookconfigurations tollgate", "list validatingwebhookconfigurations tollgate",
			"watch validatingwebhookconfigurations tollgate", "patch validatingwebhookconfigurations tollgate",
			"get mutatingwebhookconfigurations tollgate", "list mutatingwebhookconfigurations tollgate",
			"watch mutatingwebhookconfigurations tollgate", "patch mutatingwebhookconfigurations tollgate",
		}, got)
	})
}

// described returns "verb resource name", as in RBAC.
func described(a k8stesting.Action) string {
	name := ""
	switch a := a.(type) {
	case k8stesting.GetActionImpl:
		name = a.Name
	case k8stesting.PatchActionImpl:
		name = a.Name
	case k8stesting.UpdateActionImpl:
		name = a.Object.(metav1.Object).GetName()
	case k8stesting.ListActionImpl:
		name, _ = a.ListRestrictions.Fields.RequiresExactMatch(metav1.ObjectNameField)
	case k8stesting.WatchActionImpl:
		name, _ = a.WatchRestrictions.Fields.RequiresExactMatch(metav1.ObjectNameField)
	}
	return strings.TrimSpace(a.GetVerb() + " " + a.GetResource().Resource + " " + name)
}

func TestProblemsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	ctx := log.IntoContext(t.Context(), logger)
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	away := errors.New("connection refused")
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), func(a k8stesting.Action) error {
		if a.Matches("get", "secrets") {
			return away
		}
		return nil
	})
	for range 5 {
		require.Error(t, r.once(ctx))
	}
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], `"reason"="secret_read"`)
	require.InDelta(t, 5, r.errorsOf(reasonSecretRead), 0)

	away = errors.New("unauthorized")
	require.Error(t, r.once(ctx))
	require.Len(t, lines, 2, "another problem")
	away = nil
	require.NoError(t, r.once(ctx))
	require.Contains(t, lines[2], "certificate problem is over")
	away = errors.New("unauthorized")
	logged := len(lines)
	require.Error(t, r.once(ctx))
	require.Len(t, lines, logged+1, "it came back")
	for _, line := range lines {
		require.NotContains(t, line, "PRIVATE KEY")
	}
}

func TestServiceHosts(t *testing.T) {
	t.Parallel()
	require.Contains(t, ServiceHosts(testNamespace, "tollgate"), testHost)
}

func TestTheHostOfTheURLIsInTheCertificate(t *testing.T) {
	t.Parallel()
	c := newCluster(t, validatingConfiguration(), mutatingConfiguration())
	r := newReplica(t, c, clocktesting.NewFakeClock(start()), nil, func(o *Options) { o.Hosts, o.URL = nil, "https://[::1]:9443" })
	require.NoError(t, r.once(t.Context()))
	require.True(t, r.use.load().covers([]string{"::1"}))
	_, err := New(Options{OwnCA: OwnCA{URL: "https://me:secret@127.0.0.1:port"}})
	require.ErrorContains(t, err, "url cannot be parsed", "the URL may have a password")
}
