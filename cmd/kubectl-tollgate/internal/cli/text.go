package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean escapes characters in untrusted text that would control or confuse a terminal. Control
// characters become ^[ and the like, other non-graphic characters \uXXXX, newlines and tabs
// blanks.
func Clean(text string) string {
	hidden := func(r rune) bool { return !unicode.IsGraphic(r) }
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	const caret = 0x40 // between a control character and the one that stands for it
	var clean strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t':
			clean.WriteByte(' ')
		case r < ' ' || r == unicode.MaxASCII:
			clean.WriteString("^" + string(r^caret))
		case hidden(r):
			fmt.Fprintf(&clean, `\u%04x`, r)
		default:
			clean.WriteRune(r)
		}
	}
	return clean.String()
}

// Wrapped returns text passed through Clean, in lines of at most width characters; all but the
// first are indented. A longer word has a line of its own.
func Wrapped(text string, width int) []string {
	const indent = "  "
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(Clean(text)) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = indent + word
		}
	}
	if line == "" {
		return lines
	}
	return append(lines, line)
}
