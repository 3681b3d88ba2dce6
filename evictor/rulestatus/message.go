package rulestatus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tollgate-dev/tollgate/tracker"
)

const (
	settlingMessage = "No pod needs to be evicted so far. Pods may still be placed that the scheduler allocated before it saw the taint."
	otherMessage    = "Eviction only happens for the NoExecute effect."
	// seePreview ends the message of a rule with the effect None. Only messages of Tollgate
	// have it.
	seePreview = "This information will not be updated again; condition " + ConditionEvictionPreview + " is."
)

// namedPods is how many pods a preview names. It bounds the length of the
// condition: a name and its namespace are at most 317 bytes long.
const namedPods = 5

// evictedSoFar is the end of a message once pods were evicted. It is read back after
// a restart, so that the count goes on. Kubernetes' own controller ends its messages
// in the second way; what it evicted before Tollgate took over counts too.
var evictedSoFar = regexp.MustCompile(`(?:^| )([1-9][0-9]{0,8}) pods? evicted (?:so far|since starting the controller)\.$`)

// tally has the counts of devices and pods of a rule.
type tally struct {
	// published and allocated count devices, as in tracker.Impact.
	published, allocated int
	// pods have to leave, or would have to if the effect was NoExecute; namespaces is the
	// number of their namespaces.
	pods, namespaces int
	// first are the first of the pods, as namespace/name.
	first []string
}

// tallyOf counts the pods that have to leave, now or later, as leaves says, and the
// unanswered pods, which may have left or not.
func tallyOf(impact *tracker.Impact, leaves func(tracker.Situation) bool, unanswered []tracker.Key) tally {
	t := tally{published: impact.Published, allocated: impact.Allocated}
	others, namespaces := sets.New(unanswered...), sets.New[string]()
	for i := range impact.Pods {
		if !leaves(impact.Pods[i]) {
			continue
		}
		key := impact.Pods[i].Pod.Key
		others.Delete(key)
		t.pods++
		namespaces.Insert(key.Namespace)
		if len(t.first) < namedPods {
			t.first = append(t.first, key.Namespace+"/"+key.Name)
		}
	}
	for key := range others {
		t.pods++
		namespaces.Insert(key.Namespace)
	}
	t.namespaces = namespaces.Len()
	return t
}

// counted returns n and a noun, in the plural unless n is one.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// countedNamespaces returns the number of namespaces in the words of Kubernetes (DE-65).
func (t *tally) countedNamespaces() string {
	return counted(t.namespaces, "namespace", "different namespaces")
}

// pendingMessage says how many pods have to be evicted (DE-65).
func pendingMessage(t *tally) string {
	return counted(t.pods, "pod needs", "pods need") + " to be evicted in " + t.countedNamespaces() + "."
}

// unsupportedMessage says why a rule selects nothing (VS-03).
func unsupportedMessage(fields []string) string {
	return fmt.Sprintf("No device is selected because this version of Tollgate does not support %s in the selector. Select by driver, pool or device.",
		strings.Join(fields, ", "))
}

// summary says what a rule would do if its effect was NoExecute (DE-69).
func summary(t *tally) string {
	return fmt.Sprintf("%s selected. %s selected. %s would be evicted in %s if the effect was NoExecute.",
		counted(t.published, "published device", "published devices"), counted(t.allocated, "allocated device", "allocated devices"),
		counted(t.pods, "pod", "pods"), t.countedNamespaces())
}

// previewMessage is the summary and the first pods.
func previewMessage(t *tally) string {
	message := summary(t)
	if len(t.first) == 0 {
		return message
	}
	message += " Pods: " + strings.Join(t.first, ", ")
	if more := t.pods - len(t.first); more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	return message + "."
}

// withEvicted appends to a message how many pods were evicted (DE-68).
func withEvicted(message string, evicted int) string {
	if evicted == 0 {
		return message
	}
	return strings.TrimPrefix(message+" "+counted(evicted, "pod", "pods")+" evicted so far.", " ")
}

// withoutEvicted removes the number of evicted pods from a message, and returns it.
func withoutEvicted(message string) (string, int) {
	at := evictedSoFar.FindStringSubmatchIndex(message)
	if at == nil {
		return message, 0
	}
	evicted, _ := strconv.Atoi(message[at[2]:at[3]]) // They are nine digits at most.
	return message[:at[0]], evicted
}
