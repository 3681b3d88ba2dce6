package pages

import "testing"

func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	r := newReaderWithPods(t, "troubleshooting", 3)
	r.hasSite(t)
	r.installs(t)
	r.does(t, `kubectl apply -f deploy/samples/gentle-eviction.yaml -f deploy/samples/tolerationpolicy.yaml
		cp deploy/samples/tolerationpolicy.yaml policy.yaml
		kubectl taint node node-1 maintenance.example.com/kernel=:NoExecute
		kubectl run web-0 --image x --dry-run=client -o yaml > manifest.yaml
		kubectl apply -f manifest.yaml`)
	follow(t, r, tutorial{
		path: "docs/troubleshooting.md",
		typed: map[string]string{
			"POD": "web-0", "NODE": "node-1", "KEY": "maintenance.example.com/kernel", "USER": "alice",
			"evictionpolicy POLICY": "evictionpolicy gentle", "tolerationpolicy POLICY": "tolerationpolicy dedicated",
		},
	})
}
