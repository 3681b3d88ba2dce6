package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const repositoryRoot = "../.."

// versionOf is the version of the manifests, with which all others are compared.
func versionOf(t *testing.T) string {
	t.Helper()
	found := newTag.FindStringSubmatch(contentOf(t, "deploy/base/kustomization.yaml"))
	require.NotNil(t, found)
	return found[1]
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repositoryRoot, path))
	require.NoError(t, err)
	return string(content)
}

// tracked are the files that git knows and that match one of the patterns.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", repositoryRoot, "ls-files", "--"}, patterns...)...).Output()
	require.NoError(t, err)
	files := strings.Fields(string(out))
	require.NotEmpty(t, files)
	return files
}

var (
	newTag = regexp.MustCompile(`name: ghcr\.io/tollgate-dev/tollgate, newTag: (v[^}\s]+)`)
	// ofARelease are the ways to name a version of Tollgate in a page. An image of one's own has another one.
	ofARelease = regexp.MustCompile(`(?:tollgate-dev/[a-z/-]+\?ref=|git clone --branch |make release VERSION=|releases/download/|kubectl-tollgate-|(?m:^)VERSION=)(v[0-9][0-9A-Za-z.]*)`)
)

func TestManifestsAndChartNameOneVersion(t *testing.T) {
	t.Parallel()
	version := versionOf(t)
	for _, file := range tracked(t, "deploy/*kustomization.yaml") {
		for _, found := range newTag.FindAllStringSubmatch(contentOf(t, file), -1) {
			require.Equal(t, version, found[1], file)
		}
	}
	var chart struct {
		Version    string `json:"version"`
		AppVersion string `json:"appVersion"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(contentOf(t, "deploy/chart/tollgate/Chart.yaml")), &chart))
	require.Equal(t, version, chart.AppVersion)
	require.Equal(t, version, "v"+chart.Version)
}

func TestPagesNameTheVersionOfTheManifests(t *testing.T) {
	t.Parallel()
	version, named := versionOf(t), 0
	for _, file := range tracked(t, "*.md") {
		for _, found := range ofARelease.FindAllStringSubmatch(contentOf(t, file), -1) {
			named++
			if file == "docs/release.md" && found[1] != version {
				continue // it shows how the next one is made
			}
			require.Equal(t, version, found[1], "%s: %s", file, found[0])
		}
	}
	require.Positive(t, named)
	require.Contains(t, contentOf(t, "deploy/README.md"), "charts/tollgate --version "+strings.TrimPrefix(version, "v")+" ")
}

func TestTheUpgradeNotesHaveTheVersionOfTheManifests(t *testing.T) {
	t.Parallel()
	require.Contains(t, contentOf(t, "docs/upgrade.md"), "\n| "+versionOf(t)+" | ")
}
