package install_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// patience is far above what anything here takes.
const patience = time.Minute

var (
	shared   *controlplane.ControlPlane
	tollgate *install.Tollgate
	programs binaries.Binaries
)

func TestMain(m *testing.M) {
	os.Exit(suite.Run(m, "install", controlplane.Options{Nodes: 1},
		func(ctx context.Context, cp *controlplane.ControlPlane) (func(), error) {
			shared = cp
			var err error
			if programs, err = suite.Binaries(ctx); err != nil {
				return nil, err
			}
			if err := programs.BuildTollgate(ctx); err != nil {
				return nil, err
			}
			tollgate, err = install.Install(ctx, cp, install.Options{Programs: programs})
			return nil, err
		}))
}

func clientFor(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// dryRun creates a pod as a dry run, which the validating webhook is asked about.
func dryRun(t *testing.T) error {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
	_, err := clientFor(t, shared.Kubeconfig()).CoreV1().Pods(metav1.NamespaceDefault).
		Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func TestTollgateRunsAsItsServiceAccount(t *testing.T) {
	client := clientFor(t, tollgate.Kubeconfig)
	review, err := client.AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, "system:serviceaccount:tollgate-system:tollgate", review.Status.UserInfo.Username)
	require.NotContains(t, review.Status.UserInfo.Groups, "system:masters")

	_, err = client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestWhatTollgateServes(t *testing.T) {
	for _, path := range []string{"/healthz", "/readyz"} {
		status, _ := get(t, tollgate.HealthURL+path)
		require.Equal(t, http.StatusOK, status, path)
	}
	status, body := get(t, tollgate.MetricsURL)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "tollgate_")
}

// What shows that Install and Start wait for what they say they wait for.
func TestThePodsThatTheWebhookJudgesNeedTollgate(t *testing.T) {
	require.NoError(t, dryRun(t))
	ends := map[string]func(context.Context) error{
		"killed":     tollgate.Kill,
		"terminated": tollgate.Terminate,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			before, err := tollgate.Process()
			require.NoError(t, err)
			require.NoError(t, end(t.Context()))
			require.False(t, tollgate.Alive())
			require.ErrorContains(t, dryRun(t), "failed calling webhook")

			require.NoError(t, tollgate.Start(t.Context()))
			require.NoError(t, dryRun(t))
			after, err := tollgate.Process()
			require.NoError(t, err)
			require.NotEqual(t, before.Identity(), after.Identity())
		})
	}
}

func TestAnInstalledTollgateEvicts(t *testing.T) {
	client := clientFor(t, shared.Kubeconfig())
	namespace, err := shared.CreateNamespace(t.Context(), "install-")
	require.NoError(t, err)
	pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec: corev1.PodSpec{
			NodeName:   controlplane.NodeName(1),
			Containers: []corev1.Container{{Name: "c", Image: "image"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = install.Kubectl(t.Context(), shared, "taint", "node", pod.Spec.NodeName, "maintenance=:NoExecute")
	require.NoError(t, err)
	t.Cleanup(func() {
		out, err := install.Kubectl(context.WithoutCancel(t.Context()), shared, "taint", "node", pod.Spec.NodeName, "maintenance-")
		require.NoError(t, err, "%s", out)
	})
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, 50*time.Millisecond)
}

func TestASettingThatIsUnknownFailsTheInstallWithOneLineAndTheLog(t *testing.T) {
	_, err := install.Install(t.Context(), shared, install.Options{
		Name: "misconfigured", Programs: programs, Replica: true,
		Patch: func(config map[string]any) { config["noSuchSetting"] = true },
	})
	require.Regexp(t, `^start misconfigured: ended with exit status 1 \(log: /.*/logs/misconfigured\.log\)$`, err.Error())
	log, readErr := os.ReadFile(filepath.Join(shared.Dir(), "logs", "misconfigured.log"))
	require.NoError(t, readErr)
	require.Contains(t, string(log), "noSuchSetting")
}

func TestAManifestThatIsMissingIsNamed(t *testing.T) {
	err := install.Apply(t.Context(), shared, filepath.Join(t.TempDir(), "missing"))
	require.ErrorContains(t, err, "missing")
}
