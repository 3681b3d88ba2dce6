package compatibility

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// commandsRead shows that the commands read what the version serves, and miss nothing else.
func commandsRead(t *testing.T) {
	t.Helper()
	const key = "compatibility.example.com/foretold"
	node, in := controlplane.NodeName(4), namespace(t, "foretold", nil)
	create(t, in, pod("now", node), pod("later", node, tolerates(key, 3600)))
	out := mustCommand(t, "preview", "node", node, key+":NoExecute")
	require.Contains(t, out, "evicts 2 pods in 1 namespace: 1 now, 1 within 3600s")

	taint(t, node, key)
	waitLeft(t, in, "later")
	becomes(t, "the eviction is listed", func() error {
		out, err := command(t, "evictions", "-n", in)
		if err != nil {
			return err
		}
		return mentions(out, "later")
	})
	require.Contains(t, mustCommand(t, "explain", "pod", "later", "-n", in), key)

	mustCommand(t, "check", "--cluster", "-f", file(t, `
apiVersion: v1
kind: Pod
metadata: {name: asked, namespace: `+in+`}
spec:
  containers: [{name: c, image: image}]
`))
	mustCommand(t, "devices")
}

// policiesAreExported shows that the API server takes what policies are exported as.
func policiesAreExported(t *testing.T) {
	t.Helper()
	mustKubectl(t, "apply", "--dry-run=server", "-f", exported(t, "vap", "tolerationpolicy.yaml"))
}

// taintsAreExported is the same for what TaintPolicies register.
func taintsAreExported(t *testing.T) {
	t.Helper()
	mustKubectl(t, "apply", "--dry-run=server", "-f", exported(t, "map", "dedicated-nodes.yaml"))
}

// taintsAreNotTaken shows that the API server says what it does not serve.
func taintsAreNotTaken(t *testing.T) {
	t.Helper()
	out, err := kubectl(t, "apply", "--dry-run=server", "-f", exported(t, "map", "dedicated-nodes.yaml"))
	require.Error(t, err)
	require.NoError(t, mentions(out, "no matches for kind", "MutatingAdmissionPolicy"))
}

// exported writes a sample as policies of Kubernetes, and returns the file.
func exported(t *testing.T, as, name string) string {
	t.Helper()
	return file(t, mustCommand(t, "export", as, "-f", filepath.Join(programs.Root, "deploy", "samples", name)))
}
