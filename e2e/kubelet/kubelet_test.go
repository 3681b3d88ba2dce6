package kubelet_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const echoConfig = `
kind: TollgateConfiguration
webhook: {bindAddress: ":9443"}
tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
`

// site is a Deployment of two pods behind a Service, in a namespace of its own.
type site struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	address   string // of the Service
}

func newSite(t *testing.T) *site {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	namespace, err := shared.CreateNamespace(t.Context(), "kubelet-")
	require.NoError(t, err)
	s := &site{t: t, client: client, namespace: namespace}
	_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"}, Data: map[string]string{"echo.yaml": echoConfig},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	labels := map[string]string{"app": "echo"}
	service, err := client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{
			{Name: "web", Port: 80, TargetPort: intstr.FromString("web")},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.address = net.JoinHostPort(service.Spec.ClusterIP, "80")
	_, err = client.AppsV1().Deployments(namespace).Create(t.Context(), deployment(labels), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}))
	})
	return s
}

func deployment(labels map[string]string) *appsv1.Deployment {
	fieldOf := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	probe := func(path string, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("web")}},
			PeriodSeconds: 1, FailureThreshold: failures, TimeoutSeconds: 10,
		}
	}
	container := corev1.Container{
		Name: "echo", Image: "example.com/echo:v1",
		Args: []string{"echo", "--config=/etc/echo/echo.yaml", "$(POD_NAME)"},
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: fieldOf("metadata.name")}, {Name: "NODE_NAME", ValueFrom: fieldOf("spec.nodeName")},
		},
		Ports:        []corev1.ContainerPort{{Name: "web", ContainerPort: 9443}},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/echo"}},
		// No process may be killed for being slow to start.
		StartupProbe:   probe("/healthz", 60),
		LivenessProbe:  probe("/healthz", 3),
		ReadinessProbe: probe("/readyz", 1),
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{container},
					Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
						ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "echo"}},
					}}},
				},
			},
		},
	}
}

// ask asks what listens at the address in the cluster, by a connection of its own.
func ask(ctx context.Context, address, path string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", address); err != nil {
			return nil, err
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return nil, err
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			_ = conn.Close()
			return nil, fmt.Errorf("connect to %s: %s", address, answer.Status)
		}
		return conn, nil
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// ready waits until n pods are ready, and no other is there, and returns them by their names.
func (s *site) ready(n int) map[string]corev1.Pod {
	s.t.Helper()
	return s.readyBut(nil, n)
}

// readyBut is ready, once none of the pods is there that were there before.
func (s *site) readyBut(before map[string]corev1.Pod, n int) map[string]corev1.Pod {
	s.t.Helper()
	var out map[string]corev1.Pod
	require.Eventually(s.t, func() bool {
		out = map[string]corev1.Pod{}
		pods, err := s.client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false
		}
		for _, pod := range pods.Items {
			if _, old := before[pod.Name]; old {
				return false
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
					out[pod.Name] = pod
				}
			}
		}
		return len(out) == n && len(pods.Items) == 2
	}, patience, 100*time.Millisecond)
	return out
}

// served are the names that the Service answers with, once they are as many as are wanted
// and stay so.
func (s *site) served(want int) map[string]bool {
	s.t.Helper()
	out := map[string]bool{}
	require.Eventually(s.t, func() bool {
		clear(out)
		for range 40 {
			name, err := ask(s.t.Context(), s.address, "/name")
			if err != nil {
				return false
			}
			out[name] = true
		}
		return len(out) == want
	}, patience, 100*time.Millisecond)
	return out
}

func TestPodsOfADeploymentRunAndAreReachedThroughTheirService(t *testing.T) {
	s := newSite(t)
	pods := s.ready(2)
	for name := range s.served(2) {
		require.Contains(t, pods, name)
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, corev1.PodRunning, pod.Status.Phase)
			require.NotEmpty(t, pod.Status.HostIP)
			address := net.JoinHostPort(pod.Status.PodIP, "9443")
			for path, want := range map[string]string{"/name": name, "/node": pod.Spec.NodeName, "/args": name} {
				got, err := ask(t.Context(), address, path)
				require.NoError(t, err)
				require.Equal(t, want, got, path)
			}
			token, err := ask(t.Context(), address, "/token")
			require.NoError(t, err)
			review, err := s.client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: token},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, "system:serviceaccount:"+s.namespace+":default", review.Status.User.Username)
			require.Equal(t, authenticationv1.ExtraValue{name}, review.Status.User.Extra["authentication.kubernetes.io/pod-name"])
		})
	}
}

func TestAPodThatIsNotReadyIsGivenNoConnections(t *testing.T) {
	s := newSite(t)
	pods := s.ready(2)
	var one corev1.Pod
	for _, one = range pods {
		break
	}
	s.served(2)
	_, err := ask(t.Context(), net.JoinHostPort(one.Status.PodIP, "9443"), "/unready")
	require.NoError(t, err)
	require.NotContains(t, s.served(1), one.Name)
	require.NotContains(t, s.ready(1), one.Name)
}

func TestAContainerThatCrashesIsStartedAgain(t *testing.T) {
	s := newSite(t)
	for name, pod := range s.ready(2) {
		require.NoError(t, runs.Kill(t.Context(), pod.UID))
		s.startedAgain(name)
	}
	s.served(2)
}

func TestAContainerThatIsSickIsKilledAndStartedAgain(t *testing.T) {
	s := newSite(t)
	for name, pod := range s.ready(2) {
		_, err := ask(t.Context(), net.JoinHostPort(pod.Status.PodIP, "9443"), "/sick")
		require.NoError(t, err)
		s.startedAgain(name)
	}
	s.served(2)
}

// startedAgain waits until the container of a pod is ready, after one that was killed.
func (s *site) startedAgain(name string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		pod, err := s.client.CoreV1().Pods(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false
		}
		status := pod.Status.ContainerStatuses[0]
		last := status.LastTerminationState.Terminated
		return status.RestartCount == 1 && status.Ready && last != nil && last.ExitCode == 137
	}, patience, 100*time.Millisecond)
}

func TestAPodThatIsDeletedEndsInPeaceAndIsReplaced(t *testing.T) {
	s := newSite(t)
	before := s.ready(2)
	for name := range before {
		require.NoError(t, s.client.CoreV1().Pods(s.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	s.readyBut(before, 2)
	for name := range s.served(2) {
		require.NotContains(t, before, name)
	}
}
