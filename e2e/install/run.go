package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/process"
)

// Tollgate ends within terminateGrace when asked to, and admits within
// admitTimeout once it is ready; both are far above what they take.
const (
	terminateGrace = 30 * time.Second
	admitTimeout   = time.Minute
)

// Start starts Tollgate with the configuration it was installed with, and
// returns when it admits. It must not be running.
func (t *Tollgate) Start(ctx context.Context) error {
	if err := t.run(ctx); err != nil {
		return err
	}
	return t.waitAdmits(ctx)
}

// run starts the process and returns when it is ready.
func (t *Tollgate) run(ctx context.Context) error {
	p, err := process.Start(t.spec)
	if err != nil {
		return err
	}
	if err := t.cp.Adopt(p); err != nil {
		return err
	}
	return controlplane.WaitReady(ctx, p, http.DefaultClient, t.HealthURL+"/readyz")
}

// Alive reports whether Tollgate runs.
func (t *Tollgate) Alive() bool {
	p, err := t.cp.Process(t.Name)
	return err == nil && p.Alive()
}

// Process is the running, or last, process.
func (t *Tollgate) Process() (*process.Process, error) { return t.cp.Process(t.Name) }

// Kill ends Tollgate as a crash would.
func (t *Tollgate) Kill(ctx context.Context) error { return t.cp.Kill(ctx, t.Name) }

// Terminate ends Tollgate as a rollout would.
func (t *Tollgate) Terminate(ctx context.Context) error {
	p, err := t.Process()
	if err != nil {
		return err
	}
	return p.Terminate(ctx, terminateGrace)
}

// waitAdmits returns when the API server reaches the webhooks: they are all
// registered with a CA, and the creation of a pod, which the API server refuses
// while it gets no answer, goes through (as a dry run).
func (t *Tollgate) waitAdmits(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(t.cp.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, admitTimeout, true, func(ctx context.Context) (bool, error) {
		if !t.Alive() {
			return false, errors.New("it has ended")
		}
		last = errors.Join(registered(ctx, client), probe(ctx, client))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s to admit: %w: %w (log: %s)", t.Name, err, last, t.LogPath)
	}
	return nil
}

// registered reports an error while a webhook has no CA.
func registered(ctx context.Context, client kubernetes.Interface) error {
	mutating, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get mutating webhooks: %w", err)
	}
	for _, webhook := range mutating.Webhooks {
		if len(webhook.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("webhook %s has no CA", webhook.Name)
		}
	}
	validating, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get validating webhooks: %w", err)
	}
	for _, webhook := range validating.Webhooks {
		if len(webhook.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("webhook %s has no CA", webhook.Name)
		}
	}
	return nil
}

func probe(ctx context.Context, client kubernetes.Interface) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "tollgate-probe-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
	}
	_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("create pod as a dry run: %w", err)
	}
	return nil
}
