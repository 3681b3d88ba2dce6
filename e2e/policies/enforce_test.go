package policies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// resources of Tollgate by their kind.
var resources = map[string]string{
	"TolerationPolicy": "tolerationpolicies",
	"PlacementPolicy":  "placementpolicies",
	"TaintPolicy":      "taintpolicies",
	"GatePolicy":       "gatepolicies",
	"EvictionPolicy":   "evictionpolicies",
	"EvictionApproval": "evictionapprovals",
}

// ofTollgate returns the resource of a kind of Tollgate.
func ofTollgate(kind string) schema.GroupVersionResource {
	return v1alpha1.GroupVersion.WithResource(resources[kind])
}

// objects reads YAML, of one document or several. Objects of Tollgate may leave out
// the apiVersion.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var read []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return read
		}
		require.NoError(t, err, text)
		if len(object.Object) == 0 {
			continue
		}
		if object.GetAPIVersion() == "" {
			object.SetAPIVersion(v1alpha1.GroupVersion.String())
		}
		read = append(read, object)
	}
}

// enforce creates the policies of a YAML text for the length of the test, and returns
// when Tollgate judges by them.
func enforce(t *testing.T, text string) {
	t.Helper()
	for _, policy := range objects(t, text) {
		require.NoError(t, admin(t).write(t, policy), text)
		t.Cleanup(func() { withdraw(t, policy.GetKind(), policy.GetName()) })
		waitReadyPolicy(t, policy.GetKind(), policy.GetName())
	}
	waitInForce(t)
}

// write creates an object of Tollgate as somebody. A field that the schema does not
// know is an error.
func (p *person) write(t *testing.T, object *unstructured.Unstructured) error {
	t.Helper()
	_, err := p.resource(t, ofTollgate(object.GetKind()), "").
		Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	return err
}

// withdraw deletes a policy, if it is there, and returns when Tollgate no longer
// judges by it.
func withdraw(t *testing.T, kind, name string) {
	t.Helper()
	err := admin(t).resource(t, ofTollgate(kind), "").Delete(afterwards(t), name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
	waitInForce(t)
}

// change replaces the spec of a policy by what edit makes of it, and returns when
// Tollgate judges by that.
func change(t *testing.T, kind, name string, edit func(spec map[string]any)) {
	t.Helper()
	client := admin(t).resource(t, ofTollgate(kind), "")
	eventually(t, "policy "+name+" is changed", func(ctx context.Context) error {
		policy, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(policy.Object["spec"].(map[string]any))
		_, err = client.Update(ctx, policy, metav1.UpdateOptions{})
		return err
	})
	waitReadyPolicy(t, kind, name)
}

// waitReadyPolicy returns when the status of a policy says that its newest generation
// is in force.
func waitReadyPolicy(t *testing.T, kind, name string) {
	t.Helper()
	eventually(t, kind+" "+name+" is in force", func(ctx context.Context) error {
		policy, err := admin(t).resource(t, ofTollgate(kind), "").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return inForce(policy)
	})
}

func inForce(policy *unstructured.Unstructured) error {
	conditions, _, err := unstructured.NestedSlice(policy.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, condition := range conditions {
		c, ok := condition.(map[string]any)
		if !ok || c["type"] != v1alpha1.ConditionReady {
			continue
		}
		if c["status"] == "True" && c["observedGeneration"] == policy.GetGeneration() {
			return nil
		}
	}
	return fmt.Errorf("generation %d, conditions %v", policy.GetGeneration(), conditions)
}

// waitInForce returns when Tollgate judges by as many policies as there are. As it is
// called after each policy that comes or goes, it judges by the same ones then.
func waitInForce(t *testing.T) {
	t.Helper()
	eventually(t, "Tollgate judges by the policies there are", func(ctx context.Context) error {
		for _, kind := range []string{"TolerationPolicy", "PlacementPolicy", "TaintPolicy", "GatePolicy", "EvictionPolicy"} {
			list, err := admin(t).resource(t, ofTollgate(kind), "").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			judged, err := metric(ctx, "tollgate_policies", `kind="`+kind+`"`)
			if err != nil {
				return err
			}
			if int(judged) != len(list.Items) {
				return fmt.Errorf("it judges by %v of %d of kind %s", judged, len(list.Items), kind)
			}
		}
		return nil
	})
}

// metric returns the sum of Tollgate's series with a name and all of the labels, each
// as in `operation="CREATE"`.
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
	for line := range strings.SplitSeq(string(body), "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ") || !containsAll(rest, labels) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %q: %w", line, err)
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s %v", name, labels)
	}
	return sum, nil
}
