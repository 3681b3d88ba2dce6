package preview

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func TestSentencesAreBrokenBetweenTheirParts(t *testing.T) {
	t.Parallel()
	fifty := strings.TrimSpace(strings.Repeat("word ", 10)) // 49 characters
	for sentence, c := range map[string]struct{ text, want string }{
		"a short one stays":           {"node/n: evicts no pods", "node/n: evicts no pods"},
		"nothing":                     {"", ""},
		"as long as a line":           {fifty + " " + fifty + "!", fifty + " " + fifty + "!"},
		"between two parts":           {fifty + "; one more; " + fifty, fifty + "; one more;\n  " + fifty},
		"between the words of one":    {"a; " + fifty + " " + fifty + " " + fifty, "a;\n  " + fifty + " " + strings.TrimSpace(strings.Repeat("word ", 9)) + "\n  word " + fifty},
		"a long word stays whole":     {"a " + strings.Repeat("x", 120) + " b", "a\n  " + strings.Repeat("x", 120) + "\n  b"},
		"a long word at the front":    {strings.Repeat("x", 120), strings.Repeat("x", 120)},
		"letters of more than a byte": {strings.Repeat("é", 99) + " b", strings.Repeat("é", 99) + "\n  b"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got := wrapped(c.text)
			require.Equal(t, c.want, got)
			require.Equal(t, strings.Fields(c.text), strings.Fields(got))
			for line := range strings.Lines(got) {
				if strings.Contains(strings.TrimSpace(line), " ") {
					require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), cli.Width)
				}
			}
		})
	}
}
