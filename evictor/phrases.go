package evictor

import "github.com/tollgate-dev/tollgate/tracker"

// oddTimeReason is the reason of events about taints with a time that is hardly
// meant.
const oddTimeReason = "TaintTimeOdd"

// phrases are the words of events on pods.
type phrases struct {
	// eviction is the reason of the events that Kubernetes' own controllers write.
	eviction string
	// heldUp is the reason for evictions that the API server does not accept.
	heldUp string
	// plight is what is said of a pod whose eviction is held up.
	plight string
	// named is true when the messages end with the name of the pod.
	named bool
}

// The events of Kubernetes' two controllers (NE-21, DE-42).
var (
	nodePhrases = phrases{
		eviction: "TaintManagerEviction", heldUp: "TaintManagerEvictionHeldUp", plight: "has to leave its node", named: true,
	}
	devicePhrases = phrases{
		eviction: "DeviceTaintManagerEviction", heldUp: "DeviceTaintManagerEvictionHeldUp", plight: "has to stop using a device",
	}
)

// phrasesFor returns the words for taints that objects of that kind carry.
func phrasesFor(cause tracker.SourceKind) phrases {
	if cause.OnDevice() {
		return devicePhrases
	}
	return nodePhrases
}

// marking returns what is said of a pod that is evicted.
func (p phrases) marking(key tracker.Key) string {
	if p.named {
		return "Marking for deletion Pod " + key.String()
	}
	return "Marking for deletion"
}

// evicting returns what is said of a pod that left by the Eviction API.
func (p phrases) evicting(key tracker.Key) string {
	if p.named {
		return "Evicting Pod " + key.String()
	}
	return "Evicting"
}

// cancelling returns what is said of a pod that may stay after all.
func (p phrases) cancelling(key tracker.Key) string {
	if p.named {
		return "Cancelling deletion of Pod " + key.String()
	}
	return "Cancelling deletion"
}
