package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// cli runs the command as a user does, on a cluster of the test's own, and
// returns what it prints.
func cli(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root, err := binaries.Root(".")
	require.NoError(t, err)
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append(args, "--dir="+filepath.Join(root, ".cluster-command's-test")))
	// Without its end, so that cleanups can use the command too.
	err = cmd.ExecuteContext(context.WithoutCancel(t.Context()))
	return out.String(), err
}

// upAlone brings up a control plane without Tollgate; the test's end takes it down.
func upAlone(t *testing.T, args ...string) {
	t.Helper()
	upWith(t, append([]string{"--tollgate=0"}, args...)...)
}

// upWith brings up a control plane; the test's end takes it down.
func upWith(t *testing.T, args ...string) {
	t.Helper()
	_, err := cli(t, "down")
	require.NoError(t, err, "what a test that was killed has left")
	t.Cleanup(func() {
		_, err := cli(t, "down")
		require.NoError(t, err)
	})
	out, err := cli(t, append([]string{"up"}, args...)...)
	require.NoError(t, err)
	require.Contains(t, out, "kube-apiserver is ready")
	require.Contains(t, out, "up: export KUBECONFIG=")
}

// sourced is what a shell has of the env file.
func sourced(t *testing.T, variable string) string {
	t.Helper()
	root, err := binaries.Root(".")
	require.NoError(t, err)
	env := envFile(filepath.Join(root, ".cluster-command's-test"))
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", `. "$1"; eval printf %s "\"\$$2\""`, "sh", env, variable).Output()
	require.NoError(t, err)
	return string(out)
}

func TestUpTwiceAndDownTwice(t *testing.T) {
	upAlone(t, "--nodes=1", "--eviction=both")

	pid := sourced(t, "KUBE_APISERVER_PID")
	out, err := exec.CommandContext(t.Context(), sourced(t, "KUBECTL"),
		"--kubeconfig", sourced(t, "KUBECONFIG"), "get", "nodes", "-o", "name").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "node/node-1\n", string(out))

	found, err := exec.CommandContext(t.Context(), "sh", "-euc", `. "$1"; . "$1"; kubectl get nodes -o name; echo "$PATH"`, "sh",
		envFile(sourced(t, "CLUSTER_DIR"))).Output()
	require.NoError(t, err)
	lines := strings.Split(string(found), "\n")
	require.Equal(t, "node/node-1", lines[0], "kubectl is on the PATH")
	require.Equal(t, 1, strings.Count(lines[1], binDir(sourced(t, "CLUSTER_DIR"))), "once, however often the file is read")

	again, err := cli(t, "up", "--tollgate=0", "--nodes=1", "--eviction=both")
	require.NoError(t, err)
	require.Contains(t, again, "up already, with K8S=v1.37.1 NODES=1 EVICTION=both TOLLGATE=0")
	require.Equal(t, pid, sourced(t, "KUBE_APISERVER_PID"))

	_, err = cli(t, "up", "--tollgate=0", "--nodes=2")
	require.EqualError(t, err, "up already, but with K8S=v1.37.1 NODES=1 EVICTION=both TOLLGATE=0 SCHEDULER=stock instead of K8S=v1.37.1 NODES=2 EVICTION=tollgate TOLLGATE=0 SCHEDULER=stock: run make cluster-down first")

	down, err := cli(t, "down")
	require.NoError(t, err)
	require.Contains(t, down, "ended 5 processes")
	require.Eventually(t, func() bool { return !runs(t, pid) }, patience, interval)
	down, err = cli(t, "down")
	require.NoError(t, err)
	require.Contains(t, down, "nothing is up")
}

func TestAfterACrash(t *testing.T) {
	upAlone(t, "--nodes=0")
	pids := pidsOf(t)

	t.Run("up names the component that has died, and its log", func(t *testing.T) {
		kill(t, pids[controlplane.Kwok])
		_, err := cli(t, "up", "--tollgate=0", "--nodes=0")
		require.ErrorContains(t, err, "kwok has died (log: ")
		require.ErrorContains(t, err, "logs/kwok.log): run make cluster-down first")
	})
	t.Run("up starts again when all have died", func(t *testing.T) {
		for _, pid := range pids {
			kill(t, pid)
		}
		out, err := cli(t, "up", "--tollgate=0", "--nodes=0")
		require.NoError(t, err)
		require.Contains(t, out, "nothing of the control plane that was up runs any more")
		require.NotEqual(t, strconv.Itoa(pids[controlplane.Etcd]), sourced(t, "ETCD_PID"))
	})
	t.Run("down cleans up when all have died", func(t *testing.T) {
		for _, pid := range pidsOf(t) {
			kill(t, pid)
		}
		out, err := cli(t, "down")
		require.NoError(t, err)
		require.Contains(t, out, "ended 0 processes")
		out, err = cli(t, "down")
		require.NoError(t, err)
		require.Contains(t, out, "nothing is up")
	})
}

func pidsOf(t *testing.T) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for _, name := range controlplane.Components() {
		pid, err := strconv.Atoi(sourced(t, variable(name)+"_PID"))
		require.NoError(t, err)
		pids[name] = pid
	}
	return pids
}

// patience is far above what it takes.
const (
	patience = time.Minute
	interval = 10 * time.Millisecond
)

// runs reports whether the process runs. These processes belong to the test
// binary while it lives, which waits for them.
func runs(t *testing.T, pid string) bool {
	t.Helper()
	id, err := strconv.Atoi(pid)
	require.NoError(t, err)
	return syscall.Kill(id, 0) == nil
}

// kill ends a process and returns when it has ended.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		require.ErrorIs(t, err, syscall.ESRCH)
	}
	require.Eventually(t, func() bool { return !runs(t, strconv.Itoa(pid)) }, patience, interval)
}

func TestQuotingSurvivesAShell(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "env")
	want := map[string]string{
		"PLAIN": "/a/b", "SPACES": "a  b", "QUOTES": `it's "so"`, "DOLLARS": "$HOME `id` \\", "LINES": "a\nb", "EMPTY": "",
	}
	require.NoError(t, writeEnv(path, want))
	names := slices.Sorted(maps.Keys(want))
	script := `. "$1"; for name in ` + strings.Join(names, " ") + `; do eval printf '%s\\000' "\"\$$name\""; done`
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", script, "sh", path).Output()
	require.NoError(t, err)
	values := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	require.Len(t, values, len(names))
	for i, name := range names {
		require.Equal(t, want[name], values[i], name)
	}
}

// What a user types after make cluster-up.
func TestUpWithTollgateHasItsPluginAndItsScheduler(t *testing.T) {
	upWith(t, "--nodes=1")
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", `. "$1"; kubectl tollgate devices`, "sh",
		envFile(sourced(t, "CLUSTER_DIR"))).CombinedOutput()
	require.NoError(t, err, "%s", out)

	cp, err := controlplane.Open(sourced(t, "CLUSTER_DIR"))
	require.NoError(t, err)
	scheduler, err := os.Readlink("/proc/" + sourced(t, "KUBE_SCHEDULER_PID") + "/exe")
	require.NoError(t, err)
	require.Equal(t, cp.SchedulerProgram(), scheduler, "the process is Tollgate's build")
	require.Equal(t, "kube-scheduler", filepath.Base(scheduler))

	_, err = cli(t, "up", "--nodes=1", "--scheduler=stock")
	require.ErrorContains(t, err, "up already, but with K8S=v1.37.1 NODES=1 EVICTION=tollgate TOLLGATE=1 SCHEDULER=tollgate")
}

func TestSchedulerFor(t *testing.T) {
	t.Parallel()
	newest := binaries.KubernetesVersion
	for name, tt := range map[string]struct {
		asked string
		with  settings
		want  string
		err   string
	}{
		"with Tollgate it is Tollgate's":       {"", settings{kubernetes: newest, tollgate: true}, "tollgate", ""},
		"without Tollgate it is Kubernetes'":   {"", settings{kubernetes: newest}, "stock", ""},
		"older versions have their own":        {"", settings{kubernetes: "v1.36.3", tollgate: true}, "stock", ""},
		"Kubernetes' own may be asked for":     {"stock", settings{kubernetes: newest, tollgate: true}, "stock", ""},
		"Tollgate's may be asked for":          {"tollgate", settings{kubernetes: newest, tollgate: true}, "tollgate", ""},
		"not for an older version":             {"tollgate", settings{kubernetes: "v1.36.3", tollgate: true}, "", "scheduler tollgate is built for Kubernetes " + newest + ", and not for v1.36.3: use stock"},
		"not without Tollgate":                 {"tollgate", settings{kubernetes: newest}, "", "scheduler tollgate needs the ResourceSlicePatches that are installed with Tollgate: use stock"},
		"a name that is none of them is wrong": {"mine", settings{kubernetes: newest, tollgate: true}, "", `scheduler "mine" is none of tollgate, stock`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := schedulerFor(tt.asked, tt.with)
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestAnUnknownEvictionStopsBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	cmd := newCommand()
	cmd.SetOut(new(bytes.Buffer))
	cmd.SetArgs([]string{"up", "--tollgate=0", "--eviction=maybe", "--dir=" + t.TempDir()})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), `eviction "maybe" is none of tollgate, builtin, both`)
}

func TestAnUnknownVersionStopsBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	cmd := newCommand()
	cmd.SetOut(new(bytes.Buffer))
	cmd.SetArgs([]string{"up", "--tollgate=0", "--kubernetes=1.36", "--dir=" + t.TempDir()})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), `version "1.36" of Kubernetes is none of v1.37.1, v1.36.3`)
}
