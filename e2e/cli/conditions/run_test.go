package conditions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// patience is far above what any command takes.
const patience = time.Minute

// answer is what the program wrote, and what it took.
type answer struct {
	out, notes string
	code       int
	// begun is when it was started, took how long it was there, and worked how long it had a
	// processor.
	begun        time.Time
	took, worked time.Duration
	// peak is the most memory that it had resident, in KiB, up to a moment before it ended.
	peak int64
}

// all is what was written, in one line.
func (a *answer) all() string { return strings.Join(strings.Fields(a.out+" "+a.notes), " ") }

// during reports whether the program was there at a time.
func (a *answer) during(at time.Time) bool {
	return !at.Before(a.begun) && at.Before(a.begun.Add(a.took))
}

// ask runs the program as a user, without a terminal. In arguments NAMESPACE and MANIFEST
// stand for the tenant's namespace and for a file. The error is that it hangs, or crashes.
func ask(ctx context.Context, user, arguments, manifest string) (answer, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	words := strings.Fields(strings.NewReplacer("NAMESPACE", team, "MANIFEST", manifest).Replace(arguments))
	cmd := exec.CommandContext(ctx, programs.Plugin(), words...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfigs[user])
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return answer{}, fmt.Errorf("%s: %w", arguments, err)
	}
	ended, peak := make(chan struct{}), make(chan int64)
	go func() { peak <- peakOf(cmd.Process.Pid, ended) }()
	err := cmd.Wait()
	a := answer{
		out: out.String(), notes: notes.String(), begun: begun, took: time.Since(begun),
		worked: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
	}
	close(ended)
	a.peak = <-peak
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		a.code, err = exit.ExitCode(), nil
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w after %s\n%s%s", arguments, err, a.took, a.out, a.notes)
	}
	return a, nil
}

// peakOf returns the most memory that a process had until it ended, in KiB. What the kernel
// says of a process that has ended counts what its parent had when it began.
func peakOf(pid int, ended <-chan struct{}) int64 {
	const often = 5 * time.Millisecond
	var peak int64
	for {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		_, after, found := strings.Cut(string(status), "VmHWM:")
		if fields := strings.Fields(after); err == nil && found {
			if kilobytes, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
				peak = kilobytes
			}
		}
		select {
		case <-ended:
			return peak
		case <-time.After(often):
		}
	}
}

// asked returns what a user has asked the API server for.
func asked(t *testing.T, user string) []auditv1.Event {
	t.Helper()
	events, err := audit.Read(func(e *auditv1.Event) bool { return e.ImpersonatedUser != nil && e.ImpersonatedUser.Username == user })
	require.NoError(t, err)
	require.NotEmpty(t, events, user)
	return events
}

// eventually returns when check does without an error, and fails the test with the last one
// if that takes too long.
func eventually(t *testing.T, limit time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%v", last)
}
