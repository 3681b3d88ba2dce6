package pages

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/e2e/podnetwork"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	r := newReaderWithPods(t, "troubleshooting", 3)
	r.hasSite(t)
	r.installs(t)
	r.does(t, `kubectl apply -f deploy/samples/gentle-eviction.yaml -f deploy/samples/tolerationpolicy.yaml -f docs/examples/rack-7.yaml
		cp deploy/samples/tolerationpolicy.yaml policy.yaml
		kubectl taint node node-1 maintenance.example.com/kernel=:NoExecute
		kubectl run web-0 --image x --dry-run=client -o yaml > manifest.yaml
		kubectl apply -f manifest.yaml`)
	follow(t, r, tutorial{
		path: "docs/troubleshooting.md",
		typed: map[string]string{
			"POD": "web-0", "NODE": "node-1", "KEY": "maintenance.example.com/kernel", "USER": "alice", "DRIVER/POOL/DEVICE": "gpu.example.com/rack-7/gpu-0",
			"tolerationpolicy POLICY": "tolerationpolicy dedicated",
		},
	})
	t.Run("the checks that the page names are those of a pod", func(t *testing.T) {
		ip, err := r.run(t.Context(), "kubectl get pods -n tollgate-system -o jsonpath='{.items[0].status.podIP}'")
		require.NoError(t, err, ip)
		host, err := podnetwork.Local(ip)
		require.NoError(t, err)
		status, body, err := suite.Fetch(t.Context(), "http://"+net.JoinHostPort(host, "8081")+"/readyz?verbose")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, body)
		for _, check := range []string{"webhook", "policies", "certificates", "shutdown"} {
			require.Contains(t, body, "[+]"+check+" ok")
		}
	})
}
