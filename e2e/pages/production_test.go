package pages

import "testing"

func TestProduction(t *testing.T) {
	t.Parallel()
	r := newReaderWithPods(t, "production", 3)
	r.hasSite(t)
	r.installs(t)
	r.does(t, "kubectl apply -f deploy/samples/gentle-eviction.yaml")
	r.does(t, "mkdir policies && cp deploy/samples/tolerationpolicy.yaml '"+testdata(t, "cases")+"' policies/")
	follow(t, r, tutorial{
		path:  "docs/production.md",
		typed: map[string]string{"NODE": "node-1", "POLICY": "gentle"},
	})
	// It promises that they come back.
	r.does(t, "kubectl -n tollgate-system rollout status deployment/tollgate")
	r.admits(t)
}
