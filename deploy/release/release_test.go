package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const changelog = `# Changelog

## Unreleased

- what comes

## v0.2.0 - 2027-01-31

### Added

- a field

## v0.1.1

- has no date

## v0.1.0 - 2026-12-01

## v0.0.1 - 2026-11-01
- the last one
`

func TestTheNotesAreTheSectionOfTheVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version, want, err string
	}{
		"a section ends where the next begins":                  {version: "v0.2.0", want: "### Added\n\n- a field\n"},
		"the last section ends with the file":                   {version: "v0.0.1", want: "- the last one\n"},
		"a version without a section is refused":                {version: "v0.3.0", err: "CHANGELOG.md has no section for v0.3.0: rename Unreleased to ## v0.3.0 - "},
		"a version that begins like another one is another one": {version: "v0.2", err: "has no section for v0.2"},
		"a section without a date is refused":                   {version: "v0.1.1", err: "the heading of v0.1.1 has no date"},
		"an empty section is refused":                           {version: "v0.1.0", err: "the section of v0.1.0 is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := notes(changelog, test.version)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

// repository makes a repository whose only commit can be released as v0.2.0.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, "CHANGELOG.md", changelog)
	write(t, root, "deploy/base/kustomization.yaml", "images: [{name: ghcr.io/tollgate-dev/tollgate, newTag: v0.2.0}]\n")
	git(t, root, "init", "--quiet")
	git(t, root, "add", ".")
	git(t, root, "commit", "--quiet", "--message", "First")
	git(t, root, "tag", "v0.2.0")
	return root
}

func write(t *testing.T, root, path, content string) {
	t.Helper()
	path = filepath.Join(root, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func git(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_COMMITTER_DATE=2027-01-31T12:00:00Z")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestWhatCannotBeReleasedIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version string
		change  func(t *testing.T, root string)
		err     string
	}{
		"a version without a v":        {version: "0.2.0", err: `--version "0.2.0" is no version of Semantic Versioning`},
		"a version without a patch":    {version: "v0.2", err: `--version "v0.2" is no version`},
		"a version with build data":    {version: "v0.2.0+a", err: `--version "v0.2.0+a" is no version`},
		"no version":                   {version: "", err: `--version "" is no version`},
		"a tag that is not there":      {version: "v0.3.0", err: "HEAD does not have the tag v0.3.0 (its tags: [\"v0.2.0\"])"},
		"a file that is not committed": {version: "v0.2.0", change: func(t *testing.T, root string) { t.Helper(); write(t, root, "new", "") }, err: "not committed: commit or remove them\n?? new"},
		"a tag of an earlier commit": {version: "v0.2.0", change: func(t *testing.T, root string) {
			t.Helper()
			git(t, root, "commit", "--quiet", "--allow-empty", "--message", "Second")
		}, err: "HEAD does not have the tag v0.2.0 (its tags: [])"},
		"manifests of another version": {
			version: "v0.2.1", change: func(t *testing.T, root string) { t.Helper(); git(t, root, "tag", "v0.2.1") },
			err: `deploy/base/kustomization.yaml: images[].newTag is "v0.2.0", and would have to be v0.2.1`,
		},
		"a version that the changelog does not have": {version: "v0.2.1", change: func(t *testing.T, root string) {
			t.Helper()
			write(t, root, "deploy/base/kustomization.yaml", "images: [{newTag: v0.2.1}]\n")
			git(t, root, "commit", "--quiet", "--all", "--message", "Second")
			git(t, root, "tag", "v0.2.1")
		}, err: "CHANGELOG.md has no section for v0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, output := repository(t), filepath.Join(t.TempDir(), "dist")
			if test.change != nil {
				test.change(t, root)
			}
			err := run(t.Context(), []string{"--root", root, "--output", output, "--version", test.version}, io.Discard)
			require.ErrorContains(t, err, test.err)
			require.NoDirExists(t, output)
		})
	}
}

func TestACommitWithItsTagCanBeReleased(t *testing.T) {
	t.Parallel()
	r := &release{options: options{root: repository(t), version: "v0.2.0"}, out: io.Discard}
	require.NoError(t, r.check(t.Context()))
	require.Len(t, r.commit, 40)
	require.True(t, r.committed.Equal(time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)), "%s", r.committed)
	require.Contains(t, r.notes, "a field")
}

func TestArgumentsThatAreWrongAreNamed(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), []string{"--version", "v0.2.0"}, io.Discard), "--output is empty")
	root := repository(t)
	for _, output := range []string{root, filepath.Dir(root)} {
		err := run(t.Context(), []string{"--version", "v0.2.0", "--root", root, "--output", output}, io.Discard)
		require.ErrorContains(t, err, "is replaced, and holds the repository "+root)
		require.DirExists(t, root)
	}
	_, err := pluginFor("linux", "v0.2.0")
	require.ErrorContains(t, err, `platform "linux" is not of the form os/architecture`)
	_, err = (&release{}).command(t.Context(), " ")
	require.ErrorContains(t, err, "is empty")
}

func TestTheManifestForKrewNamesEachArchive(t *testing.T) {
	t.Parallel()
	linux, err := pluginFor("linux/arm64", "v0.2.0")
	require.NoError(t, err)
	windows, err := pluginFor("windows/amd64", "v0.2.0")
	require.NoError(t, err)
	linux.sum, windows.sum = sum([]byte("linux")), sum([]byte("windows"))
	manifest, err := krewManifest("v0.2.0", "https://example.com/download", []plugin{linux, windows})
	require.NoError(t, err)
	require.YAMLEq(t, `
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata: {name: tollgate}
spec:
  version: v0.2.0
  homepage: https://github.com/tollgate-dev/tollgate
  shortDescription: Preview, explain and watch evictions by taints
  description: |
    Shows what a taint would evict before it is set, explains why a pod has to leave
    or stays, follows evictions, and checks manifests against policies of Tollgate.
  platforms:
    - selector: {matchLabels: {os: linux, arch: arm64}}
      uri: https://example.com/download/v0.2.0/kubectl-tollgate-v0.2.0-linux-arm64.tar.gz
      sha256: `+sum([]byte("linux"))+`
      bin: kubectl-tollgate
    - selector: {matchLabels: {os: windows, arch: amd64}}
      uri: https://example.com/download/v0.2.0/kubectl-tollgate-v0.2.0-windows-amd64.zip
      sha256: `+sum([]byte("windows"))+`
      bin: kubectl-tollgate.exe
`, string(manifest))
}

func TestAnArchiveHasTheProgramAndTheTimeOfTheCommit(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 31, 12, 0, 0, 0, time.FixedZone("east", 3600))
	files := []file{{"kubectl-tollgate", 0o755, []byte("program")}, {"LICENSE", 0o644, []byte("license")}}
	packed := func(platform string) []byte {
		p, err := pluginFor(platform, "v0.2.0")
		require.NoError(t, err)
		content, err := p.pack(files, at)
		require.NoError(t, err)
		again, err := p.pack(files, at.UTC())
		require.NoError(t, err)
		require.Equal(t, content, again, "the same files give the same bytes")
		return content
	}

	compressed, err := gzip.NewReader(bytes.NewReader(packed("darwin/arm64")))
	require.NoError(t, err)
	reader := tar.NewReader(compressed)
	for _, f := range files {
		header, err := reader.Next()
		require.NoError(t, err)
		require.Equal(t, f.name, header.Name)
		require.Equal(t, f.mode, header.Mode)
		require.True(t, header.ModTime.Equal(at))
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		require.Equal(t, f.content, content)
	}
	_, err = reader.Next()
	require.ErrorIs(t, err, io.EOF)

	content := packed("windows/amd64")
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	require.NoError(t, err)
	require.Len(t, archive.File, len(files))
	require.Equal(t, "kubectl-tollgate", archive.File[0].Name)
	require.True(t, archive.File[0].Modified.Equal(at))
}

func TestChecksumsAreOfAllFilesInTheOrderOfTheirNames(t *testing.T) {
	t.Parallel()
	r := &release{options: options{output: t.TempDir()}, out: io.Discard}
	require.NoError(t, r.write("b", []byte("second")))
	require.NoError(t, r.write("a", []byte("first")))
	require.NoError(t, r.writeChecksums(t.Context()))
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksums)
	cmd.Dir = r.output
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "a: OK\nb: OK\n", string(out))
}

func TestCosignAsksNoServiceWhereThereIsAKey(t *testing.T) {
	t.Parallel()
	require.Equal(t, "sign --yes", strings.Join((&release{}).identity("sign"), " "))
	keyed := &release{options: options{key: "k"}}
	require.Equal(t, "sign --yes --key k --use-signing-config=false --tlog-upload=false", strings.Join(keyed.identity("sign"), " "))
}

func TestARegistryOnThisMachineHasNoCertificate(t *testing.T) {
	t.Parallel()
	for registry, want := range map[string]bool{
		"127.0.0.1:5000/tollgate-dev": true, "localhost:5000": true, "[::1]:5000": true,
		"ghcr.io/tollgate-dev": false, "localhost.example.com/a": false, "10.0.0.1:5000/a": false,
	} {
		require.Equal(t, want, (&release{options: options{registry: registry}}).loopback(), registry)
	}
}
