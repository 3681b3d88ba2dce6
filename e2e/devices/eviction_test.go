package devices

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

func TestThousandPodsOnOneRuleLeaveDE77(t *testing.T) {
	t.Parallel()
	const pods = 1000
	s := newSite(t, shared)
	var leave []use
	var devices []resourcev1.Device
	for i := range pods {
		name := fmt.Sprintf("leave-%d", i)
		leave = append(leave, use{pod: name, claim: name, pool: fmt.Sprintf("broken-%d", i/100), device: name})
		devices = append(devices, dra.Device(name))
	}
	for i := range pods / 100 {
		s.publish(t, fmt.Sprintf("broken-%d", i), devices[i*100:(i+1)*100]...)
	}
	s.publish(t, "well", dra.Device("stay"))
	staying := s.place(t,
		use{pod: "tolerates", claim: "tolerates", pool: "broken-0", device: "leave-0", tolerations: []resourcev1.DeviceToleration{dra.Tolerate(key)}},
		use{pod: "shares-none", claim: "shares-none", pool: "well", device: "stay", tolerations: []resourcev1.DeviceToleration{dra.Tolerate(key)}},
	)
	s.place(t, leave...)
	// What a kubelet still writes into a pod would get in between.
	eventually(t, "pods run", func(ctx context.Context) error {
		list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase!=Running"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d do not", len(list.Items))
		}
		return err
	})

	s.led = s.plane.terms(t)
	began := time.Now()
	rule := dra.Rule(s.namespace, s.driver, dra.Taint(key, "", noExecute))
	s.createRule(t, rule)
	s.waitAlive(t, staying)
	took := time.Since(began)
	t.Logf("%d pods left in %s", pods, took.Round(time.Millisecond))

	said := s.waitCondition(t, rule.Name, resourcev1.DeviceTaintConditionEvictionInProgress, "False ")
	if !s.requireCompleted(t, said, pods) {
		for name := range s.deletions(t) {
			require.True(t, strings.HasPrefix(name, "leave-"), "%s was not to leave", name)
		}
		return
	}
	// How long it takes is for the benchmark to say: here all other tests run beside it.
	deleted := s.waitDeletions(t, pods)
	for name := range deleted {
		require.True(t, strings.HasPrefix(name, "leave-"), "%s was not to leave", name)
	}
	counts := auditlog.Count(s.asked(t))
	require.Equal(t, map[string]int{"patch pods/status 200": pods, "delete pods 200": pods}, counts, "each is marked, then deleted, and that is all")
}

// requireCompleted fails unless a rule says that it is done, and counts all the pods of
// the site that left because of it; a second rule has its own, whose names begin with
// prefix. On a machine that is too busy to renew the lease in time, evictions that were not
// answered while Tollgate led are nobody's: then it returns false, and fails unless all are
// counted that were answered.
func (s *site) requireCompleted(t *testing.T, said string, pods int, prefix ...string) (led bool) {
	t.Helper()
	account := s.plane.account(t)
	if s.plane.terms(t) == s.led {
		require.Equal(t, completed(pods), said, "%s", account)
		return true
	}
	answered, err := s.plane.logLines(`"evicted pod"`, s.namespace+"/"+strings.Join(prefix, ""))
	require.NoError(t, err)
	t.Logf("the lease was lost; %d of %d evictions were answered before; %s\n%s", answered, pods, said, account)
	require.LessOrEqual(t, answered, pods, "%s", account)
	for counted := answered; counted <= pods; counted++ {
		if said == completed(counted) {
			return false
		}
	}
	require.Failf(t, "not all evictions are counted", "%d of %d were answered; %s\n%s", answered, pods, said, account)
	return false
}

// completed is what a rule says that has evicted so many pods.
func completed(pods int) string {
	switch pods {
	case 0:
		return "False NotStarted: "
	case 1:
		return "False Completed: 1 pod evicted so far."
	default:
		return fmt.Sprintf("False Completed: %d pods evicted so far.", pods)
	}
}

// It is not parallel: events on pods are left out while the pods of other tests leave
// faster than events may be written.
func TestEventsTellOfDeviceEvictionsDE42(t *testing.T) {
	s := newSite(t, shared)
	s.publish(t, "pool", dra.Device("leave"), dra.Device("stay"))
	pods := s.place(t,
		use{pod: "leave", claim: "leave", pool: "pool", device: "leave"},
		use{pod: "stay", claim: "stay", pool: "pool", device: "stay", tolerations: []resourcev1.DeviceToleration{dra.TolerateFor(key, 3600)}},
	)
	rule := s.rule(t, "r", "pool", noExecute)
	s.waitAlive(t, map[string]*corev1.Pod{"stay": pods["stay"]})
	s.deleteRule(t, rule.Name)
	for name, message := range map[string]string{"leave": "Marking for deletion", "stay": "Cancelling deletion"} {
		eventually(t, message, func(ctx context.Context) error {
			list, err := s.client.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, event := range list.Items {
				if event.InvolvedObject.UID == pods[name].UID && event.Reason == "DeviceTaintManagerEviction" && event.Message == message &&
					event.Source.Component == "device-taint-eviction-controller" && event.Type == corev1.EventTypeNormal {
					return nil
				}
			}
			return fmt.Errorf("%d other events", len(list.Items))
		})
	}
}
