package pages

import (
	"testing"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestFirstPolicy(t *testing.T) {
	t.Parallel()
	r := newReader(t, "first-policy", controlplane.Options{Nodes: 1})
	withTollgate(t, r)
	follow(t, r, tutorial{path: "docs/first-policy.md"})
}
