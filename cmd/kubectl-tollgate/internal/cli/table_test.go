package cli_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

func TestATableFitsUnlessItIsWide(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 120) + "-end"
	rows := [][]string{{long, "1", ""}, {"a", "2", long}}
	head := []string{"NAME", "COUNT", "REASON"}

	var narrow, wide bytes.Buffer
	require.NoError(t, cli.Write(&narrow, false, head, rows))
	lines := strings.Split(strings.TrimSuffix(narrow.String(), "\n"), "\n")
	require.Len(t, lines, 3)
	for _, line := range lines {
		require.LessOrEqual(t, utf8.RuneCountInString(line), cli.Width)
		require.Equal(t, strings.TrimRight(line, " "), line)
	}
	require.True(t, strings.HasPrefix(lines[1], "..."))
	require.True(t, strings.HasSuffix(lines[2], "-end"))

	require.NoError(t, cli.Write(&wide, true, head, rows))
	require.Contains(t, wide.String(), long+"  1")
}

// A column as narrow as its head cuts the whole cell.
func TestManyNarrowColumnsDoNotFit(t *testing.T) {
	t.Parallel()
	var head, cells []string
	for range 40 {
		head, cells = append(head, "AB"), append(cells, "abcdef")
	}
	var out bytes.Buffer
	require.NoError(t, cli.Write(&out, false, head, [][]string{cells}))
	require.Equal(t, strings.TrimRight(strings.Repeat("..  ", 40), " ")+"\n", strings.SplitAfter(out.String(), "\n")[1])
}

func TestATableThatGrowsKeepsItsColumns(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	lines := cli.NewLines(&out, false, []string{"NAME", "NODE"})
	for _, rows := range [][][]string{{{"a-long-name", "n1"}}, {{"b", "n2"}}, nil, {{"an-even-longer-name", "n3"}, {"c", "n4"}}} {
		require.NoError(t, lines.Write(rows))
	}
	require.Equal(t, "NAME         NODE\na-long-name  n1\nb            n2\nan-even-longer-name  n3\nc                    n4\n", out.String())
}

func TestNothingTellsATerminalWhatToDo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a plain text, with é and 漢": "a plain text, with é and 漢",
		"\x1b[2Jred":                 "^[[2Jred",
		"two\nlines\tand more\r":     "two lines and more^M",
		"\x7f\x00":                   "^?^@",
		"\u009b31m \u202eback":       `\u009b31m \u202eback`,
	} {
		require.Equal(t, want, cli.Clean(text))
	}
	var out bytes.Buffer
	require.NoError(t, cli.Write(&out, true, []string{"A", "B"}, [][]string{{"\x1b[2J", "x"}}))
	require.Equal(t, "A      B\n^[[2J  x\n", out.String())
}

func TestTextIsWrappedBetweenWords(t *testing.T) {
	t.Parallel()
	require.Empty(t, cli.Wrapped(" ", 10))
	require.Equal(t, []string{"one line"}, cli.Wrapped("one line", 8))
	require.Equal(t, []string{"one", "  line", "  averylongword", "  \x5e[ x"}, cli.Wrapped("one line averylongword \x1b x", 7))
}

func TestCellsOfLists(t *testing.T) {
	t.Parallel()
	require.Equal(t, "<none>", cli.Summed(nil))
	require.Equal(t, "a", cli.Summed([]string{"a"}))
	require.Equal(t, "a +2", cli.Summed([]string{"a", "b", "c"}))
	require.Equal(t, "<none>", cli.Joined(nil))
	require.Equal(t, "a, b", cli.Joined([]string{"a", "b"}))
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("pipe closed") }

func TestAWriterThatFailsIsSaid(t *testing.T) {
	t.Parallel()
	require.EqualError(t, cli.Write(broken{}, false, []string{"A"}, nil), "pipe closed")
}
