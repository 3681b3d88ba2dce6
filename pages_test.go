package tollgate_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	linked = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	titled = regexp.MustCompile(`(?m)^#+ (.+)$`)
	scheme = regexp.MustCompile(`^[a-z]+:`)
	marked = regexp.MustCompile("`|\\[([^]]*)\\]\\([^)]*\\)")
)

// readPages returns the text of all pages without their blocks of code, by their paths.
func readPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md", "deploy/*/*.md", "deploy/*/*/*.md", "evictor/*.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			pages[filepath.ToSlash(file)] = fenced.ReplaceAllString(string(text), "")
		}
	}
	require.Contains(t, pages, "docs/README.md", "the test runs at the root of the repository")
	return pages
}

// anchors are the names by which GitHub links to the headings of a page.
func anchors(text string) []string {
	var names []string
	for _, heading := range titled.FindAllStringSubmatch(text, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, marked.ReplaceAllString(heading[1], "$1"))
		unique := name
		for n := 1; slices.Contains(names, unique); n++ {
			unique = name + "-" + strconv.Itoa(n)
		}
		names = append(names, unique)
	}
	return names
}

func TestLinksOfPagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages := readPages(t)
	for page, text := range pages {
		for _, link := range linked.FindAllStringSubmatch(text, -1) {
			if scheme.MatchString(link[1]) {
				continue
			}
			target, fragment, _ := strings.Cut(link[1], "#")
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
				_, err := os.Stat(file)
				require.NoError(t, err, "%s: %s", page, link[1])
			}
			if fragment != "" {
				require.Contains(t, pages, file, "%s: %s", page, link[1])
				require.Contains(t, anchors(pages[file]), fragment, "%s: %s", page, link[1])
			}
		}
	}
}

func TestEachPageIsListed(t *testing.T) {
	t.Parallel()
	pages := readPages(t)
	var listed []string
	for _, link := range linked.FindAllStringSubmatch(pages["docs/README.md"], -1) {
		target, _, _ := strings.Cut(link[1], "#")
		listed = append(listed, path.Join("docs", target))
	}
	for page := range pages {
		if path.Dir(page) == "docs" && page != "docs/README.md" {
			require.Contains(t, listed, page, "docs/README.md lists each page")
		}
	}
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	t.Parallel()
	const page = "# A page\n\n## 2. Limits, before `anything` else\n\n## A page\n\n### Kubernetes' [own](x.md) evictors (U)\n"
	require.Equal(t, []string{"a-page", "2-limits-before-anything-else", "a-page-1", "kubernetes-own-evictors-u"}, anchors(page))
}
