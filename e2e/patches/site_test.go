package patches

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

const (
	// patience is far above what anything here takes, and below the five minutes after
	// which the scheduler tries every pod again.
	patience = 2 * time.Minute
	// interval is how often it is looked whether something has come about.
	interval = 100 * time.Millisecond
)

// site is where one test works: a namespace, and a driver with a class. In what it is
// given as text, DRIVER stands for the name of its driver.
type site struct {
	client    kubernetes.Interface
	patches   client.Client
	namespace string
	driver    string
	// scheduler is that of the pods; empty is the default.
	scheduler string
}

func newSite(t *testing.T) *site {
	t.Helper()
	client, patches, err := clients()
	require.NoError(t, err)
	namespace, err := shared.CreateNamespace(t.Context(), "patches-")
	require.NoError(t, err)
	s := &site{client: client, patches: patches, namespace: namespace, driver: namespace + ".example.com"}
	s.class(t, s.driver, `device.driver == "DRIVER"`)
	// What is left waiting would be tried each time that a patch changes.
	t.Cleanup(func() {
		require.NoError(t, client.CoreV1().Pods(namespace).DeleteCollection(afterwards(t), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
	return s
}

func clients() (kubernetes.Interface, client.Client, error) {
	typed, err := kubernetes.NewForConfig(shared.RESTConfig())
	if err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, fmt.Errorf("register kinds: %w", err)
	}
	patches, err := client.New(shared.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	return typed, patches, nil
}

// afterwards is the context of a test when the test is over.
func afterwards(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// eventually returns when check does without an error, and fails the test with the
// last one if that takes too long.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// text puts the name of the driver in.
func (s *site) text(text string) string { return strings.ReplaceAll(text, "DRIVER", s.driver) }

// decode reads YAML, every field of which must be known.
func (s *site) decode(t *testing.T, text string, into any) {
	t.Helper()
	require.NoError(t, yaml.UnmarshalStrict([]byte(s.text(text)), into), text)
}

// class creates a DeviceClass with one selector.
func (s *site) class(t *testing.T, name, expression string) {
	t.Helper()
	class := dra.Class(s.text(name))
	class.Spec.Selectors[0].CEL.Expression = s.text(expression)
	_, err := s.client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{})
	require.NoError(t, err)
}

// publish creates the slice of a pool, which all nodes have.
func (s *site) publish(t *testing.T, pool string, devices ...resourcev1.Device) {
	t.Helper()
	_, err := s.client.ResourceV1().ResourceSlices().Create(t.Context(), dra.Slice(s.driver, pool, devices...), metav1.CreateOptions{})
	require.NoError(t, err)
}

// patchName is the name of a patch of the site.
func (s *site) patchName(name string) string { return s.namespace + "-" + name }

// patch creates a ResourceSlicePatch, of which it is given spec.devices, for the length
// of the test.
func (s *site) patch(t *testing.T, name, devices string) *v1alpha1.ResourceSlicePatch {
	t.Helper()
	patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: s.patchName(name)}}
	s.decode(t, devices, &patch.Spec.Devices)
	require.NoError(t, s.patches.Create(t.Context(), patch))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(s.patches.Delete(afterwards(t), patch))) })
	return patch
}

// editPatch writes another spec.devices.
func (s *site) editPatch(t *testing.T, name, devices string) {
	t.Helper()
	require.NoError(t, s.edit(t.Context(), s.patchName(name), func(patch *v1alpha1.ResourceSlicePatch) {
		patch.Spec.Devices = v1alpha1.DevicePatch{}
		s.decode(t, devices, &patch.Spec.Devices)
	}))
}

// edit writes a patch anew. Tollgate writes its status meanwhile, again for every change:
// whoever changes one as often as the barrier is may lose to it several times in a row.
func (s *site) edit(ctx context.Context, name string, change func(*v1alpha1.ResourceSlicePatch)) error {
	stubborn := wait.Backoff{Steps: 50, Duration: 10 * time.Millisecond, Factor: 1.1, Jitter: 1}
	return retry.RetryOnConflict(stubborn, func() error {
		patch := &v1alpha1.ResourceSlicePatch{}
		if err := s.patches.Get(ctx, client.ObjectKey{Name: name}, patch); err != nil {
			return err
		}
		change(patch)
		return s.patches.Update(ctx, patch)
	})
}

func (s *site) deletePatch(t *testing.T, name string) {
	t.Helper()
	patch := &v1alpha1.ResourceSlicePatch{ObjectMeta: metav1.ObjectMeta{Name: s.patchName(name)}}
	require.NoError(t, s.patches.Delete(t.Context(), patch))
}
