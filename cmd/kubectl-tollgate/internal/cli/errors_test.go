package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestErrorsOfRequestsAreInPlainWords(t *testing.T) {
	t.Parallel()
	pods, rules := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Group: "resource.k8s.io", Resource: "devicetaintrules"}
	byRBAC := func(resource schema.GroupResource) error {
		return apierrors.NewForbidden(resource, "", errors.New(`User "eve" cannot list resource "`+resource.Resource+`" in API group "" at the cluster scope`))
	}
	denied := apierrors.NewForbidden(rules, "hot", errors.New("admission says that you cannot"))
	for sentence, c := range map[string]struct {
		err  error
		want string
	}{
		"what RBAC refuses is said once, with who is refused": {
			Failed(byRBAC(pods), "list pods", "list", pods),
			`you (eve) may not list pods (ask for a ClusterRole with the verb list on pods of API group "")`,
		},
		"in a namespace a Role is enough": {
			FailedIn(fmt.Errorf("page 2: %w", byRBAC(pods)), "ml", "list", pods),
			`you (eve) may not list pods in namespace ml (ask for a Role there with the verb list on pods of API group "")`,
		},
		"what admission says is shown": {
			Failed(denied, "create DeviceTaintRule hot", "create", rules),
			`create DeviceTaintRule hot: devicetaintrules.resource.k8s.io "hot" is forbidden: admission says that you cannot`,
		},
		"what admission says of a namespace is shown too": {
			FailedIn(denied, "ml", "create", rules),
			`create devicetaintrules.resource.k8s.io in namespace ml: devicetaintrules.resource.k8s.io "hot" is forbidden: admission says that you cannot`,
		},
		"who is nobody logs in": {
			FailedIn(apierrors.NewUnauthorized("expired"), "ml", "list", pods),
			"list pods in namespace ml: expired (the credentials of the kubeconfig are not accepted: log in again)",
		},
		"all else is as it is": {Failed(errors.New("connection refused"), "list pods", "list", pods), "list pods: connection refused"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, c.err, c.want)
		})
	}
	require.NoError(t, Failed(nil, "list pods", "list", pods))
	require.NoError(t, FailedIn(nil, "ml", "list", pods))
	require.True(t, apierrors.IsForbidden(Failed(byRBAC(pods), "list pods", "list", pods)), "the cause is kept")
}

func TestExitCodesTellNoFromNoAnswer(t *testing.T) {
	t.Parallel()
	require.Zero(t, ExitCode(nil))
	require.Equal(t, 1, ExitCode(errors.New("no such file")))
	verdict := &VerdictError{Reason: "3 of 7 objects do not pass"}
	require.Equal(t, 2, ExitCode(fmt.Errorf("check: %w", verdict)))
	require.EqualError(t, verdict, "3 of 7 objects do not pass")
}
