package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tollgate-dev/tollgate/e2e/filelock"
)

// module is the module at the root of the repository.
const module = "github.com/tollgate-dev/tollgate"

// Root finds the root of the repository from a directory inside it.
func Root(from string) (string, error) {
	dir, err := filepath.Abs(from)
	if err != nil {
		return "", fmt.Errorf("resolve directory %s: %w", from, err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod")) //nolint:gosec // It looks upwards from where the caller says.
		if err == nil && bytes.HasPrefix(content, []byte("module "+module+"\n")) {
			return dir, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find root of repository: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find root of repository: no go.mod of %s in or above %s", module, from)
		}
		dir = filepath.Dir(dir)
	}
}

// Binaries knows where the programs are, and builds them there.
type Binaries struct {
	// Root is the root of the repository.
	Root string
	// Kubernetes is the version of the control plane, one of Versions. Empty is
	// KubernetesVersion.
	Kubernetes string
	// Built says that the control plane, Tollgate and the plugin are up to date, so that
	// the go command is not asked again.
	Built bool
	// Progress is told what is being built, now and then. It may be nil.
	Progress func(step string)
}

// ControlPlane is every component of the control plane, and kubectl.
func (b Binaries) ControlPlane() string { return filepath.Join(b.dir(), "controlplane") }

// Kubectl is the same program by its own name.
func (b Binaries) Kubectl() string { return filepath.Join(b.dir(), "kubectl") }

// Tollgate is the server of this repository.
func (b Binaries) Tollgate() string { return filepath.Join(b.Root, "bin", "tollgate") }

// Plugin is kubectl-tollgate, the commands that people type.
func (b Binaries) Plugin() string { return filepath.Join(b.Root, "bin", "kubectl-tollgate") }

// Scheduler is the kube-scheduler of this repository, which obeys ResourceSlicePatches.
// It is of KubernetesVersion whatever the control plane is.
func (b Binaries) Scheduler() string { return filepath.Join(b.Root, "bin", "kube-scheduler") }

// Conformance is the program of Kubernetes' own end-to-end specs, of KubernetesVersion.
func (b Binaries) Conformance() string { return filepath.Join(b.Root, "bin", "e2e.test") }

// Ginkgo is the program that runs those specs, several at once.
func (b Binaries) Ginkgo() string { return filepath.Join(b.Root, "bin", "ginkgo") }

// Envtest is the directory to give as envtest's BinaryAssetsDirectory.
func (b Binaries) Envtest() string { return filepath.Join(b.dir(), "envtest") }

// BuildControlPlane builds the control plane, and makes the symlinks.
func (b Binaries) BuildControlPlane(ctx context.Context) error {
	if b.Built {
		return nil
	}
	return b.locked(ctx, func() error {
		err := b.goBuild(ctx, filepath.Join(b.Root, "e2e"), b.ControlPlane(), "./cmd/controlplane", b.buildFlags()...)
		if err != nil {
			return err
		}
		return b.link()
	})
}

// BuildTollgate builds the server, with the tag of the image.
func (b Binaries) BuildTollgate(ctx context.Context) error {
	if b.Built {
		return nil
	}
	return b.locked(ctx, func() error {
		return b.goBuild(ctx, b.Root, b.Tollgate(), "./cmd/tollgate", "-tags=grpcnotrace")
	})
}

// BuildPlugin builds kubectl-tollgate.
func (b Binaries) BuildPlugin(ctx context.Context) error {
	if b.Built {
		return nil
	}
	return b.locked(ctx, func() error {
		return b.goBuild(ctx, b.Root, b.Plugin(), "./cmd/kubectl-tollgate")
	})
}

// BuildScheduler builds the scheduler. Its module is one of its own, and has the same
// version of Kubernetes in it.
func (b Binaries) BuildScheduler(ctx context.Context) error {
	return b.locked(ctx, func() error {
		return b.goBuild(ctx, filepath.Join(b.Root, "scheduler"), b.Scheduler(), "./cmd/kube-scheduler", linkedAsKubernetes(KubernetesVersion))
	})
}

// BuildConformance builds the program of Kubernetes' own end-to-end specs, unchanged, and Ginkgo,
// from the versions of e2e. The go.mod of e2e names them all and lacks only some checksums, which
// "go mod tidy" would remove again: they are added to a copy.
func (b Binaries) BuildConformance(ctx context.Context) error {
	e2e, copied := filepath.Join(b.Root, "e2e"), filepath.Join(b.Root, "bin", "conformance")
	return b.locked(ctx, func() error {
		for _, ending := range []string{".mod", ".sum"} {
			content, err := os.ReadFile(filepath.Join(e2e, "go"+ending)) //nolint:gosec // It is a file of the repository.
			if err != nil {
				return fmt.Errorf("read versions of e2e: %w", err)
			}
			if err := os.WriteFile(copied+ending, content, 0o600); err != nil { //nolint:gosec // It goes to bin/.
				return fmt.Errorf("copy versions of e2e: %w", err)
			}
		}
		versions := []string{"-mod=mod", "-modfile=" + copied + ".mod", linkedAsKubernetes(KubernetesVersion)}
		specs := append([]string{"test", "-c", "-vet=off", "-o", b.Conformance()}, versions...)
		if err := b.compile(ctx, e2e, "k8s.io/kubernetes/test/e2e", specs); err != nil {
			return err
		}
		return b.goBuild(ctx, e2e, b.Ginkgo(), "github.com/onsi/ginkgo/v2/ginkgo", versions...)
	})
}

// locked calls build while no other program builds into the same bin/: go test
// runs the packages of a module beside each other, and each asks for them.
func (b Binaries) locked(ctx context.Context, build func() error) error {
	release, err := filelock.Acquire(ctx, filepath.Join(b.Root, "bin"))
	if err != nil {
		return err
	}
	defer release()
	return build()
}

// link makes the symlinks through which the control plane goes by the names of
// its components.
func (b Binaries) link() error {
	if err := os.MkdirAll(b.Envtest(), 0o750); err != nil {
		return fmt.Errorf("create directory for envtest: %w", err)
	}
	links := map[string]string{b.Kubectl(): "controlplane"}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		links[filepath.Join(b.Envtest(), name)] = filepath.Join("..", "controlplane")
	}
	for link, target := range links {
		if existing, err := os.Readlink(link); err == nil && existing == target {
			continue
		}
		if err := os.RemoveAll(link); err != nil {
			return fmt.Errorf("replace link: %w", err)
		}
		if err := os.Symlink(target, link); err != nil {
			return fmt.Errorf("link program: %w", err)
		}
	}
	return nil
}
