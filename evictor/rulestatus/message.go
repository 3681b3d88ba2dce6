package rulestatus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	settlingMessage = "No pod needs to be evicted so far. Pods may still be placed that the scheduler allocated before it saw the taint."
	otherMessage    = "Eviction only happens for the NoExecute effect."
	// seePreview ends what is said once about a rule with the effect None. Where a
	// message has it, it is ours.
	seePreview = "This information will not be updated again; condition " + ConditionEvictionPreview + " is."
)

// evictedSoFar is how a message ends once pods were evicted. It is read back after
// a restart, so that the count goes on. Kubernetes' own controller ends its messages
// in the second way; what it evicted before Tollgate took over counts too.
var evictedSoFar = regexp.MustCompile(`(?:^| )([1-9][0-9]{0,8}) pods? evicted (?:so far|since starting the controller)\.$`)

// pendingMessage says how many pods have to be evicted (DE-65).
func pendingMessage(t *tally) string {
	verb := "need"
	if t.pods == 1 {
		verb = "needs"
	}
	return fmt.Sprintf("%s %s to be evicted in %s.", counted(t.pods, "pod"), verb, countedNamespaces(t.namespaces))
}

// unsupportedMessage says why a rule selects nothing (VS-03).
func unsupportedMessage(fields []string) string {
	return fmt.Sprintf("No device is selected because this version of Tollgate does not support %s in the selector. Select by driver, pool or device.",
		strings.Join(fields, ", "))
}

// summary says what a rule would do if its effect was NoExecute (DE-69).
func summary(t *tally) string {
	return fmt.Sprintf("%s selected. %s selected. %s would be evicted in %s if the effect was NoExecute.",
		counted(t.published, "published device"), counted(t.allocated, "allocated device"),
		counted(t.pods, "pod"), countedNamespaces(t.namespaces))
}

// previewMessage is the summary and the first pods.
func previewMessage(t *tally) string {
	var b strings.Builder
	b.WriteString(summary(t))
	for i, pod := range t.first {
		b.WriteString([]string{" Pods: ", ", "}[min(i, 1)])
		b.WriteString(pod.String())
	}
	if more := t.pods - len(t.first); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	if len(t.first) > 0 {
		b.WriteString(".")
	}
	return b.String()
}

// withEvicted appends to a message how many pods were evicted (DE-68).
func withEvicted(message string, evicted int) string {
	if evicted == 0 {
		return message
	}
	return strings.TrimPrefix(message+" "+counted(evicted, "pod")+" evicted so far.", " ")
}

// withoutEvicted takes the number of evicted pods off a message.
func withoutEvicted(message string) (string, int) {
	at := evictedSoFar.FindStringSubmatchIndex(message)
	if at == nil {
		return message, 0
	}
	evicted, err := strconv.Atoi(message[at[2]:at[3]])
	if err != nil {
		return message, 0
	}
	return message[:at[0]], evicted
}
