package controlplane

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Component names, which are also the names of the log files.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
)

// Components returns the names of all components in the order they start.
func Components() []string {
	return []string{Etcd, APIServer, ControllerManager, Scheduler, Kwok}
}

// Eviction says who acts on NoExecute taints, of nodes and of devices.
type Eviction string

// The values of Eviction. Both leaves the built-in controllers running beside
// Tollgate, as where a managed control plane does not let them be turned off.
const (
	EvictionTollgate Eviction = "tollgate"
	EvictionBuiltin  Eviction = "builtin"
	EvictionBoth     Eviction = "both"
)

// DefaultNodes is how many nodes a control plane has unless told otherwise.
const DefaultNodes = 5

// NoNodes asks for a control plane that has no nodes.
const NoNodes = -1

// Options says what control plane to start.
type Options struct {
	// Dir is where everything goes. It is created; a control plane that ran in
	// it before must have been stopped.
	Dir string
	// Program is the multi-call binary of all components; see package binaries.
	Program string
	// Nodes is how many nodes to create: zero is DefaultNodes.
	Nodes int
	// Eviction is EvictionTollgate if empty.
	Eviction Eviction
	// ExtraArgs are appended to the arguments of the components they are keyed by.
	ExtraArgs map[string][]string
	// PodNetwork is the path of a unix socket through which the API server reaches
	// Services and pods: whoever listens there is an HTTP CONNECT proxy, see package
	// podnetwork. Empty is none; the API server then reaches nothing but URLs.
	PodNetwork string
	// Detached components outlive this program.
	Detached bool
	// Progress is told each step as it is done. It may be nil.
	Progress func(step string)
}

// complete fills in the defaults and refuses what makes no sense.
func (o *Options) complete() error {
	if o.Dir == "" || o.Program == "" {
		return fmt.Errorf("start control plane: directory %q and program %q must both be given", o.Dir, o.Program)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("resolve directory %s: %w", o.Dir, err)
	}
	o.Dir = dir
	switch {
	case o.Nodes == 0:
		o.Nodes = DefaultNodes
	case o.Nodes < NoNodes:
		return fmt.Errorf("start control plane: %d nodes", o.Nodes)
	}
	switch o.Eviction {
	case "":
		o.Eviction = EvictionTollgate
	case EvictionTollgate, EvictionBuiltin, EvictionBoth:
	default:
		return fmt.Errorf("start control plane: eviction %q is none of %s, %s, %s",
			o.Eviction, EvictionTollgate, EvictionBuiltin, EvictionBoth)
	}
	for name := range o.ExtraArgs {
		if !slices.Contains(Components(), name) {
			return fmt.Errorf("start control plane: arguments for unknown component %q", name)
		}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return nil
}
