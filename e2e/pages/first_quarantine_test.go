package pages

import (
	"testing"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestFirstQuarantine(t *testing.T) {
	t.Parallel()
	r := newReader(t, "first-quarantine", controlplane.Options{Nodes: 3})
	withTollgate(t, r)
	follow(t, r, tutorial{path: "docs/first-quarantine.md"})
}
