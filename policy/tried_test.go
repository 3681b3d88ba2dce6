package policy_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryFaultOfTheListIsTried holds docs/policies.md to the tests that it names.
func TestEveryFaultOfTheListIsTried(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs", "policies.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(content), "## What was tried")
	require.True(t, found)
	rows := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([CD]\d\d) \|(.*)$`).FindAllStringSubmatch(table, -1) {
		require.NotContains(t, rows, row[1])
		rows[row[1]] = row[2]
	}
	tests := testsOf(t, "e2e")
	for _, series := range []struct {
		letter string
		count  int
	}{{"C", 28}, {"D", 10}} {
		for i := range series.count {
			id := fmt.Sprintf("%s%02d", series.letter, i+1)
			require.Contains(t, rows, id)
			for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(rows[id], -1) {
				require.Contains(t, tests, name[1], "%s names a test that does not exist", id)
			}
		}
	}
}

// testsOf returns the names of the tests below a folder.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(content), -1) {
			names[match[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	return names
}
