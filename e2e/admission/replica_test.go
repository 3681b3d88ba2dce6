package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

// replica is one more Tollgate, with ports of its own.
type replica struct {
	process    *process.Process
	webhookURL string
	healthURL  string
}

// server is where a Tollgate finds the API server, and what it trusts there.
type server struct {
	url string
	ca  []byte
}

// apiServer is the API server itself.
func apiServer() server {
	config := shared.RESTConfig()
	return server{config.Host, config.CAData}
}

// startReplica starts one more Tollgate for the length of the test. All are registered
// by the URL of the first, as the replicas of a Deployment are by that of a Service.
// Changes are made to what is run.
func startReplica(t *testing.T, name string, at server, changes ...func(*process.Spec)) *replica {
	t.Helper()
	config := configOf(t)
	addresses := moveTo(t, config)
	dir := t.TempDir()
	configPath := filepath.Join(dir, "config.yaml")
	writeConfig(t, configPath, config)

	kubeconfig, err := clientcmd.LoadFromFile(tollgate.Kubeconfig)
	require.NoError(t, err)
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = at.url, at.ca
	}
	kubeconfigPath := filepath.Join(dir, "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, kubeconfigPath))

	spec := process.Spec{
		Name: name,
		Path: programs.Tollgate(),
		Args: []string{"serve", "--config", configPath, "--kubeconfig", kubeconfigPath},
		Log:  shared.LogPath(name),
	}
	for _, change := range changes {
		change(&spec)
	}
	p, err := process.Start(spec)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Terminate(afterwards(t), patience)) })
	return &replica{process: p, webhookURL: "https://" + addresses.webhook, healthURL: "http://" + addresses.health}
}

// addresses are where a Tollgate listens.
type addresses struct{ webhook, metrics, health string }

// moveTo gives a configuration ports that are free.
func moveTo(t *testing.T, config map[string]any) addresses {
	t.Helper()
	ports, err := controlplane.FreePorts(t.Context(), 3)
	require.NoError(t, err)
	at := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])) }
	found := addresses{webhook: at(0), metrics: at(1), health: at(2)}
	section(t, config, "webhook")["bindAddress"] = found.webhook
	section(t, config, "metrics")["bindAddress"] = found.metrics
	section(t, config, "health")["bindAddress"] = found.health
	return found
}

// waitReady returns when the replica says that it is ready.
func (r *replica) waitReady(t *testing.T) {
	t.Helper()
	require.NoError(t, controlplane.WaitReady(t.Context(), r.process, http.DefaultClient, r.healthURL+"/readyz"))
}

// configOf returns the configuration of the installed Tollgate.
func configOf(t *testing.T) map[string]any {
	t.Helper()
	content, err := os.ReadFile(tollgate.ConfigPath)
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, yaml.Unmarshal(content, &config))
	return config
}

func section(t *testing.T, config map[string]any, name string) map[string]any {
	t.Helper()
	found, ok := config[name].(map[string]any)
	require.True(t, ok, "%s is %v", name, config[name])
	return found
}

func writeConfig(t *testing.T, path string, config map[string]any) {
	t.Helper()
	content, err := yaml.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content, 0o600))
}

// reconfigure starts the installed Tollgate again with a changed configuration, and
// as it was when the test is over.
func reconfigure(t *testing.T, change func(config map[string]any)) {
	t.Helper()
	before, err := os.ReadFile(tollgate.ConfigPath)
	require.NoError(t, err)
	config := configOf(t)
	change(config)
	t.Cleanup(func() {
		require.NoError(t, tollgate.Terminate(afterwards(t)))
		require.NoError(t, os.WriteFile(tollgate.ConfigPath, before, 0o600))
		require.NoError(t, tollgate.Start(afterwards(t)))
	})
	require.NoError(t, tollgate.Terminate(t.Context()))
	writeConfig(t, tollgate.ConfigPath, config)
	require.NoError(t, tollgate.Start(t.Context()))
}

// caller calls webhooks as the API server does: it trusts the caBundle.
type caller struct {
	client *http.Client
}

// newCaller returns a caller that opens a connection for each review.
func newCaller(ctx context.Context, t *testing.T) (*caller, error) {
	t.Helper()
	configuration, err := clientOf(t).AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Get(ctx, install.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(configuration.Webhooks[0].ClientConfig.CABundle)
	return &caller{client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
	}}}, nil
}

// answer is what a webhook answers to a review.
type answer struct {
	status int
	body   string
	// serial is of the certificate that was served.
	serial string
}

// allowed reports whether the review was answered, and with yes.
func (a answer) allowed() (bool, error) {
	if a.status != http.StatusOK {
		return false, fmt.Errorf("status %d: %s", a.status, a.body)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(a.body), &review); err != nil {
		return false, fmt.Errorf("decode %q: %w", a.body, err)
	}
	return review.Response.Allowed, nil
}

// ask sends the review of a pod that is to be created.
func (c *caller) ask(ctx context.Context, url, namespace string, pod *corev1.Pod) (answer, error) {
	object, err := json.Marshal(pod)
	if err != nil {
		return answer{}, err
	}
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "1c8b4b6d-7a0e-4d0e-9a53-5a3f0a5e7a11",
			Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespace: namespace,
			Operation: admissionv1.Create,
			UserInfo:  authenticationv1.UserInfo{Username: "alice"},
			Object:    runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/validate?timeout=3s", bytes.NewReader(review))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(body), response.TLS.PeerCertificates[0].SerialNumber.String()}, err
}
