package tollgate_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const rulesPage = "docs/rules.md"

// forms find rule IDs by the prefixes and numbers of digits that known IDs have.
type forms struct {
	// text finds an ID in comments, strings and pages, name one in the name of a test, where
	// an ID has no dash.
	text, name *regexp.Regexp
	// dashed are the prefixes of IDs with a dash.
	dashed map[string]bool
}

// isAlsoAWord tells whether IDs of a form are looked for in the names of tests only: in a text
// L1 to L7 are caches and layers of networks.
func isAlsoAWord(prefix, number string) bool { return prefix == "L" && len(number) == 1 }

// split returns the letters and the digits of an ID.
func split(id string) (prefix, number string) {
	prefix = strings.TrimRight(id, "0123456789")
	return strings.TrimSuffix(prefix, "-"), id[len(prefix):]
}

func formsOf(ids []string) forms {
	f := forms{dashed: map[string]bool{}}
	text, name := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		prefix, number := split(id)
		plain := prefix + strings.Repeat(`\d`, len(number))
		name[plain] = true
		switch {
		case strings.Contains(id, "-"):
			f.dashed[prefix] = true
			text[prefix+`-\d+`] = true
		case !isAlsoAWord(prefix, number):
			text[plain] = true
		}
	}
	f.text = regexp.MustCompile(`(?:^|[^\w.-])(` + anyOf(text) + `)\b`)
	f.name = regexp.MustCompile(anyOf(name))
	return f
}

// anyOf has the longer forms first: L07 is not L0 and a 7.
func anyOf(set map[string]bool) string {
	return strings.Join(slices.SortedFunc(maps.Keys(set), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	}), "|")
}

var nameOfTest = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w*`)

// in calls found for each ID in a text, with its place.
func (f forms) in(text string, found func(id string, at int)) {
	for _, at := range f.text.FindAllStringSubmatchIndex(text, -1) {
		found(text[at[2]:at[3]], at[2])
	}
	for _, at := range nameOfTest.FindAllStringIndex(text, -1) {
		name := text[at[0]:at[1]]
		for _, part := range f.name.FindAllStringIndex(name, -1) {
			if !isWord(name, part[0], part[1]) {
				continue
			}
			prefix, number := split(name[part[0]:part[1]])
			if f.dashed[prefix] {
				prefix += "-"
			}
			found(prefix+number, at[0]+part[0])
		}
	}
}

// isWord tells whether a part of a name in camel case is not a part of a longer word or number.
func isWord(name string, from, to int) bool {
	const digits, lower, upper = "0123456789", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return !strings.ContainsAny(name[from-1:from], upper) &&
		(to == len(name) || !strings.ContainsAny(name[to:to+1], digits+lower))
}

// explainedRules returns the IDs of the tables of docs/rules.md, in their order.
func explainedRules(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(rulesPage)
	require.NoError(t, err)
	var ids []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]+-?\d+) \| \S.*\. \| (.+) \|$`).FindAllStringSubmatch(string(page), -1) {
		ids = append(ids, row[1])
		require.Regexp(t, "^(`[a-z].*`|KEP-\\d+|Tollgate: (fault|invariant|review|target))$", row[2],
			"%s: the source of %s is a file of Kubernetes, a KEP, or a demand of Tollgate", rulesPage, row[1])
	}
	require.NotEmpty(t, ids)
	require.Len(t, ids, strings.Count(string(page), "\n| ")-strings.Count(string(page), "\n| ID |"),
		"each row of %s is `| ID | a sentence. | source |`", rulesPage)
	return ids
}

// namedRules returns where each ID is named in Go code that is written by hand, and on pages.
func namedRules(t *testing.T, f forms) map[string][]string {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	places := map[string][]string{}
	for _, file := range slices.Sorted(maps.Keys(imports(t))) {
		if file != "rules_test.go" { // Its examples are no uses.
			pages = append(pages, file)
		}
	}
	for _, file := range pages {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		text := string(content)
		if file == rulesPage || isGenerated(text) {
			continue
		}
		f.in(text, func(id string, at int) {
			places[id] = append(places[id], fmt.Sprintf("%s:%d", file, 1+strings.Count(text[:at], "\n")))
		})
	}
	return places
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func isGenerated(text string) bool {
	header, _, _ := strings.Cut(text, "\npackage ")
	return generated.MatchString(header)
}

func TestRulesAreExplainedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	ids := explainedRules(t)
	isExplained := map[string]bool{}
	for i, id := range ids {
		require.False(t, isExplained[id], "%s explains %s twice", rulesPage, id)
		isExplained[id] = true
		if i == 0 {
			continue
		}
		prefix, number := split(id)
		before, last := split(ids[i-1])
		require.False(t, prefix == before && len(number) == len(last) && number < last, "%s explains %s behind %s", rulesPage, id, ids[i-1])
	}
}

func TestRulesAreExplainedAndNamed(t *testing.T) {
	t.Parallel()
	ids := explainedRules(t)
	named := namedRules(t, formsOf(ids))
	for _, id := range slices.Sorted(maps.Keys(named)) {
		for _, place := range named[id] {
			if !slices.Contains(ids, id) {
				t.Errorf("%s: %s does not explain %s: name a rule that it explains, or add a row for this one", place, rulesPage, id)
			}
		}
	}
	for _, id := range ids {
		if len(named[id]) == 0 {
			t.Errorf("%s explains %s, which no code and no other page names: take the row out", rulesPage, id)
		}
	}
}

func TestRulesAreFoundByTheirForm(t *testing.T) {
	t.Parallel()
	f := formsOf([]string{"DE-05", "INV-3", "A10", "C24", "J01", "L07", "L1", "U6", "U17", "PE7"})
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"an ID in a comment":                  {"// Other pods stay (DE-05).", []string{"DE-05"}},
		"an ID that is not known":             {"// Other pods stay (DE-99).", []string{"DE-99"}},
		"an ID with too few digits":           {"DE-5", []string{"DE-5"}},
		"several in the name of a case":       {`"DE-05 C24 U6 the slice"`, []string{"DE-05", "C24", "U6"}},
		"several with commas and slashes":     {"INV-3,INV-4 C24/C25", []string{"INV-3", "INV-4", "C24", "C25"}},
		"one at the beginning of a text":      {"PE7 stalls", []string{"PE7"}},
		"the name of a test":                  {"func TestDE05OthersStay(t *testing.T) {", []string{"DE-05"}},
		"the name of a benchmark":             {"BenchmarkPE7", []string{"PE7"}},
		"a name with several":                 {"TestJ01J05AndDE05DE06Hold", []string{"J01", "J05", "DE-05", "DE-06"}},
		"a range in a name":                   {"TestDE01ToDE15AreOurs", []string{"DE-01", "DE-15"}},
		"an ID at the end of a name":          {"TestChurnC24", []string{"C24"}},
		"a name that ends with dots":          {"TestC24…", []string{"C24"}},
		"forms of two lengths in a name":      {"TestJ06U17U6L07L1AWord", []string{"J06", "U17", "U6", "L07", "L1"}},
		"an invariant in a name":              {"TestINV3NobodyLeaves", []string{"INV-3"}},
		"a word that ends like an ID":         {"TestHTTPA10 TestTLSC24 A10s TestU6th", nil},
		"numbers with more digits":            {"A100 TestA100 H100 J012", nil},
		"other words of letters and digits":   {"UTF-8 UTF8 H2 S3 P90 E2E V1 ES256 TestE2E T0 P-256 x_A10 B200", nil},
		"caches":                              {"the L1 cache, the L3 cache, and layer L7", nil},
		"names of objects, hosts and numbers": {"node-A10 v1.A10 0xA10 fooA10", nil},
		"names that are no tests":             {"func helperDE05()", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			f.in(tt.text, func(id string, _ int) { got = append(got, id) })
			require.Equal(t, tt.want, got)
		})
	}
}

func TestGeneratedFilesAreToldByTheirHeader(t *testing.T) {
	t.Parallel()
	const mark = "// Code generated by a tool. DO NOT EDIT.\n"
	require.True(t, isGenerated("// A license.\n\n"+mark+"\npackage a\n"))
	require.False(t, isGenerated("package a\n\nconst b = `\npackage c\n\n"+mark+"`\n"))
}
