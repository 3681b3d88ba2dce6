package tollgate_test

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// root stands for the folder of .golangci.yml in its patterns.
const root = "${base-path}"

// depguardRule is a rule of depguard in .golangci.yml.
type depguardRule struct {
	ListMode string   `json:"list-mode"`
	Files    []string `json:"files"`
	Allow    []string `json:"allow"`
	Deny     []struct {
		Package string `json:"pkg"`
	} `json:"deny"`
	// patterns are Files but those with an exclamation mark, which are exclusions.
	patterns, exclusions []*regexp.Regexp
}

// depguardRules returns the rules of .golangci.yml but the one about all files.
func depguardRules(t *testing.T) map[string]depguardRule {
	t.Helper()
	content, err := os.ReadFile(".golangci.yml")
	require.NoError(t, err)
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]depguardRule `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	require.NoError(t, yaml.Unmarshal(content, &config))
	rules := config.Linters.Settings.Depguard.Rules
	require.Contains(t, rules, "everywhere")
	delete(rules, "everywhere")
	for name, rule := range rules {
		for _, pattern := range rule.Files {
			if excluded, isExclusion := strings.CutPrefix(pattern, "!"); isExclusion {
				rule.exclusions = append(rule.exclusions, glob(t, excluded))
			} else {
				rule.patterns = append(rule.patterns, glob(t, pattern))
			}
		}
		rules[name] = rule
	}
	return rules
}

// covers tells whether a rule is about a file, which is named from the root.
func (r depguardRule) covers(file string) bool {
	matches := func(pattern *regexp.Regexp) bool { return pattern.MatchString(root + "/" + file) }
	return slices.ContainsFunc(r.patterns, matches) && !slices.ContainsFunc(r.exclusions, matches)
}

// allows tells whether a rule lets the files that it covers import a package. The longest entry
// that an import begins with decides, in the mode lax; without that mode a denied entry does.
// depguard looks only at the entry that sorts last before the import, which is the longest
// unless an entry is between them that the import does not begin with; no rule has such.
func (r depguardRule) allows(t *testing.T, imported string) bool {
	t.Helper()
	allowed, denied := -1, -1
	for _, entry := range r.Allow {
		if strings.HasPrefix(imported, entry) {
			allowed = max(allowed, len(entry))
		}
	}
	for _, deny := range r.Deny {
		require.NotContains(t, deny.Package, "$", "the test does not know exact entries")
		if strings.HasPrefix(imported, deny.Package) {
			denied = max(denied, len(deny.Package))
		}
	}
	if r.ListMode == "lax" {
		return denied < 0 || allowed > denied
	}
	require.Empty(t, r.ListMode)
	require.Empty(t, r.Allow, "the test knows lists of allowed packages in the mode lax alone")
	return denied < 0
}

// glob compiles a pattern of depguard: two asterisks stand for anything, one for anything but
// slashes, and $test for all tests. The rules use no more of the syntax.
func glob(t *testing.T, pattern string) *regexp.Regexp {
	t.Helper()
	if pattern == "$test" {
		pattern = "**/*_test.go"
	}
	require.NotRegexp(t, `[?\[\]\\]|\{[^b]`, pattern, "the test does not know this pattern")
	quoted := regexp.QuoteMeta(pattern)
	quoted = strings.ReplaceAll(quoted, `\*\*`, `.*`)
	quoted = strings.ReplaceAll(quoted, `\*`, `[^/]*`)
	return regexp.MustCompile("^" + quoted + "$")
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pattern, file string
		matches       bool
	}{
		"a file in the folder":                  {pattern: root + "/policy/**.go", file: "policy/a.go", matches: true},
		"a file in a folder below":              {pattern: root + "/policy/**.go", file: "policy/eviction/deep/a.go", matches: true},
		"a file in another folder":              {pattern: root + "/policy/**.go", file: "tracker/a.go"},
		"a file in a folder of that name below": {pattern: root + "/policy/**.go", file: "webhook/policy/a.go"},
		"one asterisk matches the folder alone": {pattern: root + "/policy/*.go", file: "policy/a.go", matches: true},
		"one asterisk matches no slash":         {pattern: root + "/policy/*.go", file: "policy/eviction/a.go"},
		"a dot is a dot":                        {pattern: root + "/policy/**.go", file: "policy/ago"},
		"a test":                                {pattern: "$test", file: "policy/eviction/a_test.go", matches: true},
		"not a test":                            {pattern: "$test", file: "policy/eviction/test.go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.matches, glob(t, tt.pattern).MatchString(root+"/"+tt.file))
		})
	}
}

// The linter refuses what the table refuses: for each file, for a new file in each folder, and
// for a new folder below each.
func TestTheLinterRefusesTheSame(t *testing.T) {
	t.Parallel()
	rules := depguardRules(t)
	files, packages := map[string]bool{}, map[string]bool{}
	for file := range imports(t) {
		folder := path.Dir(file)
		if folder == "." {
			continue
		}
		packages[path.Join(module, folder)] = true
		for _, name := range []string{file, folder + "/new.go", folder + "/new_test.go", folder + "/new/deep/new.go"} {
			files[name] = true
		}
	}
	for _, pkg := range impure {
		packages[pkg], packages[pkg+"/new"] = true, true
	}
	allows := map[string]map[string]bool{}
	for name, rule := range rules {
		allows[name] = map[string]bool{}
		for pkg := range packages {
			allows[name][pkg] = rule.allows(t, pkg)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		covering := slices.DeleteFunc(slices.Sorted(maps.Keys(rules)), func(name string) bool { return !rules[name].covers(file) })
		for pkg := range packages {
			refused := slices.ContainsFunc(covering, func(name string) bool { return !allows[name][pkg] })
			if why := refusal(file, pkg); refused != (why != "") {
				t.Fatalf("%s imports %s: the tables of architecture_test.go say %q, and of .golangci.yml the rules %q apply, which refuse it: %t",
					file, pkg, why, covering, refused)
			}
		}
	}
}
