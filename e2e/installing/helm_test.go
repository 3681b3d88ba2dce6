package installing

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const release = "tollgate"

// helm runs helm as an administrator without settings of their own, who sees no error.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	program := filepath.Join(programs.Root, "bin", "helm")
	require.FileExists(t, program, "make helm builds it")
	args = append(args, "--namespace", system, "--kubeconfig", shared.Kubeconfig())
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	home := filepath.Join(shared.Dir(), "tollgate", "helm")
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "helm %s: %s", strings.Join(args, " "), out)
	return string(out)
}

const chartPath = "deploy/chart/tollgate"

// earlierChart returns the chart of the commit before this one. Where there is none, which
// is said, the chart of now stands for it: its pods are replaced all the same.
func earlierChart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := extract(t.Context(), "HEAD~1", dir); err != nil {
		t.Logf("the chart is compared with itself, by another tag of the image: no earlier one is in this checkout: %v", err)
		return filepath.Join(programs.Root, chartPath)
	}
	t.Log("the chart is compared with that of the commit before")
	return filepath.Join(dir, chartPath)
}

// extract writes the chart as it was at the revision.
func extract(ctx context.Context, revision, dir string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", "-C", programs.Root, "archive", "--format=tar", revision, chartPath)
	cmd.Stderr = &said
	archive, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git archive %s: %w: %s", revision, err, bytes.TrimSpace(said.Bytes()))
	}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.Clean("/"+header.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, content, 0o600)); err != nil {
			return err
		}
	}
}

// From webhooks that the chart installs to those that the leader registers, and back.
func TestTollgateIsInstalledUpgradedAndRolledBackByHelm(t *testing.T) {
	earlier, chart := earlierChart(t), filepath.Join(programs.Root, chartPath)
	wait := []string{"--wait", "--timeout", patience.String()}
	t.Cleanup(func() {
		helm(t, "uninstall", release, "--ignore-not-found", "--wait")
		kubectl(t, "delete", "namespace", system, "--ignore-not-found", "--timeout="+patience.String())
	})
	helm(t, "install", release, chart, "--create-namespace")
	nothingIsRefused(t) // while no machine runs its pods, as when their image cannot be pulled
	helm(t, "uninstall", release)
	startKubelets(t)
	helm(t, append([]string{"install", release, earlier, "--create-namespace", "--set", "image.tag=earlier,crds.keep=false,webhooks.registration=Manual"}, wait...)...)
	admits(t)
	works(t)

	clocks := startClocks(t)
	all := startLoad(t)
	helm(t, append([]string{"upgrade", release, chart, "--reset-then-reuse-values", "--set", "image.tag=now,webhooks.registration=Managed"}, wait...)...)
	admits(t)
	require.Contains(t, webhooks(t), "pods.tollgate.dev")
	require.NotContains(t, webhooks(t), "validate.tollgate.dev")
	all.requireUnharmed(t, "E06 while helm upgraded Tollgate")
	clocks.requireKept("after an upgrade")
	works(t)
	helm(t, "test", release)
	require.NotContains(t, kubectl(t, "get", "evictionpolicies", "-o", "name"), "helm-test")

	all = startLoad(t)
	// Or Helm says that what it applies is the leader's: docs/registration.md.
	kubectl(t, "delete", "validatingwebhookconfiguration,mutatingwebhookconfiguration", "tollgate")
	helm(t, append([]string{"rollback", release, "1"}, wait...)...)
	admits(t)
	require.Contains(t, webhooks(t), "validate.tollgate.dev")
	require.NotContains(t, webhooks(t), "pods.tollgate.dev")
	all.requireUnharmed(t, "E06 while helm rolled Tollgate back", "certificate signed by unknown authority")
	clocks.requireKept("after a rollback")
	clocks.requireRun()
	works(t)

	leaves(t, func() {
		// The webhooks go first: docs/uninstall.md says with which Helm.
		helm(t, "uninstall", release, "--wait")
		// Helm made the namespace and leaves it, with what Tollgate has written there.
		kubectl(t, "delete", "namespace", system)
	})
}

// webhooks returns the names of the validating webhooks.
func webhooks(t *testing.T) []string {
	t.Helper()
	return strings.Fields(kubectl(t, "get", "validatingwebhookconfiguration", "tollgate", "-o", "jsonpath={.webhooks[*].name}"))
}
