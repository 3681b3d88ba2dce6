package informer

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

var errContradicted = errors.New("a second list has more objects: the first one lost some by mistake")

// lost reports whether so few objects are found that what is known would be more than
// halved by believing it. The last object counts as well: many clusters have one rule,
// and a list that lacks it by mistake cancels all that the rule asks for.
func lost(known, found int) bool {
	return 2*found < known
}

// believe returns a list, or a page of one, that an informer may take for what there is.
func (g *guarded) believe(ctx context.Context, options metav1.ListOptions, list runtime.Object) (runtime.Object, error) {
	page, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("read a list of %s: %w", g.resource, err)
	}
	known, found := g.count(options.Continue == "", meta.LenList(list))
	if page.GetContinue() != "" || !lost(known, found) {
		return list, nil
	}
	if err := g.pause(ctx); err != nil {
		return nil, err
	}
	second, _, err := pager.New(g.ask).ListWithAlloc(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, g.unconfirmed(ctx, known, found, err)
	}
	again := meta.LenList(second)
	g.judge(ctx, known, found, again)
	switch {
	case again <= found:
		return list, nil
	case options.Continue != "":
		// Pages that were handed out cannot be taken back. This error has the list asked
		// for anew, whole.
		return nil, apierrors.NewResourceExpired(errContradicted.Error())
	}
	// What has been deleted meanwhile comes with the watch, which begins where this list
	// ends. So the one with more objects does no harm if it is wrong.
	return second, nil
}

// confirmed reports whether the objects of a stream may be taken for what there is.
func (g *guarded) confirmed(ctx context.Context, found int) error {
	known, found := g.count(true, found)
	if !lost(known, found) {
		return nil
	}
	if err := g.pause(ctx); err != nil {
		return err
	}
	again := 0
	err := pager.New(g.ask).EachListItem(ctx, metav1.ListOptions{}, func(runtime.Object) error { again++; return nil })
	if err != nil {
		return g.unconfirmed(ctx, known, found, err)
	}
	g.judge(ctx, known, found, again)
	if again > found {
		return errContradicted
	}
	return nil
}

// count returns how many objects are known and how many have been found by now in the
// list that is under way.
func (g *guarded) count(first bool, found int) (known, sum int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if first {
		g.listed = 0
	}
	g.listed += found
	if g.known == nil {
		return 0, g.listed
	}
	return g.known(), g.listed
}

func (g *guarded) pause(ctx context.Context) error {
	timer := g.Clock.NewTimer(g.Pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unconfirmed says that nobody knows whether a loss is one.
func (g *guarded) unconfirmed(ctx context.Context, known, found int, err error) error {
	g.Metrics.doubted.WithLabelValues(g.resource, doubtUnanswered).Inc()
	logr.FromContextOrDiscard(ctx).Info("list has lost most objects and cannot be confirmed, keeping what is known",
		"resource", g.resource, "known", known, "found", found, "reason", err.Error())
	return fmt.Errorf("confirm a list of %s that has %d objects instead of %d: %w", g.resource, found, known, err)
}

// judge counts and says what a second list said of a loss.
func (g *guarded) judge(ctx context.Context, known, found, again int) {
	outcome := doubtContradicted
	if lost(known, again) {
		outcome = doubtConfirmed
	}
	g.Metrics.doubted.WithLabelValues(g.resource, outcome).Inc()
	logr.FromContextOrDiscard(ctx).Info("list has lost most objects, asked again",
		"resource", g.resource, "known", known, "found", found, "again", again, "outcome", outcome)
}
