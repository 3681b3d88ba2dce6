package evictions

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// lineView writes changes, for files and pipes.
type lineView struct {
	to    streams
	write func(changed []Eviction, now time.Time) error
	// lacks are the sentences already written: each is written once.
	lacks []string
}

func (v *lineView) show(at *moment) error {
	for _, lack := range at.lacks {
		if slices.Contains(v.lacks, lack) {
			continue
		}
		v.lacks = append(v.lacks, lack)
		if err := say(v.to.notes, []string{lack}); err != nil {
			return err
		}
	}
	return v.write(at.changed, at.now)
}

// end writes the holds, which change too often to be written before.
func (v *lineView) end(at *moment) error {
	if len(at.list) == 0 {
		return say(v.to.notes, []string{"no pod has to leave"})
	}
	return say(v.to.notes, at.holds)
}

// screenView redraws the screen of a terminal.
type screenView struct {
	to    streams
	begun bool
}

// Control sequences of the VT100, and of xterm for the alternate screen.
const (
	enter    = "\x1b[?1049h\x1b[?25l"
	leave    = "\x1b[?25h\x1b[?1049l"
	home     = "\x1b[H"
	restOf   = "\x1b[K"
	allBelow = "\x1b[J"
)

func (v *screenView) show(at *moment) error {
	var text strings.Builder
	if !v.begun {
		v.begun = true
		text.WriteString(enter)
	}
	text.WriteString(home)
	lines := v.lines(at)
	for i, line := range lines {
		text.WriteString(line + restOf)
		if i < len(lines)-1 {
			text.WriteString("\r\n")
		}
	}
	text.WriteString(allBelow)
	if _, err := io.WriteString(v.to.out, text.String()); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

func (v *screenView) lines(at *moment) []string {
	width, height := v.to.size()
	screen := Screen{
		Since: at.log.Since, Groups: at.log.Groups(), List: at.list, Notes: append(slices.Clone(at.lacks), at.holds...), Width: width, Height: height, Colour: v.to.colour,
	}
	return screen.Lines(at.now)
}

// end leaves the alternate screen and writes the last lines.
func (v *screenView) end(at *moment) error {
	text := leave + strings.Join(append(v.lines(at), ""), "\r\n")
	if _, err := io.WriteString(v.to.out, text); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// sizeOf returns a function that returns the size of a terminal, or a default size.
func sizeOf(out io.Writer) func() (width, height int) {
	const usualHeight = 24
	file, ok := out.(*os.File)
	if !ok {
		return func() (int, int) { return cli.Width, usualHeight }
	}
	return func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return cli.Width, usualHeight
		}
		return width, height
	}
}
