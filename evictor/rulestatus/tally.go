package rulestatus

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/tracker"
)

// namedPods is how many pods a preview names. It bounds the length of the
// condition: a name and its namespace are at most 317 bytes long.
const namedPods = 5

// tally is what a rule comes to in numbers.
type tally struct {
	// published and allocated count devices, as in tracker.Impact.
	published, allocated int
	// pods have to leave, or would have to if the effect was NoExecute; they are in
	// so many namespaces.
	pods, namespaces int
	// first are the first of the pods.
	first []types.NamespacedName
}

// tallyOf counts the pods that leaves says have to leave, now or later, and those of
// which it is not known whether they have left, unanswered.
func tallyOf(impact *tracker.Impact, leaves func(tracker.Situation) bool, unanswered []tracker.Key) tally {
	t := tally{published: impact.Published, allocated: impact.Allocated}
	namespaces := map[string]struct{}{}
	left := map[tracker.Key]struct{}{}
	for _, key := range unanswered {
		left[key] = struct{}{}
		namespaces[key.Namespace] = struct{}{}
	}
	for i := range impact.Pods {
		if !leaves(impact.Pods[i]) {
			continue
		}
		key := impact.Pods[i].Pod.Key
		delete(left, key)
		t.pods++
		namespaces[key.Namespace] = struct{}{}
		if len(t.first) < namedPods {
			t.first = append(t.first, types.NamespacedName{Namespace: key.Namespace, Name: key.Name})
		}
	}
	t.pods += len(left)
	t.namespaces = len(namespaces)
	return t
}

// counted returns n and what is counted, in the plural unless n is one.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// countedNamespaces tells that several namespaces are meant, as Kubernetes does
// (DE-65).
func countedNamespaces(n int) string {
	if n == 1 {
		return "1 namespace"
	}
	return fmt.Sprintf("%d different namespaces", n)
}
