package install

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

// ApplyCRD applies a CustomResourceDefinition that comes with a Go module, and waits until the API
// server serves it. The file is relative to the module.
func ApplyCRD(ctx context.Context, cp *controlplane.ControlPlane, module, file string) error {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output() //nolint:gosec // The module is named in tests.
	if err != nil {
		return fmt.Errorf("find module %s: %w", module, err)
	}
	path := filepath.Join(strings.TrimSpace(string(out)), file)
	// Many are too large for the annotation of a client-side apply.
	for _, command := range [][]string{{"apply", "--server-side"}, {"wait", "--for=condition=Established", "--timeout=60s"}} {
		if out, err := Kubectl(ctx, cp, append(command, "-f", path)...); err != nil {
			return fmt.Errorf("%s %s of %s: %w\n%s", command[0], file, module, err, out)
		}
	}
	return nil
}
