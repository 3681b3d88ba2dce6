package pages

// unrun is a command that is not run here.
type unrun struct {
	page, command, reason string
}

// elsewhere are all commands that are on a page and are not run here. Each must be on its page.
func elsewhere() []unrun {
	const (
		builds   = "it builds or tests this checkout, of which this test is a part; make -n runs here, so the target exists"
		evictors = "kube-controller-manager --controllers=*,-taint-eviction-controller,-device-taint-eviction-controller"
		streams  = "the kubelets that are played here serve no logs and no ports"
		endless  = "it goes on until it is interrupted; e2e/cli runs it"
		engine   = "it needs a container engine, which the tests do without"
		pushes   = "the kubelets that are played here take the image from this checkout; deploy/image pushes one to a registry"
	)
	return []unrun{
		{"README.md", "make demo", builds},
		{"README.md", "make test", builds},
		{"README.md", "make cluster-up", builds + "; e2e/cmd/cluster runs it"},
		{"README.md", ". .cluster/env", "make cluster-up writes the file; e2e/cmd/cluster reads it"},
		{"README.md", "make cluster-down", builds + "; e2e/cmd/cluster runs it"},
		{"README.md", "make test-all", builds},
		{"README.md", "make build", builds + ", and has built it"},
		{"README.md", evictors, "the control planes of the tests run with this flag: see e2e/controlplane"},
		{"README.md", "kubectl tollgate evictions -w", endless},
		{"README.md", "kubectl tollgate dashboard", "it serves until it is interrupted; e2e/dashboard runs it"},
		{"docs/quickstart.md", "kind create cluster", engine},
		{"docs/quickstart.md", "git clone https://github.com/tollgate-dev/tollgate && cd tollgate", "the reader is in a checkout"},
		{"docs/quickstart.md", "make image", builds},
		{
			"docs/quickstart.md",
			"go run github.com/google/go-containerregistry/cmd/crane@v0.21.7 push bin/image registry.example.com/tollgate:v1.2.3", pushes,
		},
		{"docs/troubleshooting.md", "kubectl -n tollgate-system port-forward POD 8081", streams},
		{"docs/troubleshooting.md", "curl 'localhost:8081/readyz?verbose'", "it goes through that port; TestTroubleshooting asks without it"},
		{"docs/troubleshooting.md", "kubectl logs -n tollgate-system -l app.kubernetes.io/name=tollgate", streams},
	}
}
