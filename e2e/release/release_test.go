package release

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/kubelet"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

// password protects the key that the test signs with.
const password = "COSIGN_PASSWORD=release"

// published is a release, in a registry and on a web server of this machine.
type published struct {
	version, registry, downloads string
	// folder has the files of the release, and is what the web server serves.
	folder, publicKey string
}

func TestTollgateIsInstalledFromWhatWasPublishedAlone(t *testing.T) {
	registry := startRegistry(t)
	folder := filepath.Join(t.TempDir(), "dist")
	p := &published{registry: registry + "/tollgate-dev", folder: folder}
	files := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.StripPrefix("/"+p.version+"/", http.FileServer(http.Dir(folder))).ServeHTTP(w, r)
	}))
	t.Cleanup(files.Close)
	p.downloads = files.URL
	keys := t.TempDir()
	command(t, keys, []string{password}, tools["TOLLGATE_COSIGN"], "generate-key-pair")
	p.publicKey = filepath.Join(keys, "cosign.pub")

	checkout, version := tagged(t)
	p.version = version
	build(t, checkout, p, folder, "--publish", "--key", filepath.Join(keys, "cosign.key"))

	t.Run("the same commit gives the same files elsewhere", func(t *testing.T) {
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		command(t, "", nil, "git", "clone", "--quiet", "--no-hardlinks", checkout, elsewhere)
		again := filepath.Join(t.TempDir(), "dist")
		build(t, elsewhere, p, again)
		require.Equal(t, read(t, folder, "checksums.txt"), read(t, again, "checksums.txt"))
	})
	t.Run("the bill of materials of the platform is attested", func(t *testing.T) { attested(t, p) })
	t.Run("it is installed, used and uninstalled in each way", func(t *testing.T) {
		runsPulledImage(t, p)
		script(t, p, t.TempDir())
	})
	t.Run("a file that was changed is noticed", func(t *testing.T) {
		install := filepath.Join(folder, "install.yaml")
		require.NoError(t, os.WriteFile(install, []byte("changed\n"), 0o600))
		out, err := scripted(t, p, t.TempDir(), "verify").CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "install.yaml: FAILED")
	})
	t.Run("checksums that were changed are noticed", func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "checksums.txt"), []byte("changed\n"), 0o600))
		out, err := scripted(t, p, t.TempDir(), "verify").CombinedOutput()
		require.Error(t, err)
		require.NotContains(t, string(out), "verifying the signatures of the image", "nothing is downloaded that the signature does not cover")
	})
}

// command runs a program, which has to succeed, and returns what it prints.
func command(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "%s %s: %s%s", program, strings.Join(args, " "), out, said.String())
	return string(out)
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(content)
}

// startRegistry starts a registry, and returns its address.
func startRegistry(t *testing.T) string {
	t.Helper()
	ports, err := controlplane.FreePorts(t.Context(), 1)
	require.NoError(t, err)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	p, err := process.Start(process.Spec{
		Name: "registry", Path: tools["TOLLGATE_CRANE"], Args: []string{"registry", "serve", "--address", address, "--disk", t.TempDir()},
		Log: shared.LogPath("registry"),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill(context.WithoutCancel(t.Context()))) })
	require.NoError(t, controlplane.WaitReady(t.Context(), p, http.DefaultClient, "http://"+address+"/v2/"))
	return address
}

// tagged clones the commit of this checkout, releases it in the changelog unless that was done, and tags it. It returns the
// clone and the version, which is that of the manifests.
func tagged(t *testing.T) (checkout, version string) {
	t.Helper()
	checkout = filepath.Join(t.TempDir(), "tollgate")
	command(t, "", nil, "git", "clone", "--quiet", "--no-hardlinks", programs.Root, checkout)
	found := regexp.MustCompile(`newTag: (v[0-9.]+)`).FindStringSubmatch(read(t, checkout, "deploy/base/kustomization.yaml"))
	require.NotNil(t, found)
	version = found[1]
	changelog := read(t, checkout, "CHANGELOG.md")
	if !strings.Contains(changelog, "\n## "+version+" - ") {
		changelog = strings.Replace(changelog, "\n## Unreleased\n", "\n## "+version+" - 2026-12-01\n", 1)
		require.NoError(t, os.WriteFile(filepath.Join(checkout, "CHANGELOG.md"), []byte(changelog), 0o600))
		identity := []string{"-c", "user.name=release", "-c", "user.email=release@example.com"}
		command(t, checkout, nil, "git", append(identity, "commit", "--quiet", "--all", "--message", "Release "+version)...)
	}
	command(t, checkout, nil, "git", "tag", "--force", version)
	return checkout, version
}

// build builds the release as make release does, for this platform alone, and shows how far it is.
func build(t *testing.T, checkout string, p *published, folder string, args ...string) {
	t.Helper()
	args = append([]string{
		"run", ".", "--root", checkout, "--output", folder, "--version", p.version, "--registry", p.registry, "--downloads", p.downloads,
		"--helm", tools["TOLLGATE_HELM"], "--kustomize", tools["TOLLGATE_KUSTOMIZE"], "--cosign", tools["TOLLGATE_COSIGN"],
		"--image-platforms", "linux/" + runtime.GOARCH, "--plugin-platforms", runtime.GOOS + "/" + runtime.GOARCH,
	}, args...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = filepath.Join(checkout, "deploy", "release"), append(os.Environ(), password)
	shown(t, cmd)
}

// shown runs a command, which has to succeed, and shows what it prints as it does.
func shown(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		t.Log(lines.Text())
	}
	require.NoError(t, cmd.Wait())
}

// attested verifies that the image of this platform has a signed bill of materials.
func attested(t *testing.T, p *published) {
	t.Helper()
	digest := strings.TrimSpace(command(t, "", nil, tools["TOLLGATE_CRANE"], "digest", "--platform", "linux/"+runtime.GOARCH, p.registry+"/tollgate:"+p.version))
	out := command(t, "", nil, tools["TOLLGATE_COSIGN"], "verify-attestation", "--key", p.publicKey, "--insecure-ignore-tlog=true", "--allow-http-registry",
		"--type", "spdxjson", p.registry+"/tollgate@"+digest)
	require.Contains(t, out, `"payloadType"`)
	require.Contains(t, read(t, p.folder, "tollgate-linux-"+runtime.GOARCH+".spdx.json"), "pkg:golang/k8s.io/client-go@")
}

// runsPulledImage starts kubelets that run the program of the image in the registry.
func runsPulledImage(t *testing.T, p *published) {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(dir, "image.tar")
	command(t, "", nil, tools["TOLLGATE_CRANE"], "export", "--platform", "linux/"+runtime.GOARCH, p.registry+"/tollgate:"+p.version, archive)
	command(t, "", nil, "tar", "-xf", archive, "-C", dir)
	runs, err := kubelet.Start(context.WithoutCancel(t.Context()), kubelet.Options{
		Config: shared.RESTConfig(), Selector: selector,
		Images: map[string]kubelet.Image{p.registry + "/tollgate": {Program: filepath.Join(dir, "usr/local/bin/tollgate"), Kubeconfig: true}},
		Dir:    pods, Logs: filepath.Join(shared.Dir(), "logs", "pods"),
	})
	require.NoError(t, err)
	t.Cleanup(runs.Stop)
}

// script runs from-artifacts.sh in a folder, which is to be empty.
func script(t *testing.T, p *published, folder string) {
	t.Helper()
	shown(t, scripted(t, p, folder))
}

// scripted returns the command that runs the script, with the programs that it needs and no others of this repository.
func scripted(t *testing.T, p *published, folder string, steps ...string) *exec.Cmd {
	t.Helper()
	bin, home := t.TempDir(), t.TempDir()
	for name, program := range map[string]string{"kubectl": programs.Kubectl(), "helm": tools["TOLLGATE_HELM"], "cosign": tools["TOLLGATE_COSIGN"]} {
		require.NoError(t, os.Symlink(program, filepath.Join(bin, name)))
	}
	path, err := filepath.Abs("from-artifacts.sh")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{path}, steps...)...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(),
		"PATH="+bin+":"+os.Getenv("PATH"), "HOME="+home, "KUBECONFIG="+shared.Kubeconfig(), "KUBERC=off",
		"HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home,
		"VERSION="+p.version, "REGISTRY="+p.registry, "DOWNLOADS="+p.downloads, "PUBLIC_KEY="+p.publicKey,
		"NODE="+controlplane.NodeName(1))
	return cmd
}
