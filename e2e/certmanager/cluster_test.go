package certmanager

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apiutil "github.com/cert-manager/cert-manager/pkg/api/util"
	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	cmclient "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/typed/certmanager/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/tollgate-dev/tollgate/e2e/install"
)

// What deploy/ names.
const (
	tollgateSystem = "tollgate-system"
	servingName    = "tollgate-serving" // the Certificate and its Secret
	caName         = "tollgate-ca"      // likewise
)

const (
	// patience is far above what anything here takes.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 100 * time.Millisecond
)

func clientOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	return client
}

// certManagerOf returns a client of cert-manager's objects beside Tollgate.
func certManagerOf(t *testing.T) cmclient.CertmanagerV1Interface {
	t.Helper()
	client, err := cmclient.NewForConfig(shared.RESTConfig())
	require.NoError(t, err)
	return client
}

// eventually returns when check does without an error, and fails the test with the last
// one if that takes too long.
func eventually(ctx context.Context, t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// admit asks the API server whether a pod may be created, as a dry run.
func admit(ctx context.Context, client kubernetes.Interface, namespace string) error {
	_, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// bundles returns the caBundle of each webhook, by configuration and name.
func bundles(ctx context.Context, client kubernetes.Interface) (map[string][]byte, error) {
	api := client.AdmissionregistrationV1()
	validating, err := api.ValidatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	mutating, err := api.MutatingWebhookConfigurations().Get(ctx, install.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, webhook := range validating.Webhooks {
		all[webhook.Name] = webhook.ClientConfig.CABundle
	}
	for _, webhook := range mutating.Webhooks {
		all[webhook.Name] = webhook.ClientConfig.CABundle
	}
	return all, nil
}

// secretOf returns the data of the Secret of a Certificate.
func secretOf(ctx context.Context, t *testing.T, name string) map[string][]byte {
	t.Helper()
	secret, err := clientOf(t).CoreV1().Secrets(tollgateSystem).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	return secret.Data
}

// ready returns an error unless a Certificate is.
func ready(ctx context.Context, client cmclient.CertmanagerV1Interface, name string) error {
	certificate, err := client.Certificates(tollgateSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !apiutil.CertificateHasCondition(certificate, certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue,
	}) {
		return fmt.Errorf("%s is not ready: %v", name, certificate.Status.Conditions)
	}
	return nil
}

// renew has a Certificate issued anew, as "cmctl renew" does, and returns when it is.
func renew(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	client := certManagerOf(t)
	before := secretOf(ctx, t, name)[corev1.TLSCertKey]
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		certificate, err := client.Certificates(tollgateSystem).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		apiutil.SetCertificateCondition(certificate, certificate.Generation, certmanagerv1.CertificateConditionIssuing,
			cmmeta.ConditionTrue, "ManuallyTriggered", "Certificate re-issuance manually triggered")
		_, err = client.Certificates(tollgateSystem).UpdateStatus(ctx, certificate, metav1.UpdateOptions{})
		return err
	}))
	eventually(ctx, t, name+" is issued anew", func(ctx context.Context) error {
		if string(secretOf(ctx, t, name)[corev1.TLSCertKey]) == string(before) {
			return errors.New("the secret holds the former")
		}
		return ready(ctx, client, name)
	})
}
