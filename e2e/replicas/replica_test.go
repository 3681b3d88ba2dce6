package replicas

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tollgate-dev/tollgate/e2e/balancer"
	"github.com/tollgate-dev/tollgate/e2e/faultproxy"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// replica is a Tollgate behind the balancer.
type replica struct {
	*install.Tollgate

	proxy *faultproxy.Proxy
	// address is where its webhooks listen.
	address string
}

// installReplica installs Tollgate, or one more replica of it.
func installReplica(ctx context.Context, name string, joins bool) (*replica, error) {
	r := &replica{}
	var prepared error
	patch := func(config map[string]any) { prepared = r.prepare(name, config) }
	var err error
	r.Tollgate, err = install.Install(ctx, shared, install.Options{Name: name, Programs: programs, Replica: joins, Patch: patch})
	return r, errors.Join(prepared, err)
}

// prepare puts a replica between the balancer and its proxy.
func (r *replica) prepare(name string, config map[string]any) error {
	webhook, isMap := config["webhook"].(map[string]any)
	health, healthIsMap := config["health"].(map[string]any)
	if !isMap || !healthIsMap {
		return fmt.Errorf("configuration of %s: %v", name, config)
	}
	r.address = fmt.Sprint(webhook["bindAddress"])
	webhook["url"] = "https://" + service.Address()
	webhook["drainPeriod"] = drainPeriod.String()
	config["leaderElection"] = map[string]any{
		"leaseDuration": leaseDuration.String(), "renewDeadline": renewDeadline.String(), "retryPeriod": retryPeriod.String(),
	}
	// So that many evictions take some seconds.
	config["clientConnection"] = map[string]any{"qps": 60, "burst": 60}

	path := filepath.Join(shared.Dir(), "tollgate", name+".kubeconfig")
	client, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return err
	}
	r.proxy, err = faultproxy.Start(faultproxy.Options{Client: client, Replica: name, Record: written.add})
	if err != nil {
		return err
	}
	service.Add(balancer.Backend{Address: r.address, ReadyURL: fmt.Sprintf("http://%v/readyz", health["bindAddress"])})
	return r.proxy.WriteKubeconfig(path)
}

// signal sends a signal to the process of the replica, and returns when it did.
func (r *replica) signal(t *testing.T, signal syscall.Signal) time.Time {
	t.Helper()
	p, err := r.Process()
	require.NoError(t, err)
	at := time.Now()
	require.NoError(t, p.Signal(signal))
	return at
}

// wait returns when the process has ended.
func (r *replica) wait(t *testing.T) {
	t.Helper()
	p, err := r.Process()
	require.NoError(t, err)
	require.NoError(t, p.Wait(t.Context()))
}

// restart starts a replica that has ended, and returns when it is given connections.
func (r *replica) restart(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Start(t.Context()))
	waitGiven(t, first, second)
}

func waitGiven(t *testing.T, replicas ...*replica) {
	t.Helper()
	eventually(t, "replicas behind the service", func(context.Context) error {
		given := strings.Join(service.Given(), " ")
		for _, r := range replicas {
			if !strings.Contains(given, r.address) {
				return fmt.Errorf("%s is not among %s", r.Name, given)
			}
		}
		return nil
	})
}

// waitNotGiven returns when a replica that has ended is given no more connections. Until
// the service hears of it, every second one is.
func (r *replica) waitNotGiven(t *testing.T) time.Time {
	t.Helper()
	eventually(t, "no replica that has ended behind the service", func(context.Context) error {
		if given := service.Given(); slices.Contains(given, r.address) {
			return fmt.Errorf("%s is among %v", r.Name, given)
		}
		return nil
	})
	return time.Now()
}

// record is what replicas wrote.
type record struct {
	mu     sync.Mutex
	writes []faultproxy.Write
}

func (r *record) add(write faultproxy.Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, write)
}

// find returns the writes that a filter lets through.
func (r *record) find(keep func(faultproxy.Write) bool) []faultproxy.Write {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []faultproxy.Write
	for _, write := range r.writes {
		if keep(write) {
			found = append(found, write)
		}
	}
	return found
}

// toPods are the writes of a replica to pods that it sent in a span of time, if only to
// be refused.
func (r *replica) toPods(from, to time.Time) []faultproxy.Write {
	return written.find(func(w faultproxy.Write) bool {
		return w.Replica == r.Name && w.Resource == "pods" && !w.Sent.Before(from) && w.Sent.Before(to)
	})
}

// term is a write by which a replica took or kept the lease.
type term struct {
	replica *replica
	holder  string
	// sent and answered are when the replica asked for it, and when it got it.
	sent, answered time.Time
}

// terms are the writes of the lease since some time by which a replica took or kept it.
func terms(t *testing.T, since time.Time) []term {
	t.Helper()
	return slices.DeleteFunc(leaseWrites(t, since), func(w term) bool { return w.holder == "" })
}

// leaseWrites are all writes of the lease since some time, in the order of the answers. Who
// gives it back leaves no holder.
func leaseWrites(t *testing.T, since time.Time) []term {
	t.Helper()
	var found []term
	for _, w := range written.find(func(w faultproxy.Write) bool {
		return w.Resource == "leases" && w.Status/100 == http.StatusOK/100 && w.Given == w.Status && w.Answered.After(since)
	}) {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(w.Body, nil, nil)
		require.NoError(t, err)
		lease, ok := object.(*coordinationv1.Lease)
		require.True(t, ok, "%T", object)
		holder := ""
		if lease.Spec.HolderIdentity != nil {
			holder = *lease.Spec.HolderIdentity
		}
		by := first
		if w.Replica == second.Name {
			by = second
		}
		found = append(found, term{by, holder, w.Sent, w.Answered})
	}
	// They are recorded when the client has its answer, which may be in another order.
	slices.SortFunc(found, func(a, b term) int { return a.answered.Compare(b.answered) })
	return found
}

// waitLeader returns the replica that leads, and the other one.
func waitLeader(t *testing.T) (leader, standby *replica) {
	t.Helper()
	since := time.Now()
	eventually(t, "a leader", func(context.Context) error {
		if len(terms(t, since)) == 0 {
			return errors.New("nobody has renewed the lease")
		}
		return nil
	})
	if latest := terms(t, since); latest[len(latest)-1].replica == second {
		return second, first
	}
	return first, second
}

// waitTerm returns when a replica first got the lease after some time.
func (r *replica) waitTerm(t *testing.T, since time.Time) time.Time {
	t.Helper()
	var at time.Time
	eventually(t, r.Name+" leads", func(context.Context) error {
		for _, term := range terms(t, since) {
			if term.replica == r {
				at = term.answered
				return nil
			}
		}
		return errors.New("not yet")
	})
	return at
}

// gaveBack returns when a replica first gave the lease back after some time.
func (r *replica) gaveBack(t *testing.T, since time.Time) time.Time {
	t.Helper()
	var at time.Time
	eventually(t, r.Name+" gives the lease back", func(context.Context) error {
		for _, write := range leaseWrites(t, since) {
			if write.replica == r && write.holder == "" {
				at = write.answered
				return nil
			}
		}
		return errors.New("not yet")
	})
	return at
}

// lastRenewal is when a replica last asked, with success, for what it holds.
func (r *replica) lastRenewal(t *testing.T) time.Time {
	t.Helper()
	var last time.Time
	for _, term := range terms(t, time.Time{}) {
		if term.replica == r {
			last = term.sent
		}
	}
	return last
}
