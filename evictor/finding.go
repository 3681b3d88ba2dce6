package evictor

// ModeFinding is what does not fit. The values are reasons of conditions and events, and in
// metrics.
type ModeFinding string

// The findings.
const (
	Fits ModeFinding = ""
	// BuiltInActive means that Kubernetes evicts as well, in mode Replace.
	BuiltInActive ModeFinding = "BuiltInActive"
	// NobodyEnforces means that nobody evicts pods whose window is over, in mode Window.
	NobodyEnforces ModeFinding = "NobodyEnforces"
	// NobodyEvicts means that nobody evicts at all, in mode Observe.
	NobodyEvicts ModeFinding = "NobodyEvicts"
)

// ModeFindings are all findings but Fits, for a metric that has each as a label.
var ModeFindings = []ModeFinding{BuiltInActive, NobodyEnforces, NobodyEvicts}

// String returns the finding as it is written in logs.
func (f ModeFinding) String() string {
	if f == Fits {
		return "Fits"
	}
	return string(f)
}

// Message says what that means and what to do about it.
func (f ModeFinding) Message() string {
	switch f {
	case BuiltInActive:
		return "the taint eviction controllers of kube-controller-manager evict pods as well, at once and whatever EvictionPolicies say: " +
			"start it with --controllers=*,-taint-eviction-controller,-device-taint-eviction-controller, or set eviction.mode to Window or Observe"
	case NobodyEnforces:
		return "pods live on although their window is over, so the taint eviction controllers of kube-controller-manager seem to be off: " +
			"switch them on, or set eviction.mode to Replace"
	case NobodyEvicts:
		return "pods live on that had to leave minutes ago, so nobody seems to carry out NoExecute: " +
			"switch the taint eviction controllers of kube-controller-manager on, or set eviction.mode to Replace"
	case Fits:
	}
	return "eviction.mode fits what the cluster does"
}
