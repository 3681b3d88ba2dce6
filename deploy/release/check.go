package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// check refuses what cannot be released, and reads what the release says about its commit.
func (r *release) check(ctx context.Context) error {
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version {
		return fmt.Errorf("--version %q is no version of Semantic Versioning with a v before it, such as v0.1.0 or v0.2.0-rc.1", r.version)
	}
	changes, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("the work tree has changes that are not committed: commit or remove them\n%s", changes)
	}
	tags, err := r.git(ctx, "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	if !slices.Contains(strings.Fields(tags), r.version) {
		return fmt.Errorf("HEAD does not have the tag %s (its tags: %q): check out the tag, or set it with git tag", r.version, strings.Fields(tags))
	}
	head, err := r.git(ctx, "show", "--no-patch", "--format=%H %cI", "HEAD")
	if err != nil {
		return err
	}
	commit, committed, _ := strings.Cut(head, " ")
	r.commit = commit
	if r.committed, err = time.Parse(time.RFC3339, committed); err != nil {
		return fmt.Errorf("read time of the commit: %w", err)
	}
	if err := r.checkManifests(); err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return fmt.Errorf("read changelog: %w", err)
	}
	r.notes, err = notes(string(changelog), r.version)
	return err
}

// checkManifests compares the version with the tag of the image in the manifests, which people
// apply from the tag of the repository.
func (r *release) checkManifests() error {
	const file = "deploy/base/kustomization.yaml"
	content, err := os.ReadFile(filepath.Join(r.root, file))
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	var kustomization struct {
		Images []struct {
			NewTag string `json:"newTag"`
		} `json:"images"`
	}
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		return fmt.Errorf("decode %s: %w", file, err)
	}
	for _, image := range kustomization.Images {
		if image.NewTag != r.version {
			return fmt.Errorf("%s: images[].newTag is %q, and would have to be %s: write the version into the manifests and docs, see docs/release.md", file, image.NewTag, r.version)
		}
	}
	return nil
}

// git runs git in the repository, and returns what it prints without the space around it.
func (r *release) git(ctx context.Context, args ...string) (string, error) {
	out, err := r.print(ctx, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}

// print runs a program in the repository and returns what it prints. An error has what it says.
func (r *release) print(ctx context.Context, env []string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // The programs are those of who releases.
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w\n%s%s", strings.Join(append([]string{filepath.Base(program)}, args...), " "), err, out, said.String())
	}
	return out, nil
}

// command runs a command that may have arguments of its own, such as "go run ...".
func (r *release) command(ctx context.Context, command string, args ...string) ([]byte, error) {
	fields := strings.Fields(command)
	if len(fields) == 0 {
		return nil, fmt.Errorf("the command to run with %q is empty", args)
	}
	return r.print(ctx, nil, fields[0], append(fields[1:], args...)...)
}
