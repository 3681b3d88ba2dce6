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
	var second runtime.Object
	again, err := g.confirm(ctx, known, found, func(pages *pager.ListPager) (count int, err error) {
		if second, _, err = pages.ListWithAlloc(ctx, metav1.ListOptions{}); err == nil {
			count = meta.LenList(second)
		}
		return count, err
	})
	switch {
	case err != nil:
		return nil, err
	case again <= found:
		return list, nil
	case options.Continue != "":
		// Pages that were handed out cannot be taken back. This error has the list asked
		// for anew, whole.
		return nil, apierrors.NewResourceExpired(errContradicted.Error())
	}
	// A deletion since then comes with the watch, which begins where this list
	// ends. So the one with more objects does no harm if it is wrong.
	return second, nil
}

// confirmed reports whether the objects of a stream may be taken for what there is.
func (g *guarded) confirmed(ctx context.Context, found int) error {
	known, found := g.count(true, found)
	if !lost(known, found) {
		return nil
	}
	again, err := g.confirm(ctx, known, found, func(pages *pager.ListPager) (count int, err error) {
		err = pages.EachListItem(ctx, metav1.ListOptions{}, func(runtime.Object) error { count++; return nil })
		return count, err
	})
	if err == nil && again > found {
		err = errContradicted
	}
	return err
}

// confirm asks for a second list after a pause. It returns how many objects that one has, and
// counts and logs the outcome.
func (g *guarded) confirm(ctx context.Context, known, found int, list func(*pager.ListPager) (int, error)) (int, error) {
	timer := g.Clock.NewTimer(g.Pause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	logger := logr.FromContextOrDiscard(ctx).WithValues("resource", g.resource, "known", known, "found", found)
	again, err := list(pager.New(g.ask))
	if err != nil {
		g.Metrics.doubted.WithLabelValues(g.resource, doubtUnanswered).Inc()
		logger.Info("list has lost most objects and cannot be confirmed, keeping what is known", "reason", err.Error())
		return 0, fmt.Errorf("confirm a list of %s that has %d objects instead of %d: %w", g.resource, found, known, err)
	}
	outcome := doubtContradicted
	if lost(known, again) {
		outcome = doubtConfirmed
	}
	g.Metrics.doubted.WithLabelValues(g.resource, outcome).Inc()
	logger.Info("list has lost most objects, asked again", "again", again, "outcome", outcome)
	return again, nil
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
	if g.known != nil {
		known = len(g.known.ListKeys())
	}
	return known, g.listed
}
