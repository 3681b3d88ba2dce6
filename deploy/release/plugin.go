package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// buildPlugins builds an archive with the plugin for each platform, and the manifest for krew.
func (r *release) buildPlugins(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("read license: %w", err)
	}
	dir, err := os.MkdirTemp("", "tollgate-plugin-")
	if err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var built []plugin
	for _, platform := range r.plugins {
		p, err := pluginFor(platform, r.version)
		if err != nil {
			return err
		}
		r.step("building %s (the first time takes a few minutes)", p.archive)
		path := filepath.Join(dir, p.archive+"-"+p.program)
		if err := r.compile(ctx, p, path); err != nil {
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
	p := plugin{os: goos, architecture: goarch, program: "kubectl-tollgate"}
	p.archive = "kubectl-tollgate-" + version + "-" + goos + "-" + goarch + ".tar.gz"
	if goos == "windows" {
		p.program += ".exe"
		p.archive = strings.TrimSuffix(p.archive, "tar.gz") + "zip"
	}
	return p, nil
}

// compile runs the go command. Nothing of the environment that changes the program gets
// through, but for the version of Go.
func (r *release) compile(ctx context.Context, p plugin, output string) error {
	env := []string{
		"GOOS=" + p.os, "GOARCH=" + p.architecture, "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off",
	}
	_, err := r.print(ctx, r.root, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", output, "./cmd/kubectl-tollgate")
	return err
}

// pack makes the archive that is common on the platform.
func (p plugin) pack(files []file, at time.Time) ([]byte, error) {
	if p.os == "windows" {
		return zipped(files, at)
	}
	return tarred(files, at)
}

func tarred(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at.UTC(), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end archive: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("end archive: %w", err)
	}
	return out.Bytes(), nil
}

func zipped(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at.UTC()}
		header.SetMode(os.FileMode(f.mode)) //nolint:gosec // Modes are small.
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := entry.Write(f.content); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end archive: %w", err)
	}
	return out.Bytes(), nil
}

// sum is the SHA-256 as sha256sum prints it.
func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

// krewPlugin is the manifest of a plugin, as https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
// describes it.
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// krewManifest is the manifest by which krew installs the plugin.
func krewManifest(version, downloads string, plugins []plugin) ([]byte, error) {
	manifest := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   map[string]string{"name": "tollgate"},
		Spec: krewSpec{
			Version:          version,
			Homepage:         "https://github.com/tollgate-dev/tollgate",
			ShortDescription: "Preview, explain and watch evictions by taints",
			Description: "Shows what a taint would evict before it is set, explains why a pod has to leave\n" +
				"or stays, follows evictions, and checks manifests against policies of Tollgate.\n",
		},
	}
	for _, p := range plugins {
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": p.os, "arch": p.architecture}},
			URI:      downloads + "/" + version + "/" + p.archive, SHA256: p.sum, Bin: p.program,
		})
	}
	content, err := yaml.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("encode manifest for krew: %w", err)
	}
	return content, nil
}
