package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const (
	inProgress = resourcev1.DeviceTaintConditionEvictionInProgress
	preview    = "tollgate.dev/EvictionPreview"
)

// rules returns a client for rules in the version of the site. They have the same
// fields in all versions.
func (s *site) rules(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(s.plane.restConfig())
	require.NoError(t, err)
	return client.Resource(resourcev1.SchemeGroupVersion.WithResource("devicetaintrules").GroupResource().WithVersion(s.version))
}

func (s *site) encode(rule *resourcev1.DeviceTaintRule) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rule)
	if err != nil {
		return nil, fmt.Errorf("encode rule: %w", err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(resourcev1.GroupName + "/" + s.version)
	object.SetKind("DeviceTaintRule")
	return object, nil
}

func decode(object *unstructured.Unstructured) (*resourcev1.DeviceTaintRule, error) {
	rule := &resourcev1.DeviceTaintRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, rule); err != nil {
		return nil, fmt.Errorf("decode rule: %w", err)
	}
	return rule, nil
}

// createRule creates a rule, and returns it as it was stored.
func (s *site) createRule(t *testing.T, rule *resourcev1.DeviceTaintRule) *resourcev1.DeviceTaintRule {
	t.Helper()
	object, err := s.encode(rule)
	require.NoError(t, err)
	object, err = s.rules(t).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	rule, err = decode(object)
	require.NoError(t, err)
	return rule
}

// rule creates a rule that selects by pool.
func (s *site) rule(t *testing.T, name, pool string, effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
	t.Helper()
	return s.createRule(t, s.poolRule(name, pool, effect))
}

func (s *site) poolRule(name, pool string, effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
	rule := dra.Rule(s.namespace+"-"+name, s.driver, dra.Taint(key, "", effect))
	rule.Spec.DeviceSelector.Pool = &pool
	return rule
}

// warnings keeps what the API server warns of.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns what came since it was called last.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// waitForeseen waits until Tollgate would warn of so many pods that a rule for a pool
// evicts. What it says once, of the rule that comes next, is from what it knows then; its
// watches of pods and of claims may be behind that of rules.
func (s *site) waitForeseen(t *testing.T, pool string, pods int) {
	t.Helper()
	object, err := s.encode(s.poolRule("foreseen", pool, resourcev1.DeviceTaintEffectNone))
	require.NoError(t, err)
	heard := &warnings{}
	config := s.plane.restConfig()
	config.WarningHandler = heard
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	rules := client.Resource(resourcev1.SchemeGroupVersion.WithResource("devicetaintrules"))
	words := fmt.Sprintf("it would evict %d pods ", pods)
	eventually(t, "pods foreseen", func(ctx context.Context) error {
		if _, err := rules.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err
		}
		texts := heard.take()
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, words) }) {
			return fmt.Errorf("it warns of %q", texts)
		}
		return nil
	})
}

func (s *site) getRule(ctx context.Context, t *testing.T, name string) (*resourcev1.DeviceTaintRule, error) {
	t.Helper()
	object, err := s.rules(t).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get rule: %w", err)
	}
	return decode(object)
}

func (s *site) editRule(t *testing.T, name string, edit func(*resourcev1.DeviceTaintRule)) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		rule, err := s.getRule(t.Context(), t, name)
		if err != nil {
			return err
		}
		edit(rule)
		object, err := s.encode(rule)
		if err != nil {
			return err
		}
		_, err = s.rules(t).Update(t.Context(), object, metav1.UpdateOptions{})
		return err
	}))
}

func (s *site) deleteRule(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, s.rules(t).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// condition returns a condition of a rule as "status reason: message", or why there
// is none of this generation.
func condition(rule *resourcev1.DeviceTaintRule, kind string) string {
	for _, c := range rule.Status.Conditions {
		switch {
		case c.Type != kind:
		case c.ObservedGeneration != rule.Generation:
			return "of an older generation"
		default:
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "absent"
}

// waitCondition waits until the condition of a rule begins with some words, and
// returns it.
func (s *site) waitCondition(t *testing.T, rule, kind, words string) string {
	t.Helper()
	var got string
	eventually(t, "condition of rule "+rule, func(ctx context.Context) error {
		current, err := s.getRule(ctx, t, rule)
		if err != nil {
			return err
		}
		if got = condition(current, kind); !strings.HasPrefix(got, words) {
			return fmt.Errorf("%s is %q, not %q", kind, got, words)
		}
		return nil
	})
	return got
}
