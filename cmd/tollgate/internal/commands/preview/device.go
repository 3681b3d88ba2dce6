package preview

import (
	"context"
	"errors"

	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/cluster"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/kubectl"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/previews"
	"github.com/tollgate-dev/tollgate/cmd/tollgate/internal/taintargs"
)

// devices asks about taints that come to devices.
type devices struct {
	target taintargs.Target
	taints []taintargs.Taint
}

// parse reads the arguments after the name of the devices.
func (d *devices) parse(arguments []string) error {
	changes, err := taintargs.Parse(arguments, taintargs.OfDevices)
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

func (d *devices) wants(w *cluster.Wants) { w.Selection = d.target.Conditional() }

func (d *devices) tell(ctx context.Context, _ *kubectl.Clients, _ *cluster.Cluster, t *previews.Teller) ([]previews.Preview, error) {
	p, err := t.Target(ctx, &d.target, d.taints)
	if err != nil {
		return nil, err
	}
	return []previews.Preview{p}, nil
}
