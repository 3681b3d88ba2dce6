package pages

import "testing"

func TestQuickstart(t *testing.T) {
	t.Parallel()
	r := newReaderWithPods(t, "quickstart", 4)
	r.hasHelm(t)
	// So that no pod of Tollgate runs on the node whose pods the page counts.
	r.does(t, "kubectl cordon node-1")
	follow(t, r, tutorial{
		path: "docs/quickstart.md",
		before: map[string]func(t *testing.T){
			"kubectl apply -f policy.yaml": r.admits,
			"kubectl label node node-1 example.com/quickstart=true": func(t *testing.T) {
				t.Helper()
				r.does(t, "kubectl uncordon node-1")
			},
		},
	})
}
