package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

const (
	// patience is far above what any command here takes.
	patience = 2 * time.Minute
	// settled is how long a command that changes nothing may take to come out as the page says.
	settled = time.Minute
	// interval is how often a command that only looks is tried again.
	interval = 250 * time.Millisecond
)

// reader types what a page says, in a checkout of its own, as an administrator of the control
// plane.
type reader struct {
	cp *controlplane.ControlPlane
	// checkout is the folder that the reader is in.
	checkout string
	// names are what generated names on the page are called here.
	names names
	// typed is what is typed in the place of words of the page, and of whole commands.
	typed map[string]string
	// ends end what runs in the background.
	ends []func()
}

// newReader starts a control plane for the length of the test.
func newReader(t *testing.T, name string, options controlplane.Options) *reader {
	t.Helper()
	cp, err := start(t.Context(), name, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cp.Stop(context.WithoutCancel(t.Context()))) })
	home := t.TempDir()
	r := &reader{cp: cp, checkout: filepath.Join(home, "tollgate"), names: names{}}
	t.Cleanup(r.endBackground)
	for _, folder := range []string{"deploy", "docs"} {
		require.NoError(t, os.CopyFS(filepath.Join(r.checkout, folder), os.DirFS(filepath.Join(programs.Root, folder))))
	}
	r.link(t, filepath.Join(r.checkout, "Makefile"), filepath.Join(programs.Root, "Makefile"))
	r.link(t, filepath.Join(r.checkout, "bin", "tollgate"), programs.Tollgate())
	r.link(t, filepath.Join(r.checkout, "bin", "kubectl-tollgate"), programs.Plugin())
	for name, program := range map[string]string{
		"kubectl": programs.Kubectl(), "kubectl-tollgate": programs.Plugin(), "tollgate": programs.Tollgate(),
	} {
		r.link(t, filepath.Join(home, "bin", name), program)
	}
	return r
}

func (r *reader) link(t *testing.T, link, program string) {
	t.Helper()
	require.FileExists(t, program)
	require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o700))
	require.NoError(t, os.Symlink(program, link))
}

// endBackground ends what runs in the background.
func (r *reader) endBackground() {
	for _, end := range r.ends {
		end()
	}
	r.ends = nil
}

// hasHelm puts helm on the PATH of the reader.
func (r *reader) hasHelm(t *testing.T) {
	t.Helper()
	program := filepath.Join(programs.Root, "bin", "helm")
	require.FileExists(t, program, "make helm builds it")
	r.link(t, filepath.Join(r.home(), "bin", "helm"), program)
}

// home is the folder beside whose folders the checkout is.
func (r *reader) home() string { return filepath.Dir(r.checkout) }

// command is bash in the checkout.
func (r *reader) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.WaitDelay = r.checkout, time.Second
	home := r.home()
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Join(home, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+home, "KUBECONFIG="+r.cp.Kubeconfig(), "KUBERC=off", "KUBECACHEDIR="+filepath.Join(home, "cache"),
		"HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	return cmd
}

// run runs a script, and returns what it writes to the terminal.
func (r *reader) run(ctx context.Context, text string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := r.command(ctx, text)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// does runs a script that has to succeed, before a page or between its commands.
func (r *reader) does(t *testing.T, text string) {
	t.Helper()
	out, err := r.run(context.WithoutCancel(t.Context()), text)
	require.NoError(t, err, "%s\n%s", text, out)
}

// replaced is a command with what the reader types.
func (r *reader) replaced(command string) string {
	if whole, ok := r.typed[key(command)]; ok {
		return whole
	}
	command = r.names.in(command)
	return r.filled(command)
}

// filled is a text with what the reader writes in the place of words.
func (r *reader) filled(command string) string {
	for word, value := range r.typed {
		command = regexp.MustCompile(`\b`+regexp.QuoteMeta(word)+`\b`).ReplaceAllLiteralString(command, value)
	}
	return command
}

// looks are the commands that change nothing. They are tried again until they come out as the
// page says: what they look at comes about a moment after the command before.
var looks = regexp.MustCompile(`^kubectl (-n \S+ )?(get|logs|describe|rollout status)\b` +
	`|^(kubectl )?tollgate (check|devices|evictions|explain|preview|simulate|status|version)\b|--dry-run`)

// try runs a command until check has no error, if it changes nothing, and once otherwise.
func (r *reader) try(t *testing.T, command string, check func(out string, err error) error) {
	t.Helper()
	command = r.replaced(command)
	t.Logf("$ %s", command)
	var last error
	once := func(ctx context.Context) (bool, error) {
		out, err := r.run(context.WithoutCancel(ctx), command) // so that it prints all
		if last = check(out, err); last != nil {
			last = fmt.Errorf("%w\n$ %s\n%s", last, command, out)
		}
		return last == nil, nil
	}
	if !looks.MatchString(command) {
		_, _ = once(t.Context())
		require.NoError(t, last)
		return
	}
	err := wait.PollUntilContextTimeout(t.Context(), interval, settled, true, once)
	require.NoError(t, errors.Join(last, err))
}

// shows runs a command of a console and compares its output. It may fail where the page shows an
// error.
func (r *reader) shows(t *testing.T, p part) {
	t.Helper()
	want, err := expect(p.text)
	require.NoError(t, err)
	r.try(t, p.commands[0], func(out string, err error) error {
		if differs := want.compare(out, r.names); differs != nil {
			return fmt.Errorf("%w; the page has\n%s", differs, p.text)
		}
		if err != nil && !strings.Contains(p.text, "Error from server") && !strings.Contains(p.text, "kubectl tollgate: ") {
			return fmt.Errorf("the command fails, and the page shows no error: %w", err)
		}
		return nil
	})
}

// applies writes a manifest to its file, or applies it.
func (r *reader) applies(t *testing.T, p part, folder string) {
	t.Helper()
	if p.file == "" {
		r.does(t, "kubectl apply -f - <<'END OF MANIFEST'\n"+r.filled(p.text)+"END OF MANIFEST\n")
		return
	}
	file := filepath.Join(r.checkout, folder, p.file)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(r.filled(p.text)), 0o600))
}

// background is the log of what runs in the background.
func (r *reader) background() string { return filepath.Join(r.home(), "background.log") }

// starts runs a command until the test is over.
func (r *reader) starts(t *testing.T, command string) {
	t.Helper()
	log, err := os.Create(r.background())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := r.command(ctx, "exec "+r.replaced(command))
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	r.ends = append(r.ends, func() {
		cancel()
		_ = cmd.Wait() // it was killed
		_ = log.Close()
	})
}
