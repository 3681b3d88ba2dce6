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

// about returns what is said of a pod: for taints of nodes, text ends with the name of the pod, which
// of comes before.
func (p phrases) about(key tracker.Key, text, of string) string {
	if p.named {
		return text + of + " " + key.String()
	}
	return text
}
