package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// say prints a line of the story.
func (s *story) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, "   "+format+"\n", args...)
}

// kubectl runs kubectl and prints the command as
// one would type it, and what it answers.
func (s *story) kubectl(ctx context.Context, args ...string) (string, error) {
	s.say("$ kubectl %s", shellWords(args))
	out, err := install.Kubectl(ctx, s.cp, args...)
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		s.say("  %s", line)
	}
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return string(out), nil
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
		"taint_eviction_controller_pod_deletions_total 1": false,
		`tollgate_evictions_total{`:                       false,
		`tollgate_evictions_pending{`:                     false,
		"tollgate_policies{":                              false,
	}
	s.say("$ curl -s %s | grep -E 'pod_deletions_total|tollgate_(evictions|policies)'", s.tollgate.MetricsURL)
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
