package tollgate_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const comparisonPage = "docs/comparison.md"

var (
	// linkToTest is a link from a page in docs to a file with tests, whose text is the name of a test in it.
	linkToTest = regexp.MustCompile(`\[(Test\w+)\]\(\.\./([^)]+_test\.go)\)`)
	// linkToSource is a link to the documentation, the source or an issue of another project.
	linkToSource = regexp.MustCompile(`\]\(https://[^)\s]+\)`)
	// between are the lines between the head of a table and its rows.
	between = regexp.MustCompile(`^\|(-+\|)+$`)
)

// tables are the tables of a page, each a list of rows of cells with the head first.
func tables(text string) [][][]string {
	var found [][][]string
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		row, ok := strings.CutPrefix(line, "| ")
		if !ok {
			inside = inside && between.MatchString(line)
			continue
		}
		if !inside {
			found, inside = append(found, nil), true
		}
		last := len(found) - 1
		found[last] = append(found[last], strings.Split(strings.TrimSuffix(row, " |"), " | "))
	}
	return found
}

// hasTest tells whether a file declares a test.
func hasTest(t *testing.T, file, name string) bool {
	t.Helper()
	text, err := os.ReadFile(path.Clean(file))
	require.NoError(t, err)
	return strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
}

// What the comparison says of Tollgate is held by a test in each row, and what it says of others has a source in each cell.
func TestTheComparisonNamesItsTestsAndSources(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(comparisonPage)
	require.NoError(t, err)
	found := tables(string(text))
	require.Len(t, found, 2, "admission and eviction")
	for _, table := range found {
		head := table[0]
		require.Equal(t, "Tollgate", head[len(head)-1])
		for _, row := range table[1:] {
			require.Len(t, row, len(head), row[0])
			need, others, own := row[0], row[1:len(row)-1], row[len(row)-1]
			for i, cell := range others {
				require.Regexp(t, linkToSource, cell, "%s, %s: each cell has its source", need, head[i+1])
			}
			tests := linkToTest.FindAllStringSubmatch(own, -1)
			require.NotEmpty(t, tests, "%s: a test holds what the page says of Tollgate", need)
			for _, link := range tests {
				require.True(t, hasTest(t, link[2], link[1]), "%s: %s has no %s", need, link[2], link[1])
			}
		}
	}
}

func TestTablesAreReadFromAPage(t *testing.T) {
	t.Parallel()
	const page = "a\n\n| need | b | Tollgate |\n|---|---|---|\n| c | d [e](https://f) | g |\n\nh\n\n| i | j |\n|---|---|\n| k | l |\n"
	require.Equal(t, [][][]string{
		{{"need", "b", "Tollgate"}, {"c", "d [e](https://f)", "g"}},
		{{"i", "j"}, {"k", "l"}},
	}, tables(page))
}
