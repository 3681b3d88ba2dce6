package evictor

// Mode says what Tollgate does about taints that Kubernetes' own controllers see as
// well. The values are those of the configuration; the zero Mode is ModeReplace.
type Mode string

// The modes.
const (
	// ModeReplace evicts in the place of Kubernetes' own controllers, which are off.
	ModeReplace Mode = "Replace"
	// ModeWindow evicts within the time that pods were given when they were created;
	// Kubernetes' own controllers are the deadline.
	ModeWindow Mode = "Window"
	// ModeObserve evicts no pods.
	ModeObserve Mode = "Observe"
)
