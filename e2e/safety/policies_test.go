package safety

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// objectsOf returns a client for the kinds of Tollgate.
func objectsOf(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	config := shared.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// govern creates an EvictionPolicy about a taint of nodes, and returns when Tollgate
// evicts by it. The policy goes when the test is over.
func govern(t *testing.T, name, key string, edit func(*v1alpha1.EvictionPolicySpec)) {
	t.Helper()
	c := objectsOf(t)
	policy := &v1alpha1.EvictionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.EvictionPolicySpec{Taints: []v1alpha1.TaintSelector{{Key: key}}},
	}
	edit(&policy.Spec)
	require.NoError(t, c.Create(t.Context(), policy))
	t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), policy)) })
	eventually(t, "policy "+name+" is in force", func(ctx context.Context) error {
		status, err := statusOf(ctx, c, name)
		if err == nil && !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
			err = errors.New("not Ready")
		}
		return err
	})
}

func statusOf(ctx context.Context, c client.Client, name string) (v1alpha1.EvictionPolicyStatus, error) {
	var policy v1alpha1.EvictionPolicy
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &policy); err != nil {
		return v1alpha1.EvictionPolicyStatus{}, fmt.Errorf("get policy: %w", err)
	}
	return policy.Status, nil
}

// waitHeld returns the status of a policy once it says that so many pods are held, and
// why.
func waitHeld(t *testing.T, name string, want int32, reason string) v1alpha1.EvictionPolicyStatus {
	t.Helper()
	c := objectsOf(t)
	var status v1alpha1.EvictionPolicyStatus
	eventually(t, fmt.Sprintf("%s holds %d", name, want), func(ctx context.Context) (err error) {
		if status, err = statusOf(ctx, c, name); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionHeld)
		if status.Held != want || condition == nil || condition.Reason != reason {
			return fmt.Errorf("held %d, condition %+v", status.Held, condition)
		}
		return nil
	})
	return status
}

// waitMetric waits until the sum of Tollgate's series with a name and all of the labels,
// each as in `reason="budget"`, is as wanted.
func waitMetric(t *testing.T, want float64, name string, labels ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s %v", name, labels), func(ctx context.Context) error {
		sum, err := metric(ctx, name, labels...)
		if err == nil && sum != want {
			err = fmt.Errorf("it is %v, not %v", sum, want)
		}
		return err
	})
}

func metric(ctx context.Context, name string, labels ...string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, tollgate.MetricsURL, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(body)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of, _, _ := strings.Cut(series, "{"); of != name || !hasAll(series, labels) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("parse metric %s: %w", name, err)
		}
		sum, found = sum+number, true
	}
	if !found {
		return 0, fmt.Errorf("there is no metric %s", name)
	}
	return sum, nil
}
