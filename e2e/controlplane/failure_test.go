package controlplane_test

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

func TestOptionsThatMakeNoSense(t *testing.T) {
	tests := map[string]struct {
		options controlplane.Options
		want    string
	}{
		"a directory is needed":     {controlplane.Options{Program: "p"}, `directory ""`},
		"a program is needed":       {controlplane.Options{Dir: "d"}, `program ""`},
		"a count has a lower bound": {controlplane.Options{Dir: "d", Program: "p", Nodes: -2}, "-2 nodes"},
		"an eviction is one of three": {
			controlplane.Options{Dir: "d", Program: "p", Eviction: "none"}, `eviction "none" is none of tollgate, builtin, both`,
		},
		"arguments are for components": {
			controlplane.Options{Dir: "d", Program: "p", ExtraArgs: map[string][]string{"kubelet": nil}}, `unknown component "kubelet"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := controlplane.Start(t.Context(), test.options)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// startFailing starts a control plane that cannot come up, and checks that
// nothing is left of it but the logs.
func startFailing(ctx context.Context, t *testing.T, options controlplane.Options) error {
	t.Helper()
	programs, err := suite.Binaries(ctx)
	require.NoError(t, err)
	options.Dir, options.Program, options.Nodes = t.TempDir(), programs.ControlPlane(), controlplane.NoNodes
	_, err = controlplane.Start(ctx, options)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n", "one line")

	_, openErr := controlplane.Open(options.Dir)
	require.Error(t, openErr, "no state is left")
	entries, globErr := filepath.Glob(filepath.Join(options.Dir, "*"))
	require.NoError(t, globErr)
	require.Equal(t, []string{filepath.Join(options.Dir, "logs")}, entries)
	return err
}

func TestAComponentThatDiesIsNamedWithItsLog(t *testing.T) {
	err := startFailing(t.Context(), t, controlplane.Options{
		ExtraArgs: map[string][]string{controlplane.APIServer: {"--no-such-flag"}},
	})
	require.Regexp(t, `^start kube-apiserver: ended with exit status 1 \(log: /.*/logs/kube-apiserver\.log\)$`, err.Error())
}

func TestAPortThatIsTakenIsSaidSoAndTriedOnceMore(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	port := listener.Addr().(*net.TCPAddr).Port

	var steps []string
	err = startFailing(t.Context(), t, controlplane.Options{
		ExtraArgs: map[string][]string{controlplane.APIServer: {"--secure-port=" + strconv.Itoa(port)}},
		Progress:  func(step string) { steps = append(steps, step) },
	})
	require.Regexp(t, `^start kube-apiserver: exit status 1: a port it needs is taken \(log: /.*/logs/kube-apiserver\.log\)$`, err.Error())
	require.Equal(t, 2, strings.Count(strings.Join(steps, "\n"), "etcd is ready"))
}

func TestAStartThatIsInterruptedLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := startFailing(ctx, t, controlplane.Options{
		Progress: func(step string) {
			if step == "etcd is ready" {
				cancel()
			}
		},
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestASecondControlPlaneInOneDirectoryIsRefused(t *testing.T) {
	_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: shared.Dir(), Program: shared.Program()})
	require.ErrorIs(t, err, controlplane.ErrRunning)
	runPod(t, shared)
}
