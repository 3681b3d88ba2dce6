package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// following is the program while it goes on.
type following struct {
	cmd *exec.Cmd
	// ended is closed once it writes no more.
	ended chan struct{}

	mu    sync.Mutex
	lines []string
}

// follow starts the program as the administrator. It is killed with the test.
func (s *evictionSite) follow(t *testing.T, arguments string) *following {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.Plugin(), strings.Fields(s.text(arguments))...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	f := &following{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.mu.Lock()
			f.lines = append(f.lines, lines.Text())
			f.mu.Unlock()
		}
	}()
	return f
}

// last returns the last line with a word; empty for none.
func (f *following) last(word string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range slices.Backward(f.lines) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return ""
}

// wait waits until the last line about a device has a word, or has it not.
func (f *following) wait(t *testing.T, device, word string, has bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("device %s with %s: %t", device, word, has), func(context.Context) error {
		line := f.last(device)
		if line == "" || strings.Contains(line, word) != has {
			return fmt.Errorf("the last line is %q", line)
		}
		return nil
	})
}

func TestDevicesAreFollowedWhileATaintComesAndGoes(t *testing.T) {
	t.Parallel()
	s := newEvictionSite(t, nodeOfDevices)
	driver := s.namespace + ".followed.example.com"
	_, err := s.pods.ResourceV1().ResourceSlices().Create(t.Context(), dra.Slice(driver, "pool", dra.Device("d0"), dra.Device("d1")), metav1.CreateOptions{})
	require.NoError(t, err)
	followed := s.follow(t, "devices -w -o wide --driver "+driver)
	followed.wait(t, "/d0", key, false)
	followed.wait(t, "/d1", key, false)

	rule := dra.Rule(s.namespace+"-followed", driver, dra.Taint(key, "seen", resourcev1.DeviceTaintEffectNoSchedule))
	rule.Spec.DeviceSelector.Device = new("d0")
	rules := s.pods.ResourceV1().DeviceTaintRules()
	_, err = rules.Create(t.Context(), rule, metav1.CreateOptions{})
	require.NoError(t, err)
	followed.wait(t, "/d0", key+"=seen:NoSchedule", true)
	require.NotContains(t, followed.last("/d1"), key, "the rule is not for it")

	require.NoError(t, rules.Delete(t.Context(), rule.Name, metav1.DeleteOptions{}))
	followed.wait(t, "/d0", key, false)
	require.NoError(t, followed.cmd.Process.Signal(os.Interrupt))
	<-followed.ended
	require.NoError(t, followed.cmd.Wait(), "to be interrupted is no error")
}
