package preview

import (
	"context"
	"errors"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/state"
)

// devices previews taints that are added to devices.
type devices struct {
	target Target
	taints []Taint
}

// parse reads the arguments after the name of the devices.
func (d *devices) parse(arguments []string) error {
	changes, err := Parse(arguments, OfDevices)
	if err != nil {
		return err
	}
	if len(changes.Remove) > 0 {
		return errors.New("a taint of a device cannot be taken away here: it goes with the DeviceTaintRule or ResourceSlicePatch that it stands in (see untaint device)")
	}
	if len(changes.Add) == 0 {
		return errors.New("no taint is given, want KEY[=VALUE]:EFFECT")
	}
	d.taints = changes.Add
	return nil
}

func (d *devices) wants(w *state.Wants) { w.Selection = d.target.Conditional() }

func (d *devices) tell(ctx context.Context, _ *cli.Clients, _ *state.Cluster, t *Teller) ([]Preview, error) {
	p, err := t.Target(ctx, &d.target, d.taints)
	if err != nil {
		return nil, err
	}
	return []Preview{p}, nil
}
