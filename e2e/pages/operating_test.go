package pages

import (
	"testing"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestOperating(t *testing.T) {
	t.Parallel()
	r := newReader(t, "operating", controlplane.Options{Nodes: 3})
	withTollgate(t, r)
	follow(t, r, tutorial{path: "docs/operating.md"})
}
