package plugins

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	kubefeatures "k8s.io/kubernetes/pkg/features"

	"github.com/tollgate-dev/tollgate/scheduler/view"
	"github.com/tollgate-dev/tollgate/tracker"
)

// byPool is the index of the rules that were written out for patches.
const byPool = "tollgate.dev/written-for-pool"

// writtenRules finds rules in the informer that feeds the scheduler's tracker.
type writtenRules struct {
	indexer cache.Indexer
}

// rulesOf adds an index to the informer of DeviceTaintRules. Where the scheduler's
// tracker has none there is nothing to leave out, and an informer would wait for a kind
// that may not be served.
func rulesOf(factory informers.SharedInformerFactory) (view.Rules, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(kubefeatures.DRADeviceTaintRules) {
		return view.NoRules{}, nil
	}
	informer := factory.Resource().V1().DeviceTaintRules().Informer()
	if err := informer.AddIndexers(cache.Indexers{byPool: poolsOfRule}); err != nil {
		return nil, fmt.Errorf("add index %s to the informer of DeviceTaintRules: %w", byPool, err)
	}
	return writtenRules{indexer: informer.GetIndexer()}, nil
}

// WrittenFor implements view.Rules.
func (r writtenRules) WrittenFor(driver, pool string) []*resourcev1.DeviceTaintRule {
	var found []*resourcev1.DeviceTaintRule
	for _, driver := range []*string{nil, &driver} {
		for _, pool := range []*string{nil, &pool} {
			objects, err := r.indexer.ByIndex(byPool, poolKey(driver, pool))
			if err != nil {
				return nil // Not possible: the index is there.
			}
			for _, object := range objects {
				if rule, ok := object.(*resourcev1.DeviceTaintRule); ok {
					found = append(found, rule)
				}
			}
		}
	}
	return found
}

// poolsOfRule is what the index has a rule under.
func poolsOfRule(object any) ([]string, error) {
	rule, ok := object.(*resourcev1.DeviceTaintRule)
	if !ok || rule.Spec.DeviceSelector == nil || tracker.PatchOf(rule) == (tracker.PatchRef{}) {
		return nil, nil
	}
	return []string{poolKey(rule.Spec.DeviceSelector.Driver, rule.Spec.DeviceSelector.Pool)}, nil
}

// poolKey has a driver before the first slash, which no driver's name has. A part is
// empty for any.
func poolKey(driver, pool *string) string {
	key := ""
	if driver != nil {
		key = *driver
	}
	key += "/"
	if pool != nil {
		key += *pool
	}
	return key
}
