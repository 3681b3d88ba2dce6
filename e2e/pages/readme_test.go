package pages

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// TestREADME installs Tollgate in each of the three ways, and does with it what the page says.
func TestREADME(t *testing.T) {
	t.Parallel()
	r := newReaderWithPods(t, "readme", 4)
	r.hasHelm(t)
	outside := &besideTheCluster{reader: r}
	address := outside.choose(t)

	follow(t, r, tutorial{
		path:    "README.md",
		folders: map[string]string{"kustomization.yaml": "../site"},
		typed: map[string]string{
			"10.0.0.7:9443": address,
			"POD":           "train-0",
			taintDevice:     taintDevice + " --yes", // there is no terminal to ask on
		},
		before: map[string]func(t *testing.T){
			helmInstall:                        r.deletesSite,
			"kubectl apply -k deploy/defaults": r.admits,
			"Beside the cluster":               r.uninstallsRelease,
			serve:                              outside.prepare,
			"A first policy":                   outside.movesIntoTheCluster,
			"Before a taint":                   r.hasNode,
			"Asking":                           r.hasFiles,
			"A device that fails":              r.hasRack,
		},
		background: map[string]func(t *testing.T){serve: outside.waitReady},
	})
}

const (
	helmInstall = "helm install tollgate deploy/chart/tollgate -n tollgate-system --create-namespace --wait " +
		"--set image.repository=registry.example.com/tollgate --set image.tag=v1.2.3"
	taintDevice = "kubectl tollgate taint device gpu.example.com/n7/gpu-0 hot:NoExecute"
	serve       = "bin/tollgate serve --kubeconfig tollgate.kubeconfig --config tollgate.yaml"
)

// has applies what the page says that the reader has, from testdata, and waits for what is rolled
// out.
func (r *reader) has(t *testing.T, name string, rollouts ...string) {
	t.Helper()
	r.does(t, "kubectl apply -f '"+testdata(t, name)+"'")
	for _, rollout := range rollouts {
		r.does(t, "kubectl rollout status "+rollout)
	}
}

// testdata is the path of a file there.
func testdata(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("testdata", name+".yaml"))
	require.NoError(t, err)
	return file
}

// deletesSite uninstalls what was installed with kustomize.
func (r *reader) deletesSite(t *testing.T) {
	t.Helper()
	r.does(t, "kubectl delete -k ../site -l app.kubernetes.io/component=webhooks")
	r.does(t, "kubectl delete -k ../site --ignore-not-found")
}

// uninstallsRelease uninstalls what was installed with Helm.
func (r *reader) uninstallsRelease(t *testing.T) {
	t.Helper()
	r.does(t, "helm uninstall tollgate -n tollgate-system --wait")
	r.does(t, "kubectl delete crd -l app.kubernetes.io/name=tollgate")
	r.does(t, "kubectl delete namespace tollgate-system")
}

// hasNode makes the node whose pods the page counts.
func (r *reader) hasNode(t *testing.T) {
	t.Helper()
	r.has(t, "n7", "deployment/web -n shop", "deployment/mail -n mail", "deployment/batch -n batch", "deployment/db -n db")
}

// hasFiles makes the pod, the device and the files that the page asks about.
func (r *reader) hasFiles(t *testing.T) {
	t.Helper()
	r.has(t, "asking")
	r.does(t, `mkdir -p policies manifests
		cp deploy/samples/tolerationpolicy.yaml policies/
		cp deploy/samples/tolerationpolicy.yaml policy.yaml
		kubectl create deployment web --image x --dry-run=client -o yaml > manifests/web.yaml`)
}

// hasRack makes the devices of the rack, and pods that use two of them.
func (r *reader) hasRack(t *testing.T) {
	t.Helper()
	r.does(t, "kubectl apply -f docs/examples/rack-7.yaml && kubectl rollout status deployment/train -n ml")
}

// besideTheCluster is the Tollgate that runs as a process.
type besideTheCluster struct {
	reader *reader
	health string
	others []string
}

// choose returns a free address for its webhooks.
func (b *besideTheCluster) choose(t *testing.T) string {
	t.Helper()
	ports, err := controlplane.FreePorts(t.Context(), 3)
	require.NoError(t, err)
	var addresses []string
	for _, port := range ports {
		addresses = append(addresses, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	b.others, b.health = addresses[1:], addresses[2]
	return addresses[0]
}

// prepare does what the page says in words: it writes the kubeconfig with the token, and the URL
// into the webhooks. Metrics and health get ports of the test's own.
func (b *besideTheCluster) prepare(t *testing.T) {
	t.Helper()
	r := b.reader
	token, err := os.ReadFile(filepath.Join(r.checkout, "token"))
	require.NoError(t, err)
	config := r.cp.RESTConfig()
	require.NoError(t, controlplane.WriteKubeconfig(filepath.Join(r.checkout, "tollgate.kubeconfig"), config.Host, config.CAData,
		clientcmdapi.AuthInfo{Token: strings.TrimSpace(string(token))}))
	r.does(t, "cat >> tollgate.yaml <<END\nmetrics: {bindAddress: '"+b.others[0]+"'}\nhealth: {bindAddress: '"+b.others[1]+"'}\nEND\n")
	r.does(t, "sed -i 's|127.0.0.1:9443|"+r.typed["10.0.0.7:9443"]+"|' deploy/overlays/outside/kustomization.yaml")
}

// waitReady returns when Tollgate is ready.
func (b *besideTheCluster) waitReady(t *testing.T) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		status, _, err := suite.Fetch(ctx, "http://"+b.health+"/readyz")
		return err == nil && status == http.StatusOK, nil // before, it does not listen
	})
	log, readErr := os.ReadFile(b.reader.background())
	require.NoError(t, errors.Join(err, readErr), "%s", log)
}

// movesIntoTheCluster uninstalls Tollgate beside the cluster, and installs it with kustomize again,
// so that what follows is done with the first way to install it.
func (b *besideTheCluster) movesIntoTheCluster(t *testing.T) {
	t.Helper()
	r := b.reader
	r.admits(t)
	r.does(t, "kubectl delete -k deploy/overlays/outside")
	r.endBackground()
	r.does(t, "kubectl delete -k deploy/base/rights")
	r.installs(t)
	r.does(t, "kubectl create namespace apple")
}
