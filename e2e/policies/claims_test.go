package policies

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
	"github.com/tollgate-dev/tollgate/policy"
)

// deviceClass creates a driver's class and a pool of its devices for the length of the
// test.
func deviceClass(t *testing.T, driver string, devices ...resourcev1.Device) {
	t.Helper()
	client := admin(t).ResourceV1()
	_, err := client.DeviceClasses().Create(t.Context(), dra.Class(driver), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.DeviceClasses().Delete(afterwards(t), driver, metav1.DeleteOptions{}))
	})
	if len(devices) == 0 {
		return
	}
	slice, err := client.ResourceSlices().Create(t.Context(), dra.Slice(driver, "pool", devices...), metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.ResourceSlices().Delete(afterwards(t), slice.Name, metav1.DeleteOptions{}))
	})
}

// claim creates a claim as somebody.
func (p *person) claim(t *testing.T, namespace string, claim *resourcev1.ResourceClaim) error {
	t.Helper()
	_, err := p.ResourceV1().ResourceClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{})
	return err
}

func TestTolerationsOfClaimsAreGuardedByDeviceClass(t *testing.T) {
	const guarded, other = "guarded-gpu.example.com", "other-gpu.example.com"
	namespaces(t, "claims", "claims-granted")
	deviceClass(t, guarded)
	deviceClass(t, other)
	enforce(t, `
kind: TolerationPolicy
metadata: {name: claims}
spec:
  taints: [{target: Device, key: claims.example.com/*, deviceClasses: [guarded-gpu.example.com]}]
  grants: [{namespaces: [claims-granted], maxTolerationSeconds: 600}]
`)
	alice := tenant(t, "alice")
	tolerate := dra.Tolerate("claims.example.com/x")
	everything := resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists}
	exactly, first := "spec.devices.requests[0].exactly.tolerations[0]", "spec.devices.requests[0].firstAvailable[1].tolerations[0]"
	admins := dra.Claim("admin", guarded, "", tolerate)
	admins.Spec.Devices.Requests[0].Exactly.AdminAccess = new(true)

	refused := map[string]struct {
		claim *resourcev1.ResourceClaim
		path  string
	}{
		"exactly":                          {dra.Claim("exactly", guarded, "", tolerate), exactly},
		"firstAvailable":                   {dra.FirstAvailable(dra.Claim("first", guarded, "", tolerate), other), first},
		"a toleration of everything":       {dra.Claim("everything", guarded, "", everything), exactly},
		"access for administrators or not": {admins, exactly},
	}
	for name, tt := range refused {
		t.Run(name, func(t *testing.T) {
			err := alice.claim(t, "claims", tt.claim)
			if name == "access for administrators or not" && err != nil && !containsAll(err.Error(), []string{"TolerationPolicy"}) {
				require.ErrorContains(t, err, "admin access") // Kubernetes has its own condition, and looks first
				return
			}
			requireRefused(t, err, policy.TolerationNotGranted, "TolerationPolicy/claims", tt.path)
		})
	}
	t.Run("a template", func(t *testing.T) {
		templates := alice.ResourceV1().ResourceClaimTemplates("claims")
		_, err := templates.Create(t.Context(), dra.Template("template", guarded, "", tolerate), metav1.CreateOptions{})
		requireRefused(t, err, policy.TolerationNotGranted, "TolerationPolicy/claims", "spec.spec.devices.requests[0].exactly.tolerations[0]")
	})
	t.Run("another class is free", func(t *testing.T) {
		require.NoError(t, alice.claim(t, "claims", dra.Claim("free", other, "", tolerate)))
	})
	t.Run("who is granted may, for as long as that says", func(t *testing.T) {
		require.NoError(t, alice.claim(t, "claims-granted", dra.Claim("bounded", guarded, "", dra.TolerateFor("claims.example.com/x", 600))))
		err := alice.claim(t, "claims-granted", dra.Claim("endless", guarded, "", tolerate))
		requireRefused(t, err, policy.TolerationTooLong, "600")
	})
	t.Run("C08 in every version that is served", func(t *testing.T) {
		for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
			requests := `[{"name":"r","exactly":{"deviceClassName":"` + guarded + `","tolerations":[{"key":"claims.example.com/x","operator":"Exists"}]}}]`
			if version == "v1beta1" {
				requests = `[{"name":"r","deviceClassName":"` + guarded + `","tolerations":[{"key":"claims.example.com/x","operator":"Exists"}]}]`
			}
			gvr := resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
			gvr.Version = version
			object := objects(t, `{"apiVersion":"resource.k8s.io/`+version+`","kind":"ResourceClaim","metadata":{"name":"old"},"spec":{"devices":{"requests":`+requests+`}}}`)[0]
			_, err := alice.resource(t, gvr, "claims").Create(t.Context(), object, metav1.CreateOptions{})
			requireRefused(t, err, policy.TolerationNotGranted, "TolerationPolicy/claims")
		}
	})
}

func TestC27ClaimsThatNobodyWroteAreJudgedLikeOthers(t *testing.T) {
	const driver, key = "implicit-gpu.example.com", "implicit.example.com/x"
	namespaces(t, "implicit")
	deviceClass(t, driver, dra.Device("a", dra.Taint(key, "", resourcev1.DeviceTaintEffectNoSchedule)), dra.Device("b"))
	paul, alice := tenant(t, "paul", "platform"), tenant(t, "alice")
	enforce(t, `
kind: TolerationPolicy
metadata: {name: implicit}
spec:
  taints: [{target: Device, key: implicit.example.com/x}]
  grants: [{subjects: [{kind: Group, name: platform}]}]
`)
	template := dra.Template("tolerant", driver, "a", resourcev1.DeviceToleration{Key: key, Operator: resourcev1.DeviceTolerationOpExists})
	_, err := paul.ResourceV1().ResourceClaimTemplates("implicit").Create(t.Context(), template, metav1.CreateOptions{})
	require.NoError(t, err)

	t.Run("a claim made from a template has the verdict of who wrote the template", func(t *testing.T) {
		alice.createPod(t, "implicit", dra.FromTemplate(podNamed("from-template"), "tolerant"))
		waitRuns(t, "implicit", "from-template")
	})
	t.Run("a claim for an extended resource tolerates nothing, and gets the device that is not tainted", func(t *testing.T) {
		class, err := admin(t).ResourceV1().DeviceClasses().Get(t.Context(), driver, metav1.GetOptions{})
		require.NoError(t, err)
		class.Spec.ExtendedResourceName = new("implicit.example.com/gpu")
		_, err = admin(t).ResourceV1().DeviceClasses().Update(t.Context(), class, metav1.UpdateOptions{})
		require.NoError(t, err)
		pod := podNamed("extended")
		pod.Spec.Containers[0].Resources = requestsOne("implicit.example.com/gpu")
		alice.createPod(t, "implicit", pod)
		waitRuns(t, "implicit", "extended")
		require.Equal(t, []string{"b"}, allocatedTo(t, "implicit", "extended"))
	})
}

// allocatedTo returns the devices of the claims that a pod has reserved.
func allocatedTo(t *testing.T, namespace, pod string) []string {
	t.Helper()
	var devices []string
	eventually(t, "pod "+pod+" has a device", func(ctx context.Context) error {
		list, err := admin(t).ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		devices = nil
		for i := range list.Items {
			status := &list.Items[i].Status
			for _, consumer := range status.ReservedFor {
				if consumer.Name != pod || status.Allocation == nil {
					continue
				}
				for _, result := range status.Allocation.Devices.Results {
					devices = append(devices, result.Device)
				}
			}
		}
		if len(devices) == 0 {
			return fmt.Errorf("none in %d claims", len(list.Items))
		}
		return nil
	})
	return devices
}

func TestC24AnOlderGenerationHidesNoTaint(t *testing.T) {
	const driver, key = "generations.example.com", "generations.example.com/x"
	namespaces(t, "generations")
	deviceClass(t, driver)
	plugin, alice := serviceAccount(t, "generations", "plugin"), tenant(t, "alice")
	create := func(name string, generation int64, device resourcev1.Device, options ...string) error {
		slice := dra.Slice(driver, "pool", device)
		slice.Name, slice.Spec.Pool.Generation = driver+"-"+name, generation
		_, err := plugin.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{DryRun: options})
		return err
	}
	publish := func(name string, generation int64, device resourcev1.Device) {
		require.NoError(t, create(name, generation, device))
		t.Cleanup(func() {
			require.NoError(t, admin(t).ResourceV1().ResourceSlices().Delete(afterwards(t), driver+"-"+name, metav1.DeleteOptions{}))
		})
	}
	tainted := dra.Device("d", dra.Taint(key, "", resourcev1.DeviceTaintEffectNoExecute))
	publish("current", 5, dra.Device("d"))
	require.NoError(t, alice.claim(t, "generations", dra.Claim("claim", driver, "d")))
	alice.createPod(t, "generations", dra.Pod("user", "claim"))
	waitRuns(t, "generations", "user")
	foretells(t, plugin, func() error { return create("newer", 6, tainted, dryRun...) }, "evicts 1 pod in 1 namespace: 1 now")
	becomes(t, "Tollgate knows the generation that counts", func() error {
		err := create("older", 1, tainted, dryRun...)
		if heard := plugin.heard.take(); err == nil && len(heard) > 0 {
			err = fmt.Errorf("warned of %q", heard)
		}
		return err
	})

	publish("older", 1, tainted)
	require.Empty(t, plugin.heard.take(), "a generation that is over evicts nobody")
	require.Nil(t, podNow(t, "generations", "user").DeletionTimestamp)
	publish("newer", 6, tainted)
	requireWarned(t, plugin.heard.take(), "evicts 1 pod in 1 namespace: 1 now")
	waitGone(t, "generations", "user")
}
