package binaries

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// KubernetesVersion is what the components report unless another version is asked for.
// It is the version of the k8s.io/kubernetes module in go.mod, which a test holds it to.
const KubernetesVersion = "v1.37.1"

// VersionVariable is the environment variable by which the tests are given another
// version of Kubernetes, such as 1.36.3.
const VersionVariable = "TOLLGATE_K8S"

// BuiltVariable is the environment variable that spares the tests the builds, after
// "cluster build --programs"; see Binaries.Built.
const BuiltVariable = "TOLLGATE_BUILT"

// Versions returns the versions of Kubernetes that a control plane can be built of, the
// newest first. All but KubernetesVersion have a go.mod of their own, see ModFile.
func Versions() []string { return []string{KubernetesVersion, "v1.36.3", "v1.35.4", "v1.34.4"} }

// Version returns the one of Versions that is asked for, with or without its v; nothing
// asks for KubernetesVersion.
func Version(asked string) (string, error) {
	version := "v" + strings.TrimPrefix(asked, "v")
	switch {
	case asked == "":
		return KubernetesVersion, nil
	case !slices.Contains(Versions(), version):
		return "", fmt.Errorf("version %q of Kubernetes is none of %s", asked, strings.Join(Versions(), ", "))
	}
	return version, nil
}

// ModFile is the go.mod from which a version of Kubernetes is built, for the go command's
// -modfile. KubernetesVersion has none of its own: it is built from that of e2e.
func (b Binaries) ModFile(version string) string {
	return filepath.Join(b.Root, "e2e", "versions", strings.TrimPrefix(version, "v")+".mod")
}

// kubernetes is the version to build.
func (b Binaries) kubernetes() string {
	if b.Kubernetes == "" {
		return KubernetesVersion
	}
	return b.Kubernetes
}

// dir is where the control plane goes: those of other versions lie beside each other.
func (b Binaries) dir() string {
	if b.kubernetes() == KubernetesVersion {
		return filepath.Join(b.Root, "bin")
	}
	return filepath.Join(b.Root, "bin", b.kubernetes())
}

// buildFlags are the flags of the go command by which a version is built.
func (b Binaries) buildFlags() []string {
	flags := []string{linkedAsKubernetes(b.kubernetes())}
	if b.kubernetes() != KubernetesVersion {
		flags = append(flags, "-modfile="+b.ModFile(b.kubernetes()))
	}
	return flags
}

// linkedAsKubernetes is the flag by which a component reports the version that it is
// made from.
func linkedAsKubernetes(kubernetes string) string {
	const version = "k8s.io/component-base/version."
	major, minor, _ := strings.Cut(strings.TrimPrefix(kubernetes, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	return "-ldflags=" + strings.Join([]string{
		"-s", "-w",
		"-X", version + "gitVersion=" + kubernetes,
		"-X", version + "gitMajor=" + major,
		"-X", version + "gitMinor=" + minor,
		"-X", version + "gitTreeState=clean",
	}, " ")
}
