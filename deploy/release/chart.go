package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// chart is the name of the packaged chart.
func (r *release) chart() string { return "tollgate-" + strings.TrimPrefix(r.version, "v") + ".tgz" }

// buildChart has Helm package the chart with the version of the release. Helm writes the times of files
// into the archive, so they are those of the commit.
func (r *release) buildChart(ctx context.Context) error {
	r.step("packaging the chart")
	copied := filepath.Join(r.work, "tollgate")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(r.root, "deploy", "chart", "tollgate"))); err != nil {
		return fmt.Errorf("copy chart: %w", err)
	}
	root, err := os.OpenRoot(copied)
	if err != nil {
		return fmt.Errorf("open %s: %w", copied, err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return root.Chtimes(path, r.committed, r.committed)
	})
	if err != nil {
		return fmt.Errorf("set times in %s: %w", copied, err)
	}
	_, err = r.command(ctx, r.helm, "package", copied, "--version", strings.TrimPrefix(r.version, "v"), "--app-version", r.version, "--destination", r.output)
	if err != nil {
		return err
	}
	// When the chart is pushed, Helm writes the time of the archive into the manifest.
	if err := os.Chtimes(r.path(r.chart()), r.committed, r.committed); err != nil {
		return fmt.Errorf("set time of the chart: %w", err)
	}
	r.assets = append(r.assets, r.chart())
	return nil
}
