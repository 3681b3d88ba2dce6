package evictions

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	// mostBars is the maximum number of bars, barWidth their length.
	mostBars = 6
	barWidth = 20
	clockOf  = "15:04:05 MST"
	// legend explains the bars.
	legend = "  # gone  > leaving  . to go  x blocked  ! held or paused  = protected"
)

// lines returns the screen: at most height lines of width characters, at most half of them notes.
func (at *Frame) lines(width, height int, colour bool) []string {
	groups := at.Log.Groups()
	top := []string{at.headline(groups)}
	if len(groups) > 0 {
		top = append(append(append(top, ""), bars(groups)...), legend, "")
	}
	var notes []string
	for _, note := range slices.Concat(at.Lacks, at.Holds) {
		notes = append(notes, cli.Wrapped(note, min(width, cli.Width))...)
	}
	notes = notes[:min(len(notes), max(height/2, 0))]
	// The table has as many rows as fit, and the number of the others in the last line.
	var table []string
	rows := len(at.List)
	if rows > 0 {
		if room := height - len(top) - len(notes); rows+1 > room {
			rows = max(room-2, 0)
		}
		table = tableLines(at.List[:rows], at.Now, false)
	}
	if others := len(at.List) - rows; others > 0 {
		table = append(table, "... and "+cli.Counted(others, "more pod"))
	}
	lines := slices.Concat(top, table, notes)
	lines = lines[:min(len(lines), max(height, 0))]
	for i := range lines {
		lines[i] = cut(lines[i], width)
		if row := i - len(top) - 1; colour && row >= 0 && row < rows {
			lines[i] = coloured(at.List[row].State, lines[i])
		}
	}
	return lines
}

func (at *Frame) headline(groups []Group) string {
	gone, pods := 0, "no pod has"
	for _, g := range groups {
		gone += g.Pods[Gone]
	}
	if n := len(at.List); n > 0 {
		pods = cli.Counted(n, "pod") + " " + cli.Plural(n, "has", "have")
	}
	return fmt.Sprintf("%s  %s to leave, %d gone since %s", at.Now.UTC().Format(clockOf), pods, gone, at.Log.Since.UTC().Format(clockOf))
}

// bars returns a line for each group, up to mostBars.
func bars(groups []Group) []string {
	names := 0
	shown := groups[:min(len(groups), mostBars)]
	for _, g := range shown {
		names = max(names, utf8.RuneCountInString(refInShort(g.Source)))
	}
	var lines []string
	for _, g := range shown {
		lines = append(lines, fmt.Sprintf("%-*s  [%s]  %s", names, refInShort(g.Source), g.bar(), g.sentence()))
	}
	if others := len(groups) - len(shown); others > 0 {
		lines = append(lines, "... and pods of "+cli.Counted(others, "other object"))
	}
	return lines
}

// refInShort returns the name of the object with a taint in at most 32 characters.
func refInShort(source tracker.Source) string {
	const most = 32
	return cli.End(ref(source), most)
}

// parts are the parts of a bar, in order.
var parts = []struct {
	mark   byte
	states []State
	text   string
}{
	{'#', []State{Gone}, "gone"},
	{'>', []State{Leaving}, "leaving"},
	{'.', []State{Due, Waiting}, "to go"},
	{'x', []State{Blocked}, "blocked"},
	{'!', []State{Held, Paused}, "held"},
	{'=', []State{Protected}, "protected"},
}

func (g *Group) count(states []State) int {
	pods := 0
	for _, state := range states {
		pods += g.Pods[state]
	}
	return pods
}

// bar returns the bar of a group. Each part that is not zero has at least one character, taken
// from the longest.
func (g *Group) bar() string {
	widths, longest, sum := make([]int, len(parts)), 0, 0
	total := g.total()
	for i, part := range parts {
		if n := g.count(part.states); n > 0 {
			widths[i] = max(n*barWidth/total, 1)
		}
		sum += widths[i]
		if widths[i] > widths[longest] {
			longest = i
		}
	}
	widths[longest] += barWidth - sum
	var bar strings.Builder
	for i, width := range widths {
		bar.WriteString(strings.Repeat(string(parts[i].mark), width))
	}
	return bar.String()
}

func (g *Group) sentence() string {
	clauses := []string{strconv.Itoa(g.Pods[Gone]) + " of " + strconv.Itoa(g.total()) + " gone"}
	for _, part := range parts[1:] {
		if n := g.count(part.states); n > 0 {
			clauses = append(clauses, strconv.Itoa(n)+" "+part.text)
		}
	}
	return strings.Join(clauses, ", ")
}

// cut truncates a line to width.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(width, 0)])
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

func (v *screenView) show(at *Frame) error {
	text := home + strings.Join(v.lines(at), restOf+"\r\n") + restOf + allBelow
	if !v.begun {
		v.begun, text = true, enter+text
	}
	return v.draw(text)
}

func (v *screenView) draw(text string) error {
	if _, err := io.WriteString(v.to.out, text); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

func (v *screenView) lines(at *Frame) []string {
	width, height := v.to.size()
	return at.lines(width, height, v.to.colour)
}

// end leaves the alternate screen and writes the last lines.
func (v *screenView) end(at *Frame) error {
	return v.draw(leave + strings.Join(append(v.lines(at), ""), "\r\n"))
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
