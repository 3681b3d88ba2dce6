package pages

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tutorial is a page, and what its reader does that is not on it.
type tutorial struct {
	// path is the path of the page in the repository.
	path string
	// typed is what the reader types in the place of a word of a command or of a manifest, such
	// as NODE, or of a whole command. Each must be on the page.
	typed map[string]string
	// before is what the reader has done before a command, a file or a section. Each must be on
	// the page.
	before map[string]func(t *testing.T)
	// folders are where files of the page are, if not in the checkout.
	folders map[string]string
	// background are commands that run until the page is at its end. Each returns when it can
	// be gone on.
	background map[string]func(t *testing.T)
}

// follow runs a page from top to bottom.
func follow(t *testing.T, r *reader, page tutorial) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(programs.Root, page.path))
	require.NoError(t, err)
	parts, err := parse(string(content))
	require.NoError(t, err, page.path)
	r.typed = page.typed
	left := page.skipped()
	require.NoError(t, page.misfits(parts, left))
	for _, p := range parts {
		p.commands = runHere(t, p.commands, left)
		if !page.hasWork(p) {
			continue
		}
		t.Run(fmt.Sprintf("line %d", p.line), func(t *testing.T) { page.runPart(t, r, p) })
		if t.Failed() {
			t.Fatalf("%s:%d: what comes after builds on it", page.path, p.line)
		}
	}
}

// hasWork tells whether anything is done here for a part.
func (page tutorial) hasWork(p part) bool {
	switch p.kind {
	case heading:
		return page.before[p.text] != nil
	case manifest:
		return true
	case script, console, inline:
	}
	return len(p.commands) > 0
}

// runPart runs one part of a page.
func (page tutorial) runPart(t *testing.T, r *reader, p part) {
	t.Helper()
	for _, name := range p.places() {
		if prepare := page.before[name]; prepare != nil {
			prepare(t)
		}
	}
	switch p.kind {
	case heading:
	case manifest:
		r.applies(t, p, page.folders[p.file])
	case console:
		r.shows(t, p)
	case script, inline:
		text := strings.Join(p.commands, "\n")
		if goOn, ok := page.background[key(text)]; ok {
			r.starts(t, text)
			goOn(t)
			return
		}
		r.try(t, text, func(_ string, err error) error { return err })
	}
}

// places are what a test may name to do something before.
func (p part) places() []string {
	places := keys(p.commands)
	if p.file != "" {
		places = append(places, p.file)
	}
	if p.kind == heading {
		places = append(places, p.text)
	}
	return places
}

// skipped are the commands of the page that are not run here.
func (page tutorial) skipped() map[string]bool {
	left := map[string]bool{}
	for _, command := range elsewhere() {
		if command.page == page.path {
			left[command.command] = true
		}
	}
	return left
}

// runHere returns the commands that are run. Of others by make it is tried whether the target is
// there.
func runHere(t *testing.T, commands []string, skipped map[string]bool) []string {
	t.Helper()
	var here []string
	for _, command := range commands {
		if !skipped[key(command)] {
			here = append(here, command)
			continue
		}
		if target, ok := strings.CutPrefix(key(command), "make "); ok {
			out, err := exec.CommandContext(t.Context(), "make", "-C", programs.Root, "-n", target).CombinedOutput()
			require.NoError(t, err, "make -n %s: %s", target, out)
		}
	}
	return here
}

func keys(commands []string) []string {
	out := make([]string, 0, len(commands))
	for _, command := range commands {
		out = append(out, key(command))
	}
	return out
}

// misfits returns an error if what the test says of a page is of none of its commands, so that it
// goes when they go.
func (page tutorial) misfits(parts []part, skipped map[string]bool) error {
	var all, files, places []string
	var text strings.Builder
	for _, p := range parts {
		all, places, files = append(all, keys(p.commands)...), append(places, p.places()...), append(files, p.file)
		text.WriteString(strings.Join(keys(p.commands), "\n") + "\n")
		if p.kind == manifest {
			text.WriteString(p.text)
		}
	}
	var errs []error
	missing := func(what, name string, there bool) {
		if !there {
			errs = append(errs, fmt.Errorf("%s: %s %q is not on the page", page.path, what, name))
		}
	}
	for command := range skipped {
		missing("the command that is not run here", command, slices.Contains(all, command))
	}
	for word := range page.typed {
		missing("what is replaced by what the reader types,", word, strings.Contains(text.String(), word))
	}
	for name := range page.before {
		missing("what something is done before,", name, slices.Contains(places, name))
	}
	for file := range page.folders {
		missing("the file", file, slices.Contains(files, file))
	}
	for command := range page.background {
		missing("the command in the background", command, slices.Contains(all, command))
	}
	return errors.Join(errs...)
}
