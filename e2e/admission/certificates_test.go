package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

func TestACABundleThatAnAdministratorEditsIsRestored(t *testing.T) {
	foreign, err := os.ReadFile(filepath.Join(shared.Dir(), "pki", "ca.crt"))
	require.NoError(t, err)
	ctx, api := t.Context(), clientOf(t).AdmissionregistrationV1()
	validating, err := api.ValidatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
	require.NoError(t, err)
	right := validating.Webhooks[0].ClientConfig.CABundle
	edits := map[string][]byte{"removed": nil, "another CA's": foreign}
	for what, edited := range edits {
		t.Run("validating, "+what, func(t *testing.T) {
			require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // Tollgate writes it, too
				configuration, err := api.ValidatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				configuration.Webhooks[0].ClientConfig.CABundle = edited
				_, err = api.ValidatingWebhookConfigurations().Update(ctx, configuration, metav1.UpdateOptions{})
				return err
			}))
			eventually(ctx, t, "it is restored and pods are let in", func(ctx context.Context) error {
				now, err := api.ValidatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
				if err == nil && string(now.Webhooks[0].ClientConfig.CABundle) != string(right) {
					err = errors.New("it is another")
				}
				return errors.Join(err, admit(ctx, clientOf(t), metav1.NamespaceDefault, podWith()))
			})
		})
		t.Run("mutating, "+what, func(t *testing.T) {
			require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // Tollgate writes it, too
				configuration, err := api.MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				configuration.Webhooks[0].ClientConfig.CABundle = edited
				_, err = api.MutatingWebhookConfigurations().Update(ctx, configuration, metav1.UpdateOptions{})
				return err
			}))
			eventually(ctx, t, "it is restored and taints get their times", func(ctx context.Context) error {
				now, err := api.MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
				if err == nil && string(now.Webhooks[0].ClientConfig.CABundle) != string(right) {
					err = errors.New("it is another")
				}
				return errors.Join(err, stamps(ctx, t))
			})
		})
	}
}

// stamps returns an error unless a taint gets its time, which is asked as a dry run.
func stamps(ctx context.Context, t *testing.T) error {
	t.Helper()
	node, err := clientOf(t).CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "stamps"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "stamps.example.com/x", Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{DryRun: dryRun})
	if err == nil && taintOf(node, "stamps.example.com/x", corev1.TaintEffectNoSchedule).TimeAdded == nil {
		err = errors.New("the taint got no time")
	}
	return err
}

func TestTwoReplicasShareOneCA(t *testing.T) {
	namespace := namespaceOf(t, "replicas-")
	enforce(t, "replicas", guarding("replicas.example.com/x"))
	second := startReplica(t, "replica-second", apiServer())
	second.waitReady(t)
	client, err := newCaller(t.Context(), t)
	require.NoError(t, err)
	pod := podWith(exists("replicas.example.com/x", ""))
	var answers []answer
	for _, url := range []string{tollgate.WebhookURL, second.webhookURL} {
		got, err := client.ask(t.Context(), url, namespace, pod)
		require.NoError(t, err)
		allowed, err := got.allowed()
		require.NoError(t, err)
		require.False(t, allowed)
		answers = append(answers, got)
	}
	require.Equal(t, answers[0], answers[1], "both say the same, and show the same certificate")
}

// deleteCertificates removes what Tollgate keeps its certificates in. It must not be
// running, or it would restore what it remembers.
func deleteCertificates(ctx context.Context, t *testing.T) {
	t.Helper()
	err := clientOf(t).CoreV1().Secrets("tollgate-system").Delete(ctx, "tollgate-serving-certificate", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

// renewCertificates makes Tollgate start anew, with certificates of the length that
// its configuration says.
func renewCertificates(ctx context.Context, t *testing.T, config map[string]any) {
	t.Helper()
	require.NoError(t, tollgate.Terminate(ctx))
	deleteCertificates(ctx, t)
	writeConfig(t, tollgate.ConfigPath, config)
	require.NoError(t, tollgate.Start(ctx))
}

func TestF01ACertificateIsRotatedUnderLoadWithoutAFailedReview(t *testing.T) {
	const rotations = 3
	before, rotating := configOf(t), configOf(t)
	// Each has a third of it to be made, written and taken over, also on a busy machine.
	rotating["certificates"] = map[string]any{"servingDuration": "15s", "caDuration": "1h"}
	t.Cleanup(func() { renewCertificates(afterwards(t), t, before) })
	renewCertificates(t.Context(), t, rotating)
	direct, err := newCaller(t.Context(), t)
	require.NoError(t, err)
	viaServer := clientOf(t)

	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	load := &load{serials: map[string]bool{}, reached: make(chan struct{}, 1)}
	load.run(ctx, func(ctx context.Context) (string, error) {
		// What the API server keeps open stays open.
		return "", admit(ctx, viaServer, metav1.NamespaceDefault, podWith())
	})
	load.run(ctx, func(ctx context.Context) (string, error) {
		// And what opens a connection for each review trusts what it meets.
		got, err := direct.ask(ctx, tollgate.WebhookURL, metav1.NamespaceDefault, podWith())
		if err != nil {
			return "", err
		}
		allowed, err := got.allowed()
		if err == nil && !allowed {
			err = fmt.Errorf("refused: %s", got.body)
		}
		return got.serial, err
	})
	load.wait(ctx, rotations+1)
	stop()
	load.running.Wait()
	require.Empty(t, load.failures)
	require.Greater(t, len(load.serials), rotations)
	t.Logf("%d reviews, %d certificates", load.reviews.Load(), len(load.serials))
}

// load sends reviews, one after the other in each of its goroutines.
type load struct {
	running sync.WaitGroup
	reviews atomic.Int64

	mu       sync.Mutex
	serials  map[string]bool
	failures []error
	reached  chan struct{}
}

// run sends reviews until ctx is done. A failure that comes of that is none.
func (l *load) run(ctx context.Context, review func(context.Context) (serial string, err error)) {
	l.running.Go(func() {
		for ctx.Err() == nil {
			serial, err := review(ctx)
			if ctx.Err() != nil {
				return
			}
			l.reviews.Add(1)
			l.note(serial, err)
		}
	})
}

func (l *load) note(serial string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failures = append(l.failures, err)
	}
	if serial == "" || l.serials[serial] {
		return
	}
	l.serials[serial] = true
	select {
	case l.reached <- struct{}{}:
	default:
	}
}

// wait returns when as many certificates have been met, or ctx is done.
func (l *load) wait(ctx context.Context, certificates int) {
	for {
		l.mu.Lock()
		met := len(l.serials)
		l.mu.Unlock()
		if met >= certificates {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-l.reached:
		}
	}
}
