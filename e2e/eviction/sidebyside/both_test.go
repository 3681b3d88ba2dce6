package sidebyside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// settled is after how long as the leader Tollgate takes marks on pods for those of
// somebody else, and a little more.
const settled = 35 * time.Second

// testBoth installs Tollgate beside Kubernetes' own evictors, as where those cannot be
// switched off, in the mode in which it evicts itself.
func testBoth(t *testing.T, p *plane) {
	t.Helper()
	programs, err := suite.Binaries(t.Context())
	require.NoError(t, err)
	require.NoError(t, programs.BuildTollgate(t.Context()))
	tollgate, err := install.Install(t.Context(), p.cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		config["leaderElection"] = map[string]any{"enabled": false}
	}})
	require.NoError(t, err)
	leads := time.Now()

	p.evictByBoth(t, 90)
	if os.Getenv("TOLLGATE_MISFIT") == "" {
		return // It takes too long for every run of the tests.
	}
	t.Run("the misfit is said, and no event is doubled", func(t *testing.T) {
		timer := time.NewTimer(time.Until(leads.Add(settled)))
		defer timer.Stop()
		<-timer.C
		p.evictByBoth(t, 91)
		s := &stage{plane: p, ctx: t.Context()}
		s.eventually("misfit", func() error { return misfitSaid(t.Context(), tollgate.MetricsURL) })
		s.eventually("event on the lease", func() error {
			events, err := p.client.CoreV1().Events("tollgate-system").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, event := range events.Items {
				if event.Reason == "ModeMisfit" {
					return nil
				}
			}
			return errors.New("none")
		})
		require.NoError(t, s.err)
		namespace := p.evictByBoth(t, 92)
		events, err := p.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		told := map[string]int{} // not all of them have the UID of the pod
		for _, event := range events.Items {
			if event.Reason == "TaintManagerEviction" && strings.HasPrefix(event.Message, "Marking for deletion") {
				told[event.InvolvedObject.Name] += int(max(event.Count, 1))
			}
		}
		require.NotEmpty(t, told)
		for name, count := range told {
			require.Equal(t, 1, count, "events on pod %s", name)
		}
	})
}

// evictByBoth has pods evicted by whoever is first, and returns their namespace.
func (p *plane) evictByBoth(t *testing.T, number int) string {
	t.Helper()
	const count = 30
	s := p.newStage(t.Context(), number)
	s.nodeNames["shared"] = controlplane.NodeName(nodeCount)
	staying := s.pod("stays", "shared", hour)
	for i := range count {
		s.pod(fmt.Sprintf("leaves-%d", i), "shared", int64(i%3))
	}
	s.taint("shared")
	s.eventually("eviction of all", func() error {
		if left := s.left(); left != 1 && s.err == nil {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	require.NoError(t, s.err)
	require.Equal(t, stays, s.fate("stays", staying))
	s.remove("stays")
	s.setTaints("shared", []corev1.Taint{}...)
	require.NoError(t, s.err)
	return s.namespace
}

// misfitSaid reports an error unless the metrics say that Kubernetes evicts as well.
func misfitSaid(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && !strings.Contains(string(body), "\ntollgate_mode_misfit{reason=\"BuiltInActive\"} 1\n") {
		err = errors.New("the metric does not say so")
	}
	return err
}
