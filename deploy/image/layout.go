package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Where things are in the image, and as whom it runs.
const (
	programPath = "usr/local/bin/tollgate"
	licensePath = "usr/share/doc/tollgate/LICENSE"
	user        = "65532:65532"
	source      = "https://github.com/tollgate-dev/tollgate"
)

// write writes an image for all programs into a directory, and returns its digest.
func write(dir string, programs []*program) (string, error) {
	images := make([]mutate.IndexAddendum, 0, len(programs))
	for _, p := range programs {
		image, err := imageOf(p)
		if err != nil {
			return "", err
		}
		images = append(images, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: p.os, Architecture: p.architecture},
		}})
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), images...)
	annotated := mutate.Annotations(index, labels(programs[0])).(v1.ImageIndex) // It returns what it is given.
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("remove what was built before: %w", err)
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", fmt.Errorf("write image layout: %w", err)
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag(programs[0].version())})
	if err := path.AppendIndex(annotated, name); err != nil {
		return "", fmt.Errorf("write image: %w", err)
	}
	digest, err := annotated.Digest()
	if err != nil {
		return "", fmt.Errorf("compute digest: %w", err)
	}
	return digest.String(), nil
}

// tag is what a version is called in a registry, where there is no plus sign.
func tag(version string) string { return strings.ReplaceAll(version, "+", "_") }

// imageOf puts a program into an image of its own.
func imageOf(p *program) (v1.Image, error) {
	files, err := archive(p)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	created := v1.Time{Time: p.committed}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "deploy/image"}})
	if err != nil {
		return nil, fmt.Errorf("add layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.architecture, created
	config.Config = v1.Config{
		User:       user,
		Entrypoint: []string{"/" + programPath},
		Env:        []string{"PATH=/usr/local/bin"},
		WorkingDir: "/",
		Labels:     labels(p),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("set configuration: %w", err)
	}
	return image, nil
}

// labels are those that the OCI image specification names.
func labels(p *program) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "tollgate",
		"org.opencontainers.image.description":   "Decides who may pass a taint, and evicts safely those who may not stay",
		"org.opencontainers.image.source":        source,
		"org.opencontainers.image.documentation": source,
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       p.version(),
		"org.opencontainers.image.revision":      p.revision,
		"org.opencontainers.image.created":       p.committed.UTC().Format(time.RFC3339),
	}
}

// archive is the file system of the image. All of it belongs to root, so that the program
// cannot write over itself.
func archive(p *program) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range []string{
		"usr/", "usr/local/", "usr/local/bin/", "usr/share/", "usr/share/doc/", "usr/share/doc/tollgate/", programPath, licensePath,
	} {
		header := tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: p.committed, Format: tar.FormatUSTAR}
		var content []byte
		switch name {
		case programPath:
			header.Typeflag, content = tar.TypeReg, p.content
		case licensePath:
			header.Typeflag, header.Mode, content = tar.TypeReg, 0o644, p.license
		}
		header.Size = int64(len(content))
		err := w.WriteHeader(&header)
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("end archive: %w", err)
	}
	return out.Bytes(), nil
}
