package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// say prints a line of the story.
func (s *story) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "   "+format+"\n", args...)
}

// width is that of the screen, more or less.
const width = 110

// wrap breaks a line of words, and leaves one whose columns are aligned.
func wrap(line string) []string {
	if len(line) <= width || strings.Contains(line, "   ") {
		return []string{line}
	}
	var lines []string
	current := ""
	for word := range strings.FieldsSeq(line) {
		switch {
		case current == "":
			current = word
		case len(current)+1+len(word) > width:
			lines, current = append(lines, current), "  "+word
		default:
			current += " " + word
		}
	}
	return append(lines, current)
}

// kubectl runs kubectl and prints the command as one would type it at the root of
// the repository, and what it answers.
func (s *story) kubectl(ctx context.Context, args ...string) (string, error) {
	s.say("$ kubectl %s", strings.ReplaceAll(shellWords(args), s.root+string(filepath.Separator), ""))
	out, err := install.Kubectl(ctx, s.cp, args...)
	s.answer(out)
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return string(out), nil
}

// tollgateCommand runs a command of the kubectl plugin and prints it as one would type it,
// and what it answers.
func (s *story) tollgateCommand(ctx context.Context, args ...string) (string, error) {
	s.say("$ kubectl tollgate %s", shellWords(args))
	cmd := exec.CommandContext(ctx, s.programs.Plugin(), append(args, "--kubeconfig", s.cp.Kubeconfig())...) //nolint:gosec // The program that was just built.
	out, err := cmd.CombinedOutput()
	s.answer(out)
	if err != nil {
		return string(out), fmt.Errorf("kubectl tollgate %s: %w", args[0], err)
	}
	return string(out), nil
}

// answer prints what a command has printed.
func (s *story) answer(out []byte) {
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		for _, part := range wrap(line) {
			s.say("  %s", part)
		}
	}
}

// shellWords joins args so that a shell would take them apart again.
func shellWords(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = arg
		if strings.ContainsAny(arg, `{}"*; `) {
			words[i] = "'" + arg + "'"
		}
	}
	return strings.Join(words, " ")
}

// metrics shows what Prometheus would scrape of the running Tollgate.
func (s *story) metrics(ctx context.Context) error {
	wanted := map[string]bool{
		"taint_eviction_controller_pod_deletions_total 1":        false,
		"device_taint_eviction_controller_pod_deletions_total 2": false,
		`tollgate_evictions_total{`:                              false,
		`tollgate_evictions_pending{`:                            false,
		`tollgate_tainted_devices{`:                              false,
		"tollgate_policies{":                                     false,
	}
	s.say("$ curl -s %s | grep -E 'pod_deletions_total|tollgate_(evictions|tainted|policies)'", s.tollgate.MetricsURL)
	text, err := fetch(ctx, s.tollgate.MetricsURL)
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(text, "\n") {
		for prefix := range wanted {
			if strings.HasPrefix(line, prefix) {
				wanted[prefix] = true
				s.say("  %s", line)
			}
		}
	}
	for prefix, seen := range wanted {
		if !seen {
			return fmt.Errorf("metric %q is missing", prefix)
		}
	}
	return nil
}

func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("scrape metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("scrape metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("scrape metrics: %w", err)
	}
	return string(body), nil
}
