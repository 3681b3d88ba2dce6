package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATaintOfADeviceIsMadeChangedAndTakenAway(t *testing.T) {
	t.Parallel()
	s := newPreviewSite(t, deviceNode)
	kubectl(t, "create", "-f", s.file(t, devicesOf+userOf("a", "a", "{key: KEY, value: fan, effect: NoExecute}")))
	s.waitRun(t)
	device, key := s.fill("DRIVER/pool/a"), s.fill("KEY")

	out, notes, err := tollgate(t, "taint", "device", device, key+"=fan:NoExecute", "--yes", "-o", "name")
	require.NoError(t, err, notes)
	require.Contains(t, notes, "device/"+device+": evicts no pods\n")
	name := strings.TrimSpace(out)
	rule := kubectl(t, "get", name, "-o", "jsonpath={.metadata.labels} {.metadata.annotations.tollgate\\.dev/author} {.spec.taint.value}")
	require.True(t, strings.HasPrefix(rule, `{"tollgate.dev/made-by":"kubectl-tollgate"} `), rule)
	require.True(t, strings.HasSuffix(rule, " fan"), rule)

	_, notes, err = tollgate(t, "taint", "device", device, key+"=disk:NoExecute", "--yes")
	require.Error(t, err)
	require.Contains(t, notes, "already, and --overwrite is not given")
	_, notes, err = tollgate(t, "taint", "device", device, key+"=disk:NoExecute", "--overwrite")
	require.Error(t, err)
	require.Contains(t, notes, "nothing is written: there is no terminal to ask on", "nobody is asked, nothing is written")
	require.Equal(t, "fan", kubectl(t, "get", name, "-o", "jsonpath={.spec.taint.value}"))
	out, notes, err = tollgate(t, "taint", "device", device, key+"=disk:NoExecute", "--overwrite", "--dry-run=server")
	require.NoError(t, err, notes)
	require.Equal(t, name+" configured (server dry run)\n", out)
	require.Equal(t, "fan", kubectl(t, "get", name, "-o", "jsonpath={.spec.taint.value}"))
	before := kubectl(t, "get", name, "-o", "jsonpath={.spec.taint.timeAdded}")
	out, notes, err = tollgate(t, "taint", "device", device, key+"=disk:NoExecute", "--overwrite", "--yes")
	require.NoError(t, err, notes)
	require.Equal(t, name+" configured\n", out)
	require.Contains(t, notes, "evicts 1 pod in 1 namespace: 1 now")
	require.Equal(t, before, kubectl(t, "get", name, "-o", "jsonpath={.spec.taint.timeAdded}"), "since when it counts stays")
	eventually(t, "the pod leaves", func(context.Context) error {
		if len(s.deletions(t)) == 0 {
			return errors.New("pod a has not left")
		}
		return nil
	})

	out, notes, err = tollgate(t, "untaint", "device", device, key)
	require.NoError(t, err, notes)
	require.Equal(t, name+" deleted\n", out)
	require.Empty(t, kubectl(t, "get", name, "--ignore-not-found"))
	_, notes, err = tollgate(t, "untaint", "device", device, key)
	require.Error(t, err)
	require.Contains(t, notes, "taint device made none for these devices")
}

func TestAPatchThatTheCommandMadeGoesWithItsRules(t *testing.T) {
	t.Parallel()
	s := newPreviewSite(t, deviceNode)
	kubectl(t, "create", "-f", s.file(t, devicesOf))
	key, selector := s.fill("KEY"), s.fill(`device.attributes["DRIVER"].name == "b"`)
	out, notes, err := tollgate(t, "taint", "device", "--selector", selector, "--driver", s.fill("DRIVER"), key+":NoSchedule", "--yes", "-o", "name")
	require.NoError(t, err, notes)
	name := strings.TrimSpace(out)
	rules := func() string {
		uid := kubectl(t, "get", "devicetaintrules", "-o", `jsonpath={range .items[?(@.spec.taint.key=="`+key+`")]}{.metadata.name} {.spec.deviceSelector.device}{"\n"}{end}`)
		return strings.TrimSpace(uid)
	}
	eventually(t, "the rule of the patch is written", func(context.Context) error {
		if found := rules(); !strings.HasSuffix(found, " b") {
			return fmt.Errorf("there is %q", found)
		}
		return nil
	})
	_, notes, err = tollgate(t, "untaint", "device", s.fill("DRIVER"), key)
	require.Error(t, err)
	require.Contains(t, notes, "by taint device: untaint the same devices")
	out, notes, err = tollgate(t, "untaint", "device", "--selector", selector, s.fill("DRIVER"), key)
	require.NoError(t, err, notes)
	require.Equal(t, name+" deleted\n", out)
	eventually(t, "the rule goes", func(context.Context) error {
		if found := rules(); found != "" {
			return fmt.Errorf("there is %q", found)
		}
		return nil
	})
}

func TestFailOverIsTheExitCode(t *testing.T) {
	t.Parallel()
	s := newPreviewSite(t, deviceNode)
	kubectl(t, "create", "-f", s.file(t, devicesOf+userOf("a", "a", "")))
	s.waitRun(t)
	for most, want := range map[string]int{"0": 2, "1": 0} {
		_, notes, err := tollgate(t, "preview", "device", s.fill("DRIVER"), s.fill("KEY:NoExecute"), "--fail-over", most)
		if want == 0 {
			require.NoError(t, err, notes)
			continue
		}
		exit := &exec.ExitError{}
		require.ErrorAs(t, err, &exit)
		require.Equal(t, want, exit.ExitCode())
	}
}

func TestKubectlFindsThePlugin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(programs.Plugin(), filepath.Join(dir, "kubectl-tollgate")))
	run := func(code int, arguments ...string) string {
		cmd := exec.CommandContext(t.Context(), programs.Kubectl(), append([]string{"tollgate"}, arguments...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir, "KUBECONFIG="+shared.Kubeconfig(), "KUBERC=off")
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			require.NoError(t, err, string(out))
		}
		require.Equal(t, code, cmd.ProcessState.ExitCode(), string(out))
		return string(out)
	}
	require.Contains(t, run(0, "preview", "node", "--help"), "kubectl tollgate preview node NAME... KEY[=VALUE]:EFFECT")
	require.Contains(t, run(1, "preview", "device", "nobody.example.com", "k:NoExecute"), `device "nobody.example.com": no ResourceSlice publishes such a device`)
}
