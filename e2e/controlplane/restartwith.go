package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// RestartWith restarts a component as Restart does, with args in place of the
// ExtraArgs that it had; later restarts keep them. A comparison of two settings
// that starts a control plane for each would compare two control planes.
func (c *ControlPlane) RestartWith(ctx context.Context, name string, args ...string) error {
	if !slices.Contains(Components(), name) {
		return fmt.Errorf("restart %q: no such component", name)
	}
	c.mu.Lock()
	// The caller of Start keeps its own map.
	extra := maps.Clone(c.state.ExtraArgs)
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[name] = slices.Clone(args)
	c.state.ExtraArgs = extra
	c.mu.Unlock()
	return c.Restart(ctx, name)
}
