package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is far above what any step takes.
const patience = time.Minute

// role makes this test binary play the programs that the tests start.
const role = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "obedient":
		fmt.Println("ready")
		awaitSignal(syscall.SIGUSR1)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		awaitSignal(syscall.SIGUSR1)
	case "failing":
		fmt.Println("no luck")
		os.Exit(3)
	case "parent":
		playParent()
	}
}

func awaitSignal(s os.Signal) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, s)
	<-signals
}

// playParent starts a child and a detached process, tells who they are, and
// waits to be killed.
func playParent() {
	for _, detached := range []bool{false, true} {
		p, err := Start(Spec{
			Name: "child", Path: os.Args[0], Env: []string{role + "=obedient"},
			Log: os.Getenv("PROCESS_TEST_LOG"), Detached: detached,
		})
		if err != nil {
			panic(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(p.Identity()); err != nil {
			panic(err)
		}
	}
	awaitSignal(syscall.SIGUSR1)
}

func specOf(t *testing.T, play string) Spec {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return Spec{
		Name: play, Path: program, Env: []string{role + "=" + play},
		Log: filepath.Join(t.TempDir(), "log"),
	}
}

func start(t *testing.T, spec Spec) *Process {
	t.Helper()
	p, err := Start(spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill(context.WithoutCancel(t.Context()))) })
	return p
}

// startReady starts the program and returns when its signals are set up.
func startReady(t *testing.T, spec Spec) *Process {
	t.Helper()
	p := start(t, spec)
	require.Eventually(t, func() bool {
		output, err := p.Output()
		return err == nil && string(output) == "ready\n"
	}, patience, pollInterval)
	return p
}

func TestAProcessRunsUntilItIsKilled(t *testing.T) {
	t.Parallel()
	p := startReady(t, specOf(t, "obedient"))
	require.True(t, p.Alive())
	require.Empty(t, p.Exit())

	require.NoError(t, p.Kill(t.Context()))
	require.False(t, p.Alive())
	require.Equal(t, "signal: killed", p.Exit())
	require.NoError(t, p.Kill(t.Context()), "killing a dead process is no error")
	require.ErrorIs(t, p.Signal(syscall.SIGTERM), os.ErrProcessDone)
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	t.Run("a process that obeys ends by the signal", func(t *testing.T) {
		t.Parallel()
		p := startReady(t, specOf(t, "obedient"))
		require.NoError(t, p.Terminate(t.Context(), time.Minute))
		require.Equal(t, "signal: terminated", p.Exit())
	})
	t.Run("a process that does not is killed when the grace is over", func(t *testing.T) {
		t.Parallel()
		p := startReady(t, specOf(t, "stubborn"))
		require.NoError(t, p.Terminate(t.Context(), 10*time.Millisecond))
		require.Equal(t, "signal: killed", p.Exit())
	})
	t.Run("a caller who gives up does not kill", func(t *testing.T) {
		t.Parallel()
		p := startReady(t, specOf(t, "stubborn"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.Terminate(ctx, time.Minute), context.Canceled)
		require.True(t, p.Alive())
	})
}

func TestAProcessThatFailsSaysHow(t *testing.T) {
	t.Parallel()
	spec := specOf(t, "failing")
	require.NoError(t, os.WriteFile(spec.Log, []byte("from the run before\n"), 0o600))
	p := start(t, spec)
	require.NoError(t, p.Wait(t.Context()))
	require.Equal(t, "exit status 3", p.Exit())
	output, err := p.Output()
	require.NoError(t, err)
	require.Equal(t, "no luck\n", string(output), "the output is this run's alone")
}

func TestAProgramThatIsMissingIsAnError(t *testing.T) {
	t.Parallel()
	spec := specOf(t, "obedient")
	spec.Path += ".missing"
	_, err := Start(spec)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAProcessIsFoundAgainByItsIdentity(t *testing.T) {
	t.Parallel()
	p := startReady(t, specOf(t, "obedient"))
	again := Attach(p.Spec(), p.Identity())
	require.True(t, again.Alive())
	require.NoError(t, again.Kill(t.Context()))
	require.False(t, again.Alive())
	require.NoError(t, p.Wait(t.Context()), "who started it sees it as soon as it has been waited for")
	require.Equal(t, "signal: killed", p.Exit())
	require.Equal(t, "ended, with a status unknown to this program", again.Exit())
}

func TestAnotherProcessWithTheSameIDIsLeftAlone(t *testing.T) {
	t.Parallel()
	p := startReady(t, specOf(t, "obedient"))
	before := p.Identity()
	before.Started += "0"
	gone := Attach(p.Spec(), before)

	require.False(t, gone.Alive())
	require.ErrorIs(t, gone.Signal(syscall.SIGTERM), os.ErrProcessDone)
	require.NoError(t, gone.Kill(t.Context()))
	require.NoError(t, gone.Terminate(t.Context(), time.Minute))
	require.True(t, p.Alive())
}

// Orphans of a program that has gone belong to the init process, and in many
// containers that one waits for nobody.
func TestAProcessThatNobodyWaitsForHasEnded(t *testing.T) {
	t.Parallel()
	spec := specOf(t, "obedient")
	cmd := exec.CommandContext(t.Context(), spec.Path)
	cmd.Env = append(os.Environ(), spec.Env...)
	require.NoError(t, cmd.Start())
	identity, err := identify(cmd.Process.Pid)
	require.NoError(t, err)
	p := Attach(spec, identity)
	require.True(t, p.Alive())

	require.NoError(t, cmd.Process.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.Wait(ctx))
	require.Error(t, cmd.Wait(), "it was killed")
}

func TestWhoOutlivesAParentThatIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		// Other systems have no parent-death signal: there the children of a
		// killed test binary are ended by the next run.
		return
	}
	spec := specOf(t, "parent")
	parent := exec.CommandContext(t.Context(), spec.Path)
	parent.Env = append(os.Environ(), append(spec.Env, "PROCESS_TEST_LOG="+spec.Log)...)
	stdout, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())

	lines := bufio.NewScanner(stdout)
	var processes [2]*Process
	for i := range processes {
		require.True(t, lines.Scan())
		var identity Identity
		require.NoError(t, json.Unmarshal(lines.Bytes(), &identity))
		processes[i] = Attach(Spec{Name: "child"}, identity)
	}
	child, detached := processes[0], processes[1]
	require.True(t, child.Alive())
	require.True(t, detached.Alive())

	require.NoError(t, parent.Process.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, child.Wait(ctx))
	require.True(t, detached.Alive())
	require.NoError(t, detached.Kill(ctx))
	require.Error(t, parent.Wait(), "it was killed")
}
