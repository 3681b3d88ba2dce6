package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// pollInterval is how often a process that cannot be waited for is looked at.
const pollInterval = 10 * time.Millisecond

// Spec says what to run. It is all that is needed to run the same again.
type Spec struct {
	// Name is what people call the process.
	Name string `json:"name"`
	// Path is the program.
	Path string `json:"path"`
	// Args are the arguments, without the program's name.
	Args []string `json:"args"`
	// Env holds KEY=VALUE pairs added to the parent's environment.
	Env []string `json:"env,omitempty"`
	// Log is the file to which standard output and error are appended.
	Log string `json:"log"`
	// Detached processes outlive the program that starts them.
	Detached bool `json:"detached"`
}

// Process is a started process.
type Process struct {
	spec     Spec
	identity Identity
	logFrom  int64         // how long the log was when the process started
	exited   chan struct{} // closed when a child has been waited for; nil when attached
	exit     error         // written before exited is closed
}

// Start runs the program.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", spec.Name, err)
	}
	defer func() { _ = log.Close() }()

	logFrom, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("find end of log of %s: %w", spec.Name, err)
	}

	cmd := exec.Command(spec.Path, spec.Args...) //nolint:gosec,noctx // Running what the spec says for as long as it takes is the purpose.
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = sysProcAttr(spec.Detached)

	p := &Process{spec: spec, logFrom: logFrom, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the thread that forked
		// ends, not the program, so this thread stays until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.exit = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	// A child that has died already is a zombie at least until it is waited for;
	// past that its identity is unknown and matches nothing.
	p.identity, err = identify(cmd.Process.Pid)
	if err != nil {
		p.identity = Identity{PID: cmd.Process.Pid}
	}
	return p, nil
}

// Attach returns the process that was started with the spec and got the
// identity. It may have ended since.
func Attach(spec Spec, identity Identity) *Process {
	return &Process{spec: spec, identity: identity}
}

// Spec returns what the process was started with.
func (p *Process) Spec() Spec { return p.spec }

// Identity returns what the process is found again by.
func (p *Process) Identity() Identity { return p.identity }

// Alive reports whether the process still runs. A child does until it has been
// waited for: its first thread shows as a zombie while others still hold its
// ports.
func (p *Process) Alive() bool {
	if p.exited == nil {
		return p.identity.alive()
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Exit says how the process ended, in words such as "exit status 1". It is
// empty while the process runs.
func (p *Process) Exit() string {
	if p.Alive() {
		return ""
	}
	if p.exited == nil {
		return "ended, with a status unknown to this program"
	}
	<-p.exited
	if p.exit == nil {
		return "exit status 0"
	}
	return p.exit.Error()
}

// Output is what a process that was started here has written so far. Of one
// that was attached to it is the whole log.
func (p *Process) Output() ([]byte, error) {
	log, err := os.ReadFile(p.spec.Log)
	if err != nil {
		return nil, fmt.Errorf("read log of %s: %w", p.spec.Name, err)
	}
	return log[min(p.logFrom, int64(len(log))):], nil
}

// Signal sends a signal. A process that has ended is an error, os.ErrProcessDone.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.identity.signal(signal); err != nil {
		return fmt.Errorf("signal %s: %w", p.spec.Name, err)
	}
	return nil
}

// Wait returns when the process has ended.
func (p *Process) Wait(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s to end: %w", p.spec.Name, context.Cause(ctx))
		case <-p.exited:
		case <-ticker.C:
		}
	}
	return nil
}

// Kill ends the process at once and returns when it has ended. A process that
// has ended before is no error.
func (p *Process) Kill(ctx context.Context) error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.Wait(ctx)
}

// Terminate asks the process to end and returns when it has ended. One that
// has not by the time the grace is over is killed.
func (p *Process) Terminate(ctx context.Context, grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	inTime, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := p.Wait(inTime); err == nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait for %s to end: %w", p.spec.Name, err)
	}
	return p.Kill(ctx)
}
