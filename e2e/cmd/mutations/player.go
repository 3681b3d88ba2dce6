package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// player plays faults.
type player struct {
	// root is that of the repository, and temporary a folder for what is changed.
	root, temporary string
	parallel        int
	out             io.Writer
}

// play plays faults and reports whether all are caught.
func (p *player) play(ctx context.Context, mutations []mutation) (bool, error) {
	began := time.Now()
	fmt.Fprintln(p.out, "the tests without a fault (the first build takes a few minutes)")
	if err := p.sound(ctx, mutations); err != nil {
		return false, err
	}
	results := make([]result, len(mutations))
	faults := make([]error, len(mutations))
	next := make(chan int)
	var mutex sync.Mutex
	var playing sync.WaitGroup
	done := 0
	for range p.parallel {
		playing.Go(func() {
			for i := range next {
				start := time.Now()
				results[i], faults[i] = p.one(ctx, i, &mutations[i])
				mutex.Lock()
				if done++; faults[i] == nil {
					fmt.Fprintf(p.out, "[%d/%d] %-10s %6.1fs  %s  %s\n", done, len(mutations),
						results[i].outcome, time.Since(start).Seconds(), mutations[i].Name, results[i].why)
				}
				mutex.Unlock()
			}
		})
	}
	for i := range mutations {
		next <- i
	}
	close(next)
	playing.Wait()
	if err := errors.Join(faults...); err != nil {
		return false, err
	}
	return p.sum(results, time.Since(began)), nil
}

// sum writes how many faults came to what, and reports whether all are caught.
func (p *player) sum(results []result, took time.Duration) bool {
	counts := map[outcome]int{}
	for _, r := range results {
		counts[r.outcome]++
	}
	parts := []string{fmt.Sprintf("%d faults in %s: %d caught", len(results), took.Round(time.Second), counts[caught])}
	for _, o := range []outcome{notCaught, broken, stale} {
		if counts[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], o))
		}
	}
	fmt.Fprintln(p.out, strings.Join(parts, ", "))
	return counts[caught] == len(results)
}

// one plays one fault.
func (p *player) one(ctx context.Context, number int, m *mutation) (result, error) {
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	content, err := m.mutated(p.root)
	if err != nil {
		return result{stale, err.Error()}, nil //nolint:nilerr // It is the outcome.
	}
	dir := filepath.Join(p.temporary, strconv.Itoa(number))
	changed, overlay := filepath.Join(dir, filepath.Base(m.File)), filepath.Join(dir, "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(p.root, filepath.FromSlash(m.File)): changed}})
	if err != nil {
		return result{}, fmt.Errorf("encode overlay: %w", err)
	}
	err = errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(changed, content, 0o600), os.WriteFile(overlay, replaced, 0o600))
	if err != nil {
		return result{}, fmt.Errorf("write fault: %w", err)
	}
	var last result
	for _, folder := range m.packages() {
		last, err = p.test(ctx, folder, "-overlay="+overlay, "-count=1", "-failfast", "-run="+m.Run)
		if err != nil || last.outcome != notCaught {
			return last, err
		}
	}
	return last, nil
}

// sound makes sure that the tests do not fail without a fault. The go command remembers
// those that have passed.
func (p *player) sound(ctx context.Context, mutations []mutation) error {
	patterns := map[string][]string{}
	var folders []string
	for i := range mutations {
		for _, folder := range mutations[i].packages() {
			if patterns[folder] == nil {
				folders = append(folders, folder)
			}
			if !slices.Contains(patterns[folder], mutations[i].Run) {
				patterns[folder] = append(patterns[folder], mutations[i].Run)
			}
		}
	}
	for _, folder := range folders {
		pattern := strings.Join(patterns[folder], "|")
		if slices.Contains(patterns[folder], "") {
			pattern = ""
		}
		r, err := p.test(ctx, folder, "-run="+pattern)
		if err != nil {
			return err
		}
		if r.outcome != notCaught {
			return fmt.Errorf("run the tests of %s without a fault: %s", folder, r.why)
		}
	}
	return nil
}

// test runs the tests of a package.
func (p *player) test(ctx context.Context, folder string, flags ...string) (result, error) {
	module, err := p.moduleOf(folder)
	if err != nil {
		return result{}, err
	}
	inModule, err := filepath.Rel(module, filepath.Join(p.root, filepath.FromSlash(folder)))
	if err != nil {
		return result{}, fmt.Errorf("find package %s: %w", folder, err)
	}
	args := append([]string{"test", "-json", "-vet=off", "-ldflags=-w", "-timeout=2m"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+filepath.ToSlash(inModule))...) //nolint:gosec // The list is part of the repository.
	cmd.Dir = module
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	failed := cmd.Run()
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	r, err := resultOf(&stdout)
	if err != nil {
		return result{}, err
	}
	if failed != nil && r.outcome == notCaught {
		return result{}, fmt.Errorf("go test %s: %w: %s", folder, failed, strings.TrimSpace(stderr.String()))
	}
	return r, nil
}

// moduleOf returns the folder of the module that a package is in.
func (p *player) moduleOf(folder string) (string, error) {
	for dir := filepath.Join(p.root, filepath.FromSlash(folder)); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == p.root || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find module of %s: no go.mod", folder)
		}
	}
}
