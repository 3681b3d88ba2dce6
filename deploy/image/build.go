package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// program is Tollgate, built for a platform.
type program struct {
	// os and architecture are as the go command calls them.
	os, architecture string
	content, license []byte
	info             *debug.BuildInfo
	// revision is the commit, and committed its time.
	revision  string
	committed time.Time
}

// version is the tag of the commit, without a tag a pseudo-version, and ends in +dirty
// where there were changes besides.
func (p *program) version() string { return p.info.Main.Version }

// build builds Tollgate for each platform, such as linux/amd64. Nothing of the environment that
// changes the program gets to the go command, but for the version of Go. With the tag, gRPC has no
// pages for debugging: their templates would keep the linker from removing unused methods.
func build(ctx context.Context, root string, platforms []string) ([]*program, error) {
	dir, err := os.MkdirTemp("", "tollgate-image-")
	if err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	license, err := os.ReadFile(filepath.Join(root, "LICENSE")) //nolint:gosec // The folder is the caller's.
	if err != nil {
		return nil, fmt.Errorf("read license: %w", err)
	}
	programs := make([]*program, 0, len(platforms))
	for _, platform := range platforms {
		goos, goarch, ok := strings.Cut(platform, "/")
		if !ok {
			return nil, fmt.Errorf("platform %q is not of the form os/architecture", platform)
		}
		path := filepath.Join(dir, goos+"-"+goarch)
		cmd := exec.CommandContext(ctx, "go", "build", //nolint:gosec // The arguments are those of who builds.
			"-trimpath", "-buildvcs=true", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", path, "./cmd/tollgate")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off",
			"GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
		if said, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build for %s/%s: %w\n%s", goos, goarch, err, said)
		}
		p, err := read(path)
		if err != nil {
			return nil, err
		}
		p.os, p.architecture, p.license = goos, goarch, license
		programs = append(programs, p)
	}
	return programs, nil
}

// read reads a program, and what the go command wrote into it.
func read(path string) (*program, error) {
	content, err := os.ReadFile(path) //nolint:gosec // It was just built.
	if err != nil {
		return nil, fmt.Errorf("read program: %w", err)
	}
	p := &program{content: content}
	if p.info, err = buildinfo.Read(bytes.NewReader(content)); err != nil {
		return nil, fmt.Errorf("read build information of %s: %w", path, err)
	}
	for _, setting := range p.info.Settings {
		switch setting.Key {
		case "vcs.revision":
			p.revision = setting.Value
		case "vcs.time":
			if p.committed, err = time.Parse(time.RFC3339, setting.Value); err != nil {
				return nil, fmt.Errorf("read time of the commit: %w", err)
			}
		}
	}
	if p.revision == "" || p.committed.IsZero() {
		return nil, fmt.Errorf("program says commit %q of %s: build from a git repository", p.revision, p.committed)
	}
	return p, nil
}
