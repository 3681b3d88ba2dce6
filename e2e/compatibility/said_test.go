package compatibility

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// errNotYet is why something is looked at again.
var errNotYet = errors.New("not yet")

// mentions reports an error unless all of some words are in a text.
func mentions(text string, words ...string) error {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Errorf("it does not say %q: %s", word, text)
		}
	}
	return nil
}

// requireState returns when tollgate_api_resources says of a resource that it is in a state,
// and in no other.
func requireState(t *testing.T, resource, want string) {
	t.Helper()
	eventually(t, resource+" is "+want, func(ctx context.Context) error {
		families, err := metrics(ctx)
		if err != nil {
			return err
		}
		var states []string
		for _, m := range families["tollgate_api_resources"].GetMetric() {
			labels := map[string]string{}
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["resource"] == resource && m.GetGauge().GetValue() == 1 {
				states = append(states, labels["state"])
			}
		}
		if len(states) != 1 || states[0] != want {
			return fmt.Errorf("it is %v", states)
		}
		return nil
	})
}

// requireSaidUnserved returns when the log has said that a resource is not served.
func requireSaidUnserved(t *testing.T, resource string) {
	t.Helper()
	becomes(t, "the log says that "+resource+" are not served", func() error {
		lines, err := logLines(`"not served by the API server"`, `"`+resource+`.resource.k8s.io"`)
		if err == nil && lines == 0 {
			err = errNotYet
		}
		return err
	})
}
