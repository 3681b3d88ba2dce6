package patches

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/process"
	"github.com/tollgate-dev/tollgate/policy/slicepatch"
)

// holder is who says in a Lease of kube-system that it has it, empty for nobody.
func (s *site) holder(ctx context.Context, lease string) (string, error) {
	l, err := s.client.CoordinationV1().Leases(slicepatch.PresenceNamespace).Get(ctx, lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read lease: %w", err)
	}
	if l.Spec.HolderIdentity == nil {
		return "", nil
	}
	return *l.Spec.HolderIdentity, nil
}

// waitHolder waits until another has a Lease, and returns who.
func (s *site) waitHolder(t *testing.T, lease, before string) string {
	t.Helper()
	var now string
	eventually(t, "another scheduler has the Lease "+lease, func(ctx context.Context) (err error) {
		now, err = s.holder(ctx, lease)
		if err == nil && (now == "" || now == before) {
			err = fmt.Errorf("%q has it", now)
		}
		return err
	})
	return now
}

// It runs alone, because it kills the scheduler of all.
func TestTheReplicaOfTheSchedulerThatTakesOverObeysPatches(t *testing.T) {
	const leads = "kube-scheduler" // the Lease that decides who schedules
	elect := []string{
		"--leader-elect=true", "--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=12s", "--leader-elect-retry-period=1s",
	}
	s := newSite(t)
	t.Cleanup(func() { require.NoError(t, shared.RestartWith(afterwards(t), controlplane.Scheduler)) })
	led, err := s.holder(t.Context(), leads)
	require.NoError(t, err)
	said, err := s.holder(t.Context(), slicepatch.Name)
	require.NoError(t, err)
	require.NoError(t, shared.RestartWith(t.Context(), controlplane.Scheduler, elect...))
	first := s.waitHolder(t, leads, led)

	leader, err := shared.Process(controlplane.Scheduler)
	require.NoError(t, err)
	spec := leader.Spec()
	spec.Name, spec.Log, spec.Detached = "standby", shared.LogPath("kube-scheduler-standby"), false
	// Of a flag that is given twice the second counts.
	spec.Args = append(slices.Clone(spec.Args), "--secure-port=0")
	standby, err := process.Start(spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Kill(afterwards(t))) })
	eventually(t, "the standby waits for its turn", func(context.Context) error {
		out, err := standby.Output()
		if err == nil && !strings.Contains(strings.ToLower(string(out)), "attempting to acquire leader lease") {
			err = fmt.Errorf("it says %s", out)
		}
		return err
	})

	s.publish(t, "pool", gpu("a", 0), gpu("b", 1), gpu("c", 2))
	s.patch(t, "b", `{filter: {driver: DRIVER, device: b}, attributes: {DRIVER/model: {string: B}}}`)
	s.settle(t)
	s.run(t, "first", modelB)
	s.requireOn(t, "first", "pool/b")
	holder, err := s.holder(t.Context(), leads)
	require.NoError(t, err)
	require.Equal(t, first, holder, "one of them schedules, and it is the first still")
	announced := s.waitHolder(t, slicepatch.Name, said)

	require.NoError(t, shared.Kill(t.Context(), controlplane.Scheduler))
	// It did not see this.
	s.patch(t, "c", `{filter: {driver: DRIVER, device: c}, attributes: {DRIVER/model: {string: B}}}`)
	s.runMany(t, "next", 2, modelB)
	require.NotEqual(t, first, s.waitHolder(t, leads, first))
	require.Equal(t, []string{"pool/c"}, s.requirePods(t, "next", 1, 1))
	s.waitHolder(t, slicepatch.Name, announced)
	require.True(t, standby.Alive())
}
