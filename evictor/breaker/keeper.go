package breaker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/evictor/controller"
)

const (
	// workers is the number of ledgers that are checked concurrently.
	workers = 8
	// retryBase and retryMax bound the wait after a request that failed.
	retryBase = 50 * time.Millisecond
	retryMax  = 5 * time.Second
	// longestPause bounds the wait that the API server may ask for.
	longestPause = time.Minute
	// leadingPause is the wait of a pod that asks while this replica does not lead.
	leadingPause = time.Second
)

// queueName is the name label of the workqueue metrics.
const queueName = "tollgate-breakers"

// approvalsKey is the key of the queue for the list of approvals; the other keys are UIDs.
const approvalsKey types.UID = ""

// Keeper keeps the breakers of EvictionPolicies. Its methods are safe for concurrent use. They do
// not block, except Start.
type Keeper struct {
	options Options
	evictor evictor
	// queue has the UIDs of the policies and approvals whose ledgers have to be checked.
	queue *controller.Controller[types.UID]

	mu sync.Mutex
	// ledgers are those of this term of leadership, by UID; nil while this replica does not lead.
	ledgers map[types.UID]*ledger
	// approvals are those that have not expired, the oldest first; none while no breaker is tripped.
	approvals []*v1alpha1.EvictionApproval
}

// New returns a keeper. It starts no goroutines; Start does.
func New(options Options) *Keeper {
	k := &Keeper{options: options}
	k.queue = controller.New(
		controller.Base{Local: options.Local, Leads: options.Leads, Timeout: options.Timeout},
		controller.Options[types.UID]{
			Name: queueName, Workers: workers, RetryBase: retryBase, RetryMax: retryMax,
			Started: k.PoliciesChanged, Reconcile: k.reconcile,
		},
	)
	return k
}

// Follow sets the evictor whose pods the breakers hold. It is called once, before Start; the
// evictor itself is made with the keeper.
func (k *Keeper) Follow(e evictor) { k.evictor = e }

// Start keeps breakers until ctx is done, which ends the term of leadership. It may be called again
// then.
func (k *Keeper) Start(ctx context.Context) error {
	k.begin(map[types.UID]*ledger{})
	var queue sync.WaitGroup
	queue.Go(func() { _ = k.queue.Start(ctx) }) // It returns no error.
	<-ctx.Done()
	k.begin(nil) // No pod is let go from now on.
	queue.Wait()
	k.options.Metrics.tripped.Set(0)
	return nil
}

// begin begins a term of leadership, or with nil the time after one.
func (k *Keeper) begin(ledgers map[types.UID]*ledger) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ledgers, k.approvals = ledgers, nil
}

// PoliciesChanged is called after the policies in force changed. It makes ledgers for new policies,
// and has all ledgers checked.
func (k *Keeper) PoliciesChanged() {
	policies := k.options.Policies().All()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ledgers == nil {
		return
	}
	for _, policy := range policies {
		k.ledger(policy.UID, policy.Name, false)
	}
	k.queue.Add(approvalsKey)
	for uid := range k.ledgers {
		k.queue.Add(uid)
	}
}

// ledger returns the ledger of a policy or an approval, and makes it if there is none. The caller
// holds the mutex.
func (k *Keeper) ledger(uid types.UID, name string, approval bool) *ledger {
	l, ok := k.ledgers[uid]
	if !ok {
		l = &ledger{
			account: account{moving: map[*counted]struct{}{}}, name: name, uid: uid, approval: approval,
			counted: map[types.UID]*counted{},
		}
		k.ledgers[uid] = l
		k.queue.Add(uid)
	}
	return l
}

// tripped returns the policies whose breakers are tripped.
func (k *Keeper) tripped() []types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	var uids []types.UID
	for uid, l := range k.ledgers {
		if l.tripped() {
			uids = append(uids, uid)
		}
	}
	return uids
}

// reconcile checks a ledger, unless the ledger pauses. It returns after how long to check it again.
// A breaker that is released wakes the pods that it held, whichever replica wrote that.
func (k *Keeper) reconcile(ctx context.Context, uid types.UID) (time.Duration, error) {
	if uid == approvalsKey {
		k.refreshApprovals(ctx)
		return activePause, nil
	}
	var pause time.Duration
	var held bool
	k.mu.Lock()
	l := k.ledgers[uid]
	if l != nil {
		pause, held = l.pause.Sub(k.options.Local.Now()), l.tripped()
	}
	k.mu.Unlock()
	switch {
	case l == nil: // It was dropped.
		return 0, nil
	case pause > 0:
		return 0, controller.DelayError(pause)
	}
	err := controller.Contain(ctx, queueName, func() (err error) {
		pause, err = k.check(ctx, l)
		return err
	})
	if err != nil {
		pause = min(k.queue.Backoff(uid, err), longestPause)
		log := logr.FromContextOrDiscard(ctx)
		if l.failed || apierrors.IsConflict(err) || ctx.Err() != nil {
			log = log.V(1) // The first failure was logged, or this is no fault.
		}
		log.Info("cannot write what a breaker counts yet", "reason", err.Error())
	}
	l.failed = err != nil
	again := k.schedule(l, pause)
	tripped := k.tripped()
	k.options.Metrics.tripped.Set(float64(len(tripped)))
	switch holds := slices.Contains(tripped, uid); {
	case held && !holds:
		k.evictor.WakeHeld(uid)
	case holds && !held:
		k.queue.Add(approvalsKey)
	}
	if err != nil {
		return 0, controller.DelayError(pause)
	}
	return again, nil
}

// schedule begins the pause of a ledger, in which pods that ask do not have it checked. It returns the
// time to the next check if none asks.
func (k *Keeper) schedule(l *ledger, pause time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.pause = k.options.Local.Now().Add(pause)
	if l.terms == nil || l.tripped() || len(l.reservations) > 0 {
		return pause + activePause
	}
	return pause + idlePause
}
