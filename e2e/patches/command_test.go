package patches

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// devicesOf runs kubectl tollgate devices with a kubeconfig, and returns what it writes where.
func devicesOf(t *testing.T, kubeconfig string, args ...string) (out, notes string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.Plugin(), append([]string{"devices"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func TestTheDevicesCommandShowsWhatPatchesMakeOfDevicesAndWhoHasThem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish(t, "pool", gpu("a", 0), gpu("b", 1), gpu("c", 2))
	s.patch(t, "b", `{filter: {driver: DRIVER, device: b}, attributes: {DRIVER/model: {string: B}}}`)
	s.patch(t, "c", `{filter: {driver: DRIVER, device: c}, taints: [{key: example.com/broken, value: fan, effect: NoSchedule}]}`)
	s.settle(t)
	s.waitWritten(t, "c")
	s.run(t, "user", modelB)
	s.requireOn(t, "user", "pool/b")

	out, notes, err := devicesOf(t, shared.Kubeconfig(), "--driver", s.driver, "-o", "wide")
	require.NoError(t, err, notes)
	rows := map[string][]string{}
	for line := range strings.Lines(out) {
		cells := strings.Fields(line)
		rows[cells[0]] = cells[1:]
	}
	require.Equal(t, []string{"NODE", "TAINTS", "PATCHES", "CLAIM", "POD", "ATTRIBUTES", "CAPACITY"}, rows["DRIVER/POOL/DEVICE"])
	require.Len(t, rows, 4)
	prefix := s.driver + "/pool/"
	require.Equal(t, []string{"<all>", "<none>", "<none>", "<none>", "<none>"}, rows[prefix+"a"][:5])
	require.Equal(t, []string{"<all>", "<none>", s.patchName("b"), s.namespace + "/user", s.namespace + "/user"}, rows[prefix+"b"][:5])
	require.Contains(t, out, "model=B (patch "+s.patchName("b")+")")
	// The rule that is written for the patch is the patch's own taint, and not a second one.
	require.Equal(t, []string{"<all>", "example.com/broken=fan:NoSchedule", "(patch", s.patchName("c") + ")", s.patchName("c"), "<none>", "<none>"}, rows[prefix+"c"][:7])

	out, _, err = devicesOf(t, shared.Kubeconfig(), "--driver", s.driver, "--tainted", "-o", "name")
	require.NoError(t, err)
	require.Equal(t, prefix+"c\n", out)
	out, notes, err = devicesOf(t, shared.Kubeconfig(), "--driver", "nobodys.example.com")
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, "no devices found: there is no ResourceSlice of driver nobodys.example.com\n", notes)
}

func TestTheDevicesCommandSaysWhichRightsAreMissing(t *testing.T) {
	t.Parallel()
	config := shared.RESTConfig()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, controlplane.WriteKubeconfig(kubeconfig, config.Host, config.CAData, clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Impersonate: "nobody",
	}))
	out, notes, err := devicesOf(t, kubeconfig)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Empty(t, out)
	require.Contains(t, notes, "ask for a ClusterRole with the verb list on resourceslicepatches of API group tollgate.dev")
}
