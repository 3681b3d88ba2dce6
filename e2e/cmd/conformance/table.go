package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The table stands between these lines of docs/parity.md.
const (
	tableBegins = "<!-- The tables are written by make conformance UPDATE=1. -->\n"
	tableEnds   = "<!-- The tables of make conformance end. -->\n"
)

// tables returns the comparison in Markdown.
func (c *comparison) tables() string {
	var b strings.Builder
	b.WriteString("| specs of Kubernetes about | number | without Tollgate | with Tollgate |\n|---|---|---|---|\n")
	for i, g := range c.selected.Groups {
		writeRow(&b, g.Name, c.where(func(p *pair) bool { return p.group == i }))
	}
	writeRow(&b, "all", c.specs)
	b.WriteString("\n| left out | number | why |\n|---|---|---|\n")
	for i, l := range c.selected.LeaveOut {
		if c.leftOut[i] > 0 {
			fmt.Fprintf(&b, "| %s | %d | %s |\n", l.Name, c.leftOut[i], l.Why)
		}
	}
	return b.String()
}

func writeRow(b *strings.Builder, name string, specs []pair) {
	var without, with []result
	for _, p := range specs {
		without, with = append(without, p.without), append(with, p.with)
	}
	fmt.Fprintf(b, "| %s | %d | %s | %s |\n", name, len(specs), count(without), count(with))
}

// count says how many specs ended in which way.
func count(all []result) string {
	var parts []string
	for _, kind := range []outcome{passed, failed, skipped} {
		n, flaky := 0, 0
		for _, r := range all {
			if r.outcome != kind {
				continue
			}
			n++
			if r.flaky {
				flaky++
			}
		}
		words := map[outcome]string{passed: "pass", failed: "fail", skipped: "skip themselves"}[kind]
		switch {
		case n == 0:
		case flaky > 0:
			parts = append(parts, fmt.Sprintf("%d %s, %d of them at the second try", n, words, flaky))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, words))
		}
	}
	return strings.Join(parts, ", ")
}

// publish writes the tables in the place of those in docs/parity.md.
func publish(root, tables string) error {
	path := filepath.Join(root, "docs", "parity.md")
	content, err := os.ReadFile(path) //nolint:gosec // The root is that of the repository.
	if err != nil {
		return fmt.Errorf("read docs/parity.md: %w", err)
	}
	before, rest, found := strings.Cut(string(content), tableBegins)
	_, after, closed := strings.Cut(rest, tableEnds)
	if !found || !closed {
		return fmt.Errorf("update docs/parity.md: it has no line %q followed by %q", strings.TrimSpace(tableBegins), strings.TrimSpace(tableEnds))
	}
	if err := os.WriteFile(path, []byte(before+tableBegins+"\n"+tables+"\n"+tableEnds+after), 0o644); err != nil { //nolint:gosec // It is a page of the documentation.
		return fmt.Errorf("write docs/parity.md: %w", err)
	}
	return nil
}
