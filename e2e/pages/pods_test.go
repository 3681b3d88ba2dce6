package pages

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/kubelet"
	"github.com/tollgate-dev/tollgate/e2e/podnetwork"
)

const (
	// selector selects the pods of Tollgate.
	selector = "app.kubernetes.io/name=tollgate"
	// image is what README.md names its image, which the reader has built and pushed.
	image = "registry.example.com/tollgate"
)

// newReaderWithPods starts a control plane on which pods of Tollgate run: as processes, by
// kubelets that are played. The API server reaches them by the network of pods.
func newReaderWithPods(t *testing.T, name string, nodes int) *reader {
	t.Helper()
	// The path of a unix socket is short, so it is not in the folder of the control plane.
	dir, err := os.MkdirTemp("", "pages-") //nolint:usetesting // The name of the test makes that longer.
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := filepath.Join(dir, "network")
	r := newReader(t, name, controlplane.Options{
		Nodes: nodes, PodNetwork: socket,
		ExtraArgs: map[string][]string{
			controlplane.Kwok:              kubelet.KwokArgs(selector),
			controlplane.ControllerManager: {"--kube-api-qps=500", "--kube-api-burst=1000"},
		},
	})
	ctx := context.WithoutCancel(t.Context())
	network, err := podnetwork.Start(ctx, podnetwork.Options{Socket: socket, Config: r.cp.RESTConfig(), Delay: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, network.Stop()) })
	runs, err := kubelet.Start(ctx, kubelet.Options{
		Config: r.cp.RESTConfig(), Selector: selector,
		Images: map[string]kubelet.Image{image: {Program: programs.Tollgate(), Kubeconfig: true}},
		Dir:    filepath.Join(dir, "pods"), Logs: filepath.Join(r.cp.Dir(), "logs", "pods"),
	})
	require.NoError(t, err)
	t.Cleanup(runs.Stop)
	return r
}

// hasSite writes the folder ../site that README.md shows.
func (r *reader) hasSite(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(programs.Root, "README.md"))
	require.NoError(t, err)
	parts, err := parse(string(text))
	require.NoError(t, err)
	i := slices.IndexFunc(parts, func(p part) bool { return p.file == "kustomization.yaml" })
	require.GreaterOrEqual(t, i, 0)
	r.applies(t, parts[i], "../site")
}

// installs installs Tollgate in the cluster, from the folder ../site.
func (r *reader) installs(t *testing.T) {
	t.Helper()
	r.does(t, "kubectl apply -k ../site && kubectl -n tollgate-system rollout status deployment/tollgate")
	r.admits(t)
}

// admits waits until the webhooks answer, as a reader does who types. For a moment after they
// are installed the API server does not know the CA of their certificate.
func (r *reader) admits(t *testing.T) {
	t.Helper()
	r.try(t, "kubectl run probe -n default --image x --dry-run=server && kubectl annotate node node-1 a=b --dry-run=server",
		func(_ string, err error) error { return err })
}
