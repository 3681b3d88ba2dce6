package plugins

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
)

const (
	// FitName is the name of the plugin that scores in place of NodeResourcesFit.
	FitName = "PatchedNodeResourcesFit"
	// BalancedAllocationName is the name of the plugin that scores in place of
	// NodeResourcesBalancedAllocation.
	BalancedAllocationName = "PatchedNodeResourcesBalancedAllocation"
)

// stockScoring is what the stock plugins score with. What else NodeResourcesFit does
// is left to it: it reads no devices there.
type stockScoring interface {
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.SignPlugin
}

// Scoring ranks nodes as the stock plugin does, and where a resource is backed by
// devices it counts patched ones.
type Scoring struct {
	stockScoring
	name string
}

// Name is what profiles call the plugin.
func (s *Scoring) Name() string { return s.name }

func newFit(ctx context.Context, given runtime.Object, handle fwk.Handle) (*Scoring, error) {
	return newScoring(ctx, FitName, "NodeResourcesFitArgs", noderesources.NewFit, given, handle)
}

func newBalancedAllocation(ctx context.Context, given runtime.Object, handle fwk.Handle) (*Scoring, error) {
	return newScoring(ctx, BalancedAllocationName, "NodeResourcesBalancedAllocationArgs", noderesources.NewBalancedAllocation, given, handle)
}

type newStock func(context.Context, runtime.Object, fwk.Handle, feature.Features) (fwk.Plugin, error)

func newScoring(ctx context.Context, name, kind string, stock newStock, given runtime.Object, handle fwk.Handle) (*Scoring, error) {
	args, err := arguments(given, kind)
	if err != nil {
		return nil, err
	}
	plugin, err := stock(ctx, args, handle, features())
	if err != nil {
		return nil, err
	}
	scores, ok := plugin.(stockScoring)
	if !ok {
		return nil, fmt.Errorf("plugin for %s is a %T, which does not score", name, plugin)
	}
	return &Scoring{stockScoring: scores, name: name}, nil
}
