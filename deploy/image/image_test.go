package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// index is the image as it was written.
func index(t *testing.T) v1.ImageIndex {
	t.Helper()
	written, err := layout.ImageIndexFromPath(shared.dir)
	require.NoError(t, err)
	manifest, err := written.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1, "crane push takes a layout of one image")
	require.Equal(t, shared.digest, manifest.Manifests[0].Digest.String())
	require.Equal(t, tag(shared.programs[0].version()), manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	found, err := written.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	return found
}

// images returns the image of each platform, in the order of the programs.
func images(t *testing.T) []v1.Image {
	t.Helper()
	all := index(t)
	manifest, err := all.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, len(shared.programs))
	found := make([]v1.Image, 0, len(shared.programs))
	for i, p := range shared.programs {
		require.Equal(t, p.os+"/"+p.architecture, manifest.Manifests[i].Platform.String())
		image, err := all.Image(manifest.Manifests[i].Digest)
		require.NoError(t, err)
		found = append(found, image)
	}
	return found
}

func TestTheImageIsWhatTheSpecificationSays(t *testing.T) {
	t.Parallel()
	require.NoError(t, validate.Index(index(t)))
}

// copyOf copies what git knows and does not ignore, changes included, and git's own
// folder, to another place.
func copyOf(ctx context.Context, t *testing.T, root string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "elsewhere", "tollgate")
	listed, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	require.NoError(t, err)
	for file := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed
		}
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(root, file))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(to, file), content, info.Mode()))
	}
	out, err := exec.CommandContext(ctx, "cp", "-R", filepath.Join(root, ".git"), filepath.Join(to, ".git")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}

// With the variable nothing that was compiled for the first image is used for the second.
func TestTheSameCommitGivesTheSameBytesWhereverItIsBuilt(t *testing.T) {
	if os.Getenv("TOLLGATE_IMAGE_COLD") != "" {
		t.Setenv("GOCACHE", t.TempDir())
	}
	// What somebody may have set, and what does not matter.
	t.Setenv("GOFLAGS", "-buildvcs=false -tags=something")
	t.Setenv("CGO_ENABLED", "1")
	t.Setenv("GOAMD64", "v3")
	again, err := build(t.Context(), copyOf(t.Context(), t, root), platforms())
	require.NoError(t, err)
	digest, err := write(filepath.Join(t.TempDir(), "image"), again)
	require.NoError(t, err)
	require.Equal(t, shared.digest, digest)
	for i := range again {
		require.Equal(t, sbom(shared.programs[i]), sbom(again[i]))
	}
}

func TestWhatTheImageSaysOfItself(t *testing.T) {
	t.Parallel()
	commit, err := exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "HEAD").Output()
	require.NoError(t, err)
	for i, image := range images(t) {
		p := shared.programs[i]
		config, err := image.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, p.os, config.OS)
		require.Equal(t, p.architecture, config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User, "numbers, which runAsNonRoot can tell from root")
		require.Equal(t, []string{"/usr/local/bin/tollgate"}, config.Config.Entrypoint)
		require.Empty(t, config.Config.Cmd)
		require.Empty(t, config.Config.Volumes)
		labels := config.Config.Labels
		require.Equal(t, strings.TrimSpace(string(commit)), labels["org.opencontainers.image.revision"])
		require.Equal(t, p.version(), labels["org.opencontainers.image.version"])
		require.Equal(t, "Apache-2.0", labels["org.opencontainers.image.licenses"])
		require.Equal(t, "https://github.com/tollgate-dev/tollgate", labels["org.opencontainers.image.source"])
		require.Equal(t, config.Created.UTC().Format("2006-01-02T15:04:05Z"), labels["org.opencontainers.image.created"])
		require.True(t, config.Created.Equal(p.committed), "the time of the commit, not of the build")
	}
	manifest, err := index(t).IndexManifest()
	require.NoError(t, err)
	require.Equal(t, shared.programs[0].version(), manifest.Annotations["org.opencontainers.image.version"])
}

func TestThereIsNothingInTheImageButTheProgram(t *testing.T) {
	t.Parallel()
	for _, image := range images(t) {
		layers, err := image.Layers()
		require.NoError(t, err)
		require.Len(t, layers, 1)
		files := map[string]int64{}
		reader := tar.NewReader(mutate.Extract(image))
		for {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.Zero(t, header.Uid, header.Name)
			require.Zero(t, header.Gid, header.Name)
			if header.Typeflag != tar.TypeDir {
				files[header.Name] = header.Mode
			}
		}
		require.Equal(t, map[string]int64{
			"usr/local/bin/tollgate": 0o755, "usr/share/doc/tollgate/LICENSE": 0o644,
		}, files)
	}
}

func TestTheImageIsSmall(t *testing.T) {
	t.Parallel()
	const megabyte = 1_000_000
	for _, p := range shared.programs {
		require.Less(t, len(p.content), 60*megabyte, p.architecture)
	}
	for _, image := range images(t) {
		size, err := partial.Descriptor(image)
		require.NoError(t, err)
		layers, err := image.Layers()
		require.NoError(t, err)
		total := size.Size
		for _, layer := range layers {
			content, err := layer.Uncompressed()
			require.NoError(t, err)
			n, err := io.Copy(io.Discard, content)
			require.NoError(t, err)
			total += n
		}
		require.Less(t, total, int64(65*megabyte), "as it lies on a node")
	}
}

func TestTheProgramNeedsNoLibrary(t *testing.T) {
	t.Parallel()
	for _, p := range shared.programs {
		program, err := elf.NewFile(bytes.NewReader(p.content))
		require.NoError(t, err)
		for _, segment := range program.Progs {
			require.NotEqual(t, elf.PT_INTERP, segment.Type, "a loader is asked for")
		}
		libraries, err := program.ImportedLibraries()
		require.NoError(t, err)
		require.Empty(t, libraries)
		require.Equal(t, map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[p.architecture], program.Machine)
	}
}

func TestTheProgramHasTheDatabaseOfTimeZones(t *testing.T) {
	t.Parallel()
	for _, p := range shared.programs {
		require.True(t, bytes.Contains(p.content, []byte("America/Argentina/Buenos_Aires")), p.architecture)
	}
}

func TestTheImageGoesThroughARegistry(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/tollgate:" + tag(shared.programs[0].version()))
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(ref, index(t), remote.WithContext(t.Context())))
	pulled, err := remote.Index(ref, remote.WithContext(t.Context()))
	require.NoError(t, err)
	digest, err := pulled.Digest()
	require.NoError(t, err)
	require.Equal(t, shared.digest, digest.String())
	require.NoError(t, validate.Index(pulled))
}

func TestATagHasNoPlusSign(t *testing.T) {
	t.Parallel()
	require.Equal(t, "v1.2.3", tag("v1.2.3"))
	require.Equal(t, "v0.0.0-20261122174114-dc38305a1b2c_dirty", tag("v0.0.0-20261122174114-dc38305a1b2c+dirty"))
}
