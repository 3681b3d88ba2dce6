package plugins

import fwk "k8s.io/kube-scheduler/framework"

// handle is the scheduler's own, but for the ResourceSlices of its DRA manager.
type handle struct {
	fwk.Handle
	manager manager
}

func (h *handle) SharedDRAManager() fwk.SharedDRAManager { return h.manager }

// manager shares claims, classes and allocations in flight with all profiles.
type manager struct {
	fwk.SharedDRAManager
	view *view
}

func (m manager) ResourceSlices() fwk.ResourceSliceLister { return m.view }
