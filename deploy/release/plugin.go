package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// file is a file in an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// plugin is the plugin of kubectl, built for a platform and put into an archive.
type plugin struct {
	os, architecture string
	archive, program string
	sum              string
}

// buildPlugins builds an archive with the plugin for each platform, and the manifest for krew. Nothing
// of the environment that changes the program gets to the go command, but for the version of Go.
func (r *release) buildPlugins(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("read license: %w", err)
	}
	var built []plugin
	for _, platform := range r.plugins {
		p, err := pluginFor(platform, r.version)
		if err != nil {
			return err
		}
		r.step("building %s (the first time takes a few minutes)", p.archive)
		path := filepath.Join(r.work, p.archive+"-"+p.program)
		env := []string{
			"GOOS=" + p.os, "GOARCH=" + p.architecture, "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off",
			"GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off",
		}
		_, err = r.print(ctx, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", path, "./cmd/kubectl-tollgate")
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // It was just built.
		if err != nil {
			return fmt.Errorf("read plugin: %w", err)
		}
		archive, err := p.pack([]file{{p.program, 0o755, content}, {"LICENSE", 0o644, license}}, r.committed)
		if err != nil {
			return err
		}
		if err := r.write(p.archive, archive); err != nil {
			return err
		}
		p.sum = sum(archive)
		built = append(built, p)
	}
	manifest, err := krewManifest(r.version, r.downloads, built)
	if err != nil {
		return err
	}
	return r.write("krew.yaml", manifest)
}

// pluginFor names the archive for a platform, such as linux/amd64.
func pluginFor(platform, version string) (plugin, error) {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok || goos == "" || goarch == "" {
		return plugin{}, fmt.Errorf("--plugin-platforms: platform %q is not of the form os/architecture, such as linux/amd64", platform)
	}
	program, suffix := "kubectl-tollgate", ".tar.gz"
	if goos == "windows" {
		program, suffix = "kubectl-tollgate.exe", ".zip"
	}
	archive := "kubectl-tollgate-" + version + "-" + goos + "-" + goarch + suffix
	return plugin{os: goos, architecture: goarch, archive: archive, program: program}, nil
}

// pack makes the archive that is common on the platform.
func (p plugin) pack(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	var begin func(f file) (io.Writer, error)
	var end func() error
	if p.os == "windows" {
		w := zip.NewWriter(&out)
		begin = func(f file) (io.Writer, error) {
			header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at.UTC()}
			header.SetMode(os.FileMode(f.mode)) //nolint:gosec // Modes are small.
			return w.CreateHeader(header)
		}
		end = w.Close
	} else {
		compressed := gzip.NewWriter(&out)
		w := tar.NewWriter(compressed)
		begin = func(f file) (io.Writer, error) {
			return w, w.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at.UTC(), Format: tar.FormatUSTAR,
			})
		}
		end = func() error { return errors.Join(w.Close(), compressed.Close()) }
	}
	for _, f := range files {
		entry, err := begin(f)
		if err == nil {
			_, err = entry.Write(f.content)
		}
		if err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	if err := end(); err != nil {
		return nil, fmt.Errorf("end archive: %w", err)
	}
	return out.Bytes(), nil
}

// sum is the SHA-256 as sha256sum prints it.
func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// krewManifest is the manifest by which krew installs the plugin, as
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest describes it.
func krewManifest(version, downloads string, plugins []plugin) ([]byte, error) {
	var platforms []map[string]any
	for _, p := range plugins {
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": p.os, "arch": p.architecture}},
			"uri":      downloads + "/" + version + "/" + p.archive, "sha256": p.sum, "bin": p.program,
		})
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "tollgate"},
		"spec": map[string]any{
			"version":          version,
			"homepage":         "https://github.com/tollgate-dev/tollgate",
			"shortDescription": "Preview, explain and watch evictions by taints",
			"description": "Shows what a taint would evict before it is set, explains why a pod has to leave\n" +
				"or stays, follows evictions, and checks manifests against policies of Tollgate.\n",
			"platforms": platforms,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encode manifest for krew: %w", err)
	}
	return content, nil
}
