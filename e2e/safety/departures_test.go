package safety

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// departure is a pod that Tollgate made leave, as the API server logged it.
type departure struct {
	pod string
	uid types.UID
	// evicted is true when that was by the Eviction API.
	evicted bool
	// at is when the API server was asked, and answer how long it took to answer.
	at     time.Time
	answer time.Duration
	// unanswered is true when that it was done was never said.
	unanswered bool
}

// departures returns the pods of a namespace that left, in the order in which that was
// asked for. That a pod left twice, or was not meant by its UID, fails the test (INV-1).
// Who is gone although that was never said to be done left by a request that was given up
// before it was answered.
func departures(ctx context.Context, t *testing.T, namespace string) []departure {
	t.Helper()
	present, err := alive(ctx, clientOf(t), namespace)
	require.NoError(t, err)
	var list, givenUp []departure
	seen := map[types.UID]bool{}
	for _, event := range asked(t, namespace) {
		switch code := event.ResponseStatus.Code; {
		case code < http.StatusMultipleChoices:
			d := departureOf(t, &event)
			require.False(t, seen[d.uid], "%s was made to leave twice", d.pod)
			seen[d.uid] = true
			list = append(list, d)
		case code >= http.StatusInternalServerError:
			givenUp = append(givenUp, departureOf(t, &event))
		}
	}
	slices.SortFunc(givenUp, func(a, b departure) int { return a.at.Compare(b.at) })
	for _, d := range givenUp {
		if !seen[d.uid] && present[d.pod] != d.uid {
			seen[d.uid], d.unanswered = true, true
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b departure) int { return a.at.Compare(b.at) })
	return list
}

// waitDepartures returns as departures does, once there are as many: the log may be a
// moment behind what is seen of the pods. More of them are a failure.
func waitDepartures(t *testing.T, namespace string, want int) (list []departure) {
	t.Helper()
	eventually(t, "departures in the audit log", func(ctx context.Context) error {
		if list = departures(ctx, t, namespace); len(list) < want {
			return fmt.Errorf("%d of %d", len(list), want)
		}
		return nil
	})
	require.Len(t, list, want)
	return list
}

func departureOf(t *testing.T, event *auditv1.Event) departure {
	t.Helper()
	require.NotEqual(t, "deletecollection", event.Verb)
	d := departure{
		pod: event.ObjectRef.Name, uid: meant(t, event),
		evicted: event.ObjectRef.Subresource == "eviction", at: event.RequestReceivedTimestamp.Time,
		answer: event.StageTimestamp.Sub(event.RequestReceivedTimestamp.Time),
	}
	require.NotEmpty(t, d.uid, "%s is meant by name alone", d.pod)
	return d
}

// refused counts the requests that were to make pods leave and got an answer with the
// code.
func refused(t *testing.T, namespace string, code int32) int {
	t.Helper()
	count := 0
	for _, event := range asked(t, namespace) {
		if event.ResponseStatus.Code == code {
			count++
		}
	}
	return count
}

func asked(t *testing.T, namespace string) []auditv1.Event {
	t.Helper()
	events, err := audit.Read(func(e *auditv1.Event) bool { return e.ObjectRef.Namespace == namespace && e.ResponseStatus != nil })
	require.NoError(t, err)
	return events
}

// meant returns the UID that a request names in its preconditions.
func meant(t *testing.T, event *auditv1.Event) types.UID {
	t.Helper()
	require.NotNil(t, event.RequestObject, event.ObjectRef.Name)
	options := &metav1.DeleteOptions{}
	if event.ObjectRef.Subresource == "eviction" {
		var eviction policyv1.Eviction
		require.NoError(t, json.Unmarshal(event.RequestObject.Raw, &eviction))
		options = eviction.DeleteOptions
	} else {
		require.NoError(t, json.Unmarshal(event.RequestObject.Raw, options))
	}
	if options == nil || options.Preconditions == nil || options.Preconditions.UID == nil {
		return ""
	}
	return *options.Preconditions.UID
}

// names returns the names of those who left.
func names(list []departure) []string {
	var all []string
	for i := range list {
		all = append(all, list[i].pod)
	}
	return all
}

// meanAnswer returns how long the API server took for an answer.
func meanAnswer(list []departure) time.Duration {
	var sum time.Duration
	for i := range list {
		sum += list[i].answer
	}
	return sum / time.Duration(max(len(list), 1))
}

// unanswered counts those that left by a request that was given up.
func unanswered(list []departure) int {
	count := 0
	for i := range list {
		if list[i].unanswered {
			count++
		}
	}
	return count
}

// eachSecond returns how many pods left in the first second after a time, or before it, in
// the next, and so on.
func eachSecond(list []departure, since time.Time) []int {
	var counts []int
	for i := range list {
		second := max(int(list[i].at.Sub(since)/time.Second), 0)
		for len(counts) <= second {
			counts = append(counts, 0)
		}
		counts[second]++
	}
	return counts
}

// pace is what a policy allows.
type pace struct{ perSecond, burst float64 }

// takes returns how long so many departures take.
func (p pace) takes(count int) time.Duration {
	return time.Duration(max(float64(count)-p.burst, 0) / p.perSecond * float64(time.Second))
}

// excess returns by how many pods the pace is exceeded most, in any span of time. It is
// never as much as one: who was asked for at a time was on its way then, and of those
// who are on their way all may leave at once. So an API server that keeps requests
// waiting, and answers them together, makes no difference.
func (p pace) excess(list []departure) float64 {
	most := -p.burst
	for i := range list {
		for j := i; j < len(list); j++ {
			span := list[j].at.Sub(list[i].at).Seconds()
			most = max(most, float64(j-i+1)-p.burst-p.perSecond*span)
		}
	}
	return most
}

func TestPaceOfDepartures(t *testing.T) {
	every := func(pause time.Duration, count int) []departure {
		var list []departure
		for i := range count {
			list = append(list, departure{at: time.Unix(0, 0).Add(time.Duration(i) * pause)})
		}
		return list
	}
	p := pace{perSecond: 10, burst: 5}
	require.InDelta(t, 1-5, p.excess(every(100*time.Millisecond, 100)), 1e-9, "the pace itself, and no burst")
	require.InDelta(t, 95, p.excess(every(0, 100)), 0, "all at once")
	require.InDelta(t, 0, p.excess(every(0, 5)), 0, "a burst")
	require.InDelta(t, 100-5-10*9.9/2, p.excess(every(50*time.Millisecond, 100)), 0.1, "twice as fast")
	require.InDelta(t, -5, p.excess(nil), 0, "nobody")
	require.Equal(t, 9500*time.Millisecond, p.takes(100))
	require.Zero(t, p.takes(3))
}
