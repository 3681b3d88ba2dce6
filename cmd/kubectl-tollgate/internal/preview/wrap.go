package preview

import (
	"strings"
	"unicode/utf8"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

const (
	// clauses separates the parts of a sentence.
	clauses = "; "
	// deeper indents the lines of a sentence after the first.
	deeper = "  "
)

// wrapped breaks a sentence into lines of at most cli.Width characters, between its parts or, if
// these are longer, between words. Longer words stay whole, for copying.
func wrapped(sentence string) string {
	var lines []string
	line := ""
	for _, clause := range strings.SplitAfter(sentence, clauses) {
		if line != "" && !fits(line+clause) {
			lines, line = append(lines, line), deeper
		}
		for _, word := range strings.SplitAfter(clause, " ") {
			if strings.TrimSpace(line) != "" && !fits(line+word) {
				lines, line = append(lines, line), deeper
			}
			line += word
		}
	}
	lines = append(lines, line)
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// fits reports whether a line is at most cli.Width characters long without trailing blanks.
func fits(line string) bool {
	return utf8.RuneCountInString(strings.TrimRight(line, " ")) <= cli.Width
}
