package admission

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// policiesOf returns a client of policies for the administrator.
func policiesOf(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c, err := client.New(shared.RESTConfig(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// guarding is the spec of a policy that guards keys of nodes, and denies.
func guarding(keys ...string) v1alpha1.TolerationPolicySpec {
	var spec v1alpha1.TolerationPolicySpec
	for _, key := range keys {
		spec.Taints = append(spec.Taints, v1alpha1.TaintSelector{Key: key})
	}
	return spec
}

// granting adds grants to a spec.
func granting(spec v1alpha1.TolerationPolicySpec, grants ...v1alpha1.TolerationGrant) v1alpha1.TolerationPolicySpec {
	spec.Grants = append(spec.Grants, grants...)
	return spec
}

// enforce creates a policy for the length of the test and returns when Tollgate
// judges by it.
func enforce(t *testing.T, name string, spec v1alpha1.TolerationPolicySpec) *v1alpha1.TolerationPolicy {
	t.Helper()
	policy := &v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	require.NoError(t, policiesOf(t).Create(t.Context(), policy))
	t.Cleanup(func() { withdraw(afterwards(t), t, name) })
	waitInForce(t.Context(), t)
	return policy
}

// withdraw deletes a policy, if it is there, and returns when Tollgate no longer
// judges by it.
func withdraw(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	policy := &v1alpha1.TolerationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, client.IgnoreNotFound(policiesOf(t).Delete(ctx, policy)))
	waitInForce(ctx, t)
}

// waitInForce returns when Tollgate judges by as many policies as there are. As it is
// called after each policy that comes or goes, it judges by the same ones then.
func waitInForce(ctx context.Context, t *testing.T) {
	t.Helper()
	c := policiesOf(t)
	eventually(ctx, t, "Tollgate judges by the policies there are", func(ctx context.Context) error {
		var list v1alpha1.TolerationPolicyList
		if err := c.List(ctx, &list); err != nil {
			return err
		}
		judged, err := metric(ctx, "tollgate_policies{")
		if err != nil {
			return err
		}
		if int(judged) != len(list.Items) {
			return fmt.Errorf("it judges by %v of %d", judged, len(list.Items))
		}
		return nil
	})
}

// metric returns the sum of Tollgate's series whose names begin with prefix.
func metric(ctx context.Context, prefix string) (float64, error) {
	_, body, err := suite.Fetch(ctx, tollgate.MetricsURL)
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range strings.SplitSeq(body, "\n") {
		if !strings.HasPrefix(line, prefix) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %q: %w", line, err)
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, errors.New("no metric " + prefix)
	}
	return sum, nil
}
