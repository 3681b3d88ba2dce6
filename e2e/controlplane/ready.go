package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/process"
)

// startTimeout is far above what any step takes on a slow machine.
const startTimeout = 2 * time.Minute

// probeInterval is how often a process is asked whether it is ready.
const probeInterval = 50 * time.Millisecond

// errAddressInUse is why a process died that found its port taken.
var errAddressInUse = errors.New("a port it needs is taken")

// healthPaths are where components answer whether they are ready. Nodes that
// become Ready show that kwok works, so it is not asked.
func healthPaths() map[string]string {
	return map[string]string{Etcd: "/readyz", APIServer: "/readyz", ControllerManager: "/healthz", Scheduler: "/readyz"}
}

func (c *ControlPlane) waitHealthy(ctx context.Context, name string) error {
	path, ok := healthPaths()[name]
	if !ok {
		return nil
	}
	p, err := c.Process(name)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := WaitReady(ctx, p, client, c.URL(name)+path); err != nil {
		return err
	}
	c.progress(name + " is ready")
	return nil
}

// WaitReady returns when the URL answers with success. That the process ends
// before, or is not ready in time, is an error that names its log.
func WaitReady(ctx context.Context, p *process.Process, client *http.Client, url string) error {
	name, log := p.Spec().Name, p.Spec().Log
	answer := errors.New("no answer")
	err := wait.PollUntilContextTimeout(ctx, probeInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		if !p.Alive() {
			return false, death(p)
		}
		answer = get(ctx, client, url)
		return answer == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("start %s: not ready after %s: %w (log: %s)", name, startTimeout, answer, log)
	default:
		return fmt.Errorf("start %s: %w (log: %s)", name, err, log)
	}
}

// death says how a process ended, and why where its log tells that it was for
// a port.
func death(p *process.Process) error {
	output, err := p.Output()
	if err == nil && bytes.Contains(output, []byte("address already in use")) {
		return fmt.Errorf("%s: %w", p.Exit(), errAddressInUse)
	}
	return fmt.Errorf("ended with %s", p.Exit())
}

func get(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 200))
	return fmt.Errorf("%s answers %s: %s", url, response.Status, bytes.TrimSpace(body))
}

// CreateNamespace creates a namespace with a name that starts as given, and
// returns the name when pods can be created in it.
func (c *ControlPlane) CreateNamespace(ctx context.Context, generateName string) (string, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return "", fmt.Errorf("make client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: generateName}}
	namespace, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create namespace: %w", err)
	}
	return namespace.Name, c.waitNamespace(ctx, client, namespace.Name)
}

// waitNamespace returns when pods can be created in the namespace: each needs
// the service account that a controller makes.
func (c *ControlPlane) waitNamespace(ctx context.Context, client kubernetes.Interface, namespace string) error {
	err := wait.PollUntilContextTimeout(ctx, probeInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the service account of namespace %s: %w (log: %s)", namespace, err, c.LogPath(ControllerManager))
	}
	return nil
}
