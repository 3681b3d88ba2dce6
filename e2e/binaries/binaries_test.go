package binaries

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRootIsFoundFromBelow(t *testing.T) {
	t.Parallel()
	root, err := Root(".")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "e2e", "binaries", "binaries.go"))

	_, err = Root(t.TempDir())
	require.ErrorContains(t, err, "no go.mod of "+module)
}

func TestTheVersionIsThatOfTheModules(t *testing.T) {
	t.Parallel()
	root, err := Root(".")
	require.NoError(t, err)
	for _, module := range []string{"e2e", "scheduler"} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
			cmd.Dir = filepath.Join(root, module)
			out, err := cmd.Output()
			require.NoError(t, err)
			require.Equal(t, KubernetesVersion, strings.TrimSpace(string(out)))
		})
	}
}

func TestEveryOlderVersionHasAGoModOfItsOwn(t *testing.T) {
	t.Parallel()
	root, err := Root(".")
	require.NoError(t, err)
	require.Equal(t, KubernetesVersion, Versions()[0])
	for _, version := range Versions()[1:] {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			modFile := Binaries{Root: root}.ModFile(version)
			cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-modfile="+modFile, "-f", "{{.Version}}", "k8s.io/kubernetes")
			cmd.Dir = filepath.Join(root, "e2e")
			out, err := cmd.Output()
			require.NoError(t, err)
			require.Equal(t, version, strings.TrimSpace(string(out)))
		})
	}
}

func TestAVersionIsAskedForWithOrWithoutItsV(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{"": KubernetesVersion, "1.36.3": "v1.36.3", "v1.36.3": "v1.36.3"} {
		version, err := Version(asked)
		require.NoError(t, err)
		require.Equal(t, want, version, "asked for %q", asked)
	}
	_, err := Version("1.36")
	require.EqualError(t, err, `version "1.36" of Kubernetes is none of v1.37.1, v1.36.3, v1.35.4, v1.34.4`)
}

func TestOlderVersionsLieBesideTheNewest(t *testing.T) {
	t.Parallel()
	newest, older := Binaries{Root: "/r"}, Binaries{Root: "/r", Kubernetes: "v1.36.3"}
	require.Equal(t, "/r/bin/controlplane", newest.ControlPlane())
	require.Equal(t, "/r/bin/v1.36.3/controlplane", older.ControlPlane())
	require.Equal(t, "/r/bin/v1.36.3/kubectl", older.Kubectl())
	require.Equal(t, newest.Tollgate(), older.Tollgate())
	require.Equal(t, newest.Scheduler(), older.Scheduler())
}

// The linker keeps every exported method of every type of a program that can look up a method by
// its name, which text/template does: the server would be half as large again.
func TestTheServerExecutesNoTemplates(t *testing.T) {
	t.Parallel()
	root, err := Root(".")
	require.NoError(t, err)
	programs := Binaries{Root: root}
	require.NoError(t, programs.BuildTollgate(t.Context()))
	out, err := exec.CommandContext(t.Context(), "go", "tool", "nm", programs.Tollgate()).Output()
	require.NoError(t, err)
	symbols := string(out)
	require.Contains(t, symbols, "github.com/tollgate-dev/tollgate/cmd/tollgate/internal/app.NewCommand")
	require.NotContains(t, symbols, "text/template.(*Template).Execute")
	require.NotContains(t, symbols, "html/template.(*Template).Execute")
}

func TestTheSchedulerReportsTheVersionOfKubernetes(t *testing.T) {
	t.Parallel()
	root, err := Root(".")
	require.NoError(t, err)
	programs := Binaries{Root: root}
	require.NoError(t, programs.BuildScheduler(t.Context()))
	out, err := exec.CommandContext(t.Context(), programs.Scheduler(), "--version").CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "Kubernetes "+KubernetesVersion+"\n", string(out))
}

func TestEveryComponentAnswersByItsNameAndByItsLink(t *testing.T) {
	t.Parallel()
	root, err := Root(".")
	require.NoError(t, err)
	programs := Binaries{Root: root}
	require.NoError(t, programs.BuildControlPlane(t.Context()))

	tests := map[string]struct{ program, want string }{
		"etcd":                    {filepath.Join(programs.Envtest(), "etcd"), "etcd Version: 3.7."},
		"kube-apiserver":          {filepath.Join(programs.Envtest(), "kube-apiserver"), "Kubernetes " + KubernetesVersion},
		"kube-controller-manager": {"", "Kubernetes " + KubernetesVersion},
		"kube-scheduler":          {"", "Kubernetes " + KubernetesVersion},
		"kwok":                    {"", "kwok version v0.8.0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), programs.ControlPlane(), name, "--version").CombinedOutput()
			require.NoError(t, err)
			require.Contains(t, string(out), test.want)
			if test.program != "" {
				out, err = exec.CommandContext(t.Context(), test.program, "--version").CombinedOutput()
				require.NoError(t, err)
				require.Contains(t, string(out), test.want)
			}
		})
	}
	t.Run("kubectl", func(t *testing.T) {
		t.Parallel()
		out, err := exec.CommandContext(t.Context(), programs.Kubectl(), "version", "--client").CombinedOutput()
		require.NoError(t, err)
		require.Contains(t, string(out), "Client Version: "+KubernetesVersion)
	})
	t.Run("any other name is told which there are", func(t *testing.T) {
		t.Parallel()
		out, err := exec.CommandContext(t.Context(), programs.ControlPlane(), "kubelet").CombinedOutput()
		require.ErrorContains(t, err, "exit status 2")
		require.Contains(t, string(out), "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok")
	})
}

func TestABuildThatFailsSaysWhyAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module broken\n\ngo 1.26.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { nonsense() }\n"), 0o600))

	err := Binaries{Root: dir}.goBuild(t.Context(), dir, filepath.Join(dir, "out"), ".")
	require.ErrorContains(t, err, "build . in "+dir+": exit status 1\n")
	require.ErrorContains(t, err, "undefined: nonsense")
}

func TestWhatTheGoCommandPrintsIsToldApart(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 8)
	for _, line := range []string{
		"go: downloading k8s.io/api v0.37.1",
		"internal/abi",
		"k8s.io/kubernetes/cmd/kube-apiserver/app",
		"# k8s.io/broken",
		"broken.go:3:15: undefined: nonsense",
		"",
	} {
		lines <- line
	}
	close(lines)
	require.Equal(t, "# k8s.io/broken\nbroken.go:3:15: undefined: nonsense\n\n", Binaries{}.follow(lines))
}
