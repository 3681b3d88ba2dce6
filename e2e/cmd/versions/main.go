package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := write(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "versions: %v\n", err)
		return 1
	}
	return 0
}

// write writes the files of all versions but the newest, which go.mod is.
func write(ctx context.Context) error {
	root, err := binaries.Root(".")
	if err != nil {
		return err
	}
	for _, version := range binaries.Versions()[1:] {
		if err := writeVersion(ctx, binaries.Binaries{Root: root}, version); err != nil {
			return fmt.Errorf("write go.mod for Kubernetes %s: %w", version, err)
		}
	}
	return nil
}

// besides returns what cmd/controlplane requires beside what a version of Kubernetes does.
// Since 0.8.0 kwok needs k8s.io/cri-streaming, which there is since Kubernetes 1.36, and 0.7.0
// names a constant that k8s.io/apimachinery lost in 0.34. The easycel that 0.6.1 asks for is
// older than the CEL of Kubernetes 1.34, whose pflag is older than what is called of it.
func besides(kubernetes string) map[string]string {
	if strings.HasPrefix(kubernetes, "v1.34.") || strings.HasPrefix(kubernetes, "v1.35.") {
		return map[string]string{
			"sigs.k8s.io/kwok":             "v0.6.1",
			"github.com/wzshiming/easycel": "v0.6.0",
			"github.com/spf13/pflag":       "v1.0.9",
		}
	}
	return map[string]string{"sigs.k8s.io/kwok": "v0.8.0"}
}

func writeVersion(ctx context.Context, programs binaries.Binaries, version string) error {
	var downloaded struct{ GoMod string }
	if err := goJSON(ctx, "", &downloaded, "mod", "download", "-json", "k8s.io/kubernetes@"+version); err != nil {
		return err
	}
	var published module
	if err := goJSON(ctx, "", &published, "mod", "edit", "-json", downloaded.GoMod); err != nil {
		return err
	}
	path := programs.ModFile(version)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	if err := os.WriteFile(path, []byte(render(&published, version)), 0o600); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := os.RemoveAll(strings.TrimSuffix(path, ".mod") + ".sum"); err != nil {
		return fmt.Errorf("remove old checksums: %w", err)
	}
	// Kubernetes does not name what kwok and etcd need besides; the go command adds it, and
	// the checksums.
	for _, args := range [][]string{
		{"mod", "edit", "-fmt", path},
		{"list", "-mod=mod", "-modfile=" + path, "-deps", "./cmd/controlplane"},
	} {
		if _, err := goCommand(ctx, filepath.Join(programs.Root, "e2e"), args...); err != nil {
			return err
		}
	}
	return nil
}

// module is what is read of a go.mod, as "go mod edit -json" prints it.
type module struct {
	Godebug []struct{ Key, Value string }
	Require []struct{ Path, Version string }
	Replace []struct{ Old, New struct{ Path string } }
}

// render writes the go.mod of e2e for a version of Kubernetes.
func render(kubernetes *module, version string) string {
	// The modules of its own repository have 0 where Kubernetes has 1.
	staged := "v0." + strings.TrimPrefix(version, "v1.")
	staging := map[string]bool{}
	var replaced strings.Builder
	for _, r := range kubernetes.Replace {
		if strings.HasPrefix(r.New.Path, "./staging/") {
			staging[r.Old.Path] = true
			fmt.Fprintf(&replaced, "\t%s => %[1]s %s\n", r.Old.Path, staged)
		}
	}
	var b strings.Builder
	b.WriteString("// Written by make versions.\n\nmodule github.com/tollgate-dev/tollgate/e2e\n\ngo 1.26.0\n\n")
	for _, setting := range kubernetes.Godebug {
		fmt.Fprintf(&b, "godebug %s=%s\n\n", setting.Key, setting.Value)
	}
	fmt.Fprintf(&b, "require (\n\tk8s.io/kubernetes %s\n", version)
	required := besides(version)
	for _, path := range slices.Sorted(maps.Keys(required)) {
		fmt.Fprintf(&b, "\t%s %s\n", path, required[path])
	}
	for _, r := range kubernetes.Require {
		if staging[r.Path] {
			r.Version = staged
		}
		fmt.Fprintf(&b, "\t%s %s\n", r.Path, r.Version)
	}
	fmt.Fprintf(&b, ")\n\nreplace (\n%s)\n", replaced.String())
	return b.String()
}

func goJSON(ctx context.Context, dir string, into any, args ...string) error {
	out, err := goCommand(ctx, dir, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("decode output of go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // The arguments are this program's own.
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
