package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// installed is the overlay that install.yaml is rendered from.
const installed = "deploy/overlays/self-signed"

// buildImage has deploy/image build the image and the bills of materials.
func (r *release) buildImage(ctx context.Context) error {
	r.step("building the image for %s (the first time takes a few minutes)", strings.Join(r.images, " and "))
	sboms := filepath.Join(r.work, "sbom")
	out, err := r.print(ctx, nil, "go", "run", "-C", "deploy/image", ".",
		"--root", r.root, "--output", r.path("image"), "--sbom", sboms, "--platforms", strings.Join(r.images, ","))
	if err != nil {
		return err
	}
	built := strings.TrimSpace(string(out))
	version, digest, ok := strings.Cut(built, "@")
	if !ok || version != r.version {
		return fmt.Errorf("the image says that it is %q, and not %s: is another tag at HEAD?", built, r.version)
	}
	r.digest = digest
	written, err := os.ReadDir(sboms)
	if err != nil {
		return fmt.Errorf("list bills of materials: %w", err)
	}
	for _, entry := range written {
		content, err := os.ReadFile(filepath.Join(sboms, entry.Name())) //nolint:gosec // It was just written.
		if err != nil {
			return fmt.Errorf("read bill of materials: %w", err)
		}
		if err := r.write(entry.Name(), content); err != nil {
			return err
		}
	}
	return nil
}

// buildManifests renders install.yaml.
func (r *release) buildManifests(ctx context.Context) error {
	r.step("rendering install.yaml")
	overlay, err := filepath.Rel(r.work, filepath.Join(r.root, installed))
	if err != nil {
		return fmt.Errorf("find overlay: %w", err)
	}
	kustomization, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources":  []string{filepath.ToSlash(overlay)},
		"images": []map[string]string{{
			"name": "ghcr.io/tollgate-dev/tollgate", "newName": r.image(), "newTag": r.version, "digest": r.digest,
		}},
	})
	if err != nil {
		return fmt.Errorf("encode kustomization: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.work, "kustomization.yaml"), kustomization, 0o600); err != nil {
		return fmt.Errorf("write kustomization: %w", err)
	}
	rendered, err := r.command(ctx, r.kustomize, "build", r.work)
	if err != nil {
		return err
	}
	head := "# Tollgate " + r.version + ", rendered from " + installed + ".\n"
	return r.write("install.yaml", append([]byte(head), rendered...))
}

// archiveManifests archives the manifests of the tag for those who do not fetch them from the repository.
func (r *release) archiveManifests(ctx context.Context) error {
	r.step("archiving the manifests")
	archive, err := r.print(ctx, nil, "git", "archive", "--format=tar", "--prefix=tollgate-"+r.version+"/", "HEAD", "LICENSE",
		"deploy/base", "deploy/components", "deploy/crd", "deploy/defaults", "deploy/monitoring", "deploy/overlays", "deploy/protection",
		"deploy/samples", "deploy/webhooks")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err = w.Write(archive)
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("compress manifests: %w", err)
	}
	return r.write("tollgate-"+r.version+"-manifests.tar.gz", out.Bytes())
}
