package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"
)

// confine runs a program with a folder as its root that it cannot write to, as the user of
// the image. No new privileges can be had, and with the user the last capabilities go.
// Its arguments are the folder, and the program with its own. Mounts are those of a
// namespace of its own, and end with it.
const confine = `set -eu
root=$1; shift
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs --bounding-set=-all,+setuid,+setgid,+sys_chroot \
	chroot --userspec=65532:65532 --groups= "$root" "$@"`

// unpack writes the files of an image below a folder, all of them for everybody to read.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	to := t.TempDir()
	reader := tar.NewReader(mutate.Extract(image))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return to
		}
		require.NoError(t, err)
		path := filepath.Join(to, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.MkdirAll(path, 0o755))
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(header.Linkname, path))
		default:
			content, err := io.ReadAll(reader)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, content, header.FileInfo().Mode()))
		}
	}
}

// native is the program and the image for the machine that this is.
func native(t *testing.T) (*program, v1.Image) {
	t.Helper()
	for i, image := range images(t) {
		if p := shared.programs[i]; p.os == runtime.GOOS && p.architecture == runtime.GOARCH {
			return p, image
		}
	}
	t.Skipf("no image for %s/%s was asked for", runtime.GOOS, runtime.GOARCH)
	return nil, nil
}

func TestTheProgramRunsFromTheImage(t *testing.T) {
	t.Parallel()
	p, image := native(t)
	root := unpack(t, image)
	help, err := exec.CommandContext(t.Context(), filepath.Join(root, programPath), "serve", "--help").CombinedOutput()
	require.NoError(t, err, "%s", help)
	require.Contains(t, string(help), "  tollgate serve [flags]\n")
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, programPath), "--version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, p.version()+"\ncommit "+p.revision+"\n"+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n", string(out))
}

// confined returns what runs a program as a pod with a restricted security context would.
func confined(t *testing.T, root string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting and changing the user take root")
	}
	args = append([]string{"--mount", "sh", "-c", confine, "sh", root}, args...)
	return exec.CommandContext(t.Context(), "unshare", args...)
}

func TestTheProgramRunsAsNobodyOnAReadOnlyRootL08(t *testing.T) {
	t.Parallel()
	p, image := native(t)
	root := unpack(t, image)
	out, err := confined(t, root, "/"+programPath, "--version").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "commit "+p.revision)

	_, err = confined(t, root, "/bin/sh", "-c", "true").CombinedOutput()
	require.Error(t, err, "there is no shell")
}

// kubeconfig is for an API server that is not there.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none}}]
current-context: none
`

func TestTollgateStartsAsNobodyOnAReadOnlyRootL08(t *testing.T) {
	t.Parallel()
	_, image := native(t)
	root := unpack(t, image)
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc", "kubeconfig"), []byte(kubeconfig), 0o644))
	cmd := confined(t, root, "/"+programPath, "serve", "--kubeconfig=/etc/kubeconfig")
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = writer, writer
	require.NoError(t, cmd.Start())
	require.NoError(t, writer.Close())
	var said strings.Builder
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "waiting for the API server") {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	require.Error(t, cmd.Wait(), "the API server never answered")
	require.Contains(t, said.String(), "waiting for the API server", "it got as far as it can without one")
	require.Contains(t, said.String(), "connection refused")
}
