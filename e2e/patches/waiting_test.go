package patches

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// quiet is how long nothing is written before that which is to wake a pod: more
	// than the second by which the scheduler puts off waking pods again.
	quiet = 3 * time.Second
	// apart is by how much one patch is older than another: its age is in seconds.
	apart = 1100 * time.Millisecond
)

// waiting is a pod that asks for one device, and waits because of what patches make of
// it. In its texts CASE stands for the name of the device, which is that of the case.
type waiting struct {
	// class is the selector of DRIVER-CASE; empty for no class.
	class string
	// patches are names and spec.devices of patches, the oldest first.
	patches [][2]string
	// request is what the pod asks for beside the name.
	request string
	// undo is the one thing after which it need not wait.
	undo func(t *testing.T, s *site, name string)
}

func patched(devices string) [][2]string { return [][2]string{{"patch", devices}} }

func deletesPatch(patch string) func(*testing.T, *site, string) {
	return func(t *testing.T, s *site, name string) {
		t.Helper()
		s.deletePatch(t, name+"-"+patch)
	}
}

func editsPatch(patch, devices string) func(*testing.T, *site, string) {
	return func(t *testing.T, s *site, name string) {
		t.Helper()
		s.editPatch(t, name+"-"+patch, strings.ReplaceAll(devices, "CASE", name))
	}
}

// waitingCases are keyed by the name of their device.
func waitingCases() map[string]waiting {
	const (
		toB = `{filter: {driver: DRIVER, device: CASE}, attributes: {DRIVER/model: {string: B}}}`
		toC = `{filter: {driver: DRIVER, device: CASE}, attributes: {DRIVER/model: {string: C}}}`
		// classToB is toB for the devices of a class.
		classToB = `{filter: {deviceClassName: DRIVER-CASE}, attributes: {DRIVER/model: {string: B}}}`
		isCase   = `device.driver == "DRIVER" && device.attributes["DRIVER"].name == "CASE"`
	)
	return map[string]waiting{
		"another-value-is-deleted": {
			patches: patched(toB), request: modelA, undo: deletesPatch("patch"),
		},
		"removed-is-deleted": {
			patches: patched(`{filter: {driver: DRIVER, device: CASE}, attributes: {DRIVER/model: {"null": {}}}}`),
			request: modelA, undo: deletesPatch("patch"),
		},
		"less-capacity-is-deleted": {
			patches: patched(`{filter: {driver: DRIVER, device: CASE}, capacity: {DRIVER/memory: {value: 40Gi}}}`),
			request: memory, undo: deletesPatch("patch"),
		},
		"taint-is-deleted": {
			patches: patched(`{filter: {driver: DRIVER, device: CASE}, taints: [{key: example.com/broken, effect: NoSchedule}]}`),
			request: anything, undo: deletesPatch("patch"),
		},
		"eviction-is-deleted": {
			patches: patched(`{filter: {driver: DRIVER, device: CASE}, taints: [{key: example.com/broken, effect: NoExecute}]}`),
			request: anything, undo: deletesPatch("patch"),
		},
		"value-is-edited": {
			patches: patched(toB), request: modelC, undo: editsPatch("patch", toC),
		},
		"taint-is-edited-to-none": {
			patches: patched(`{filter: {driver: DRIVER, device: CASE}, taints: [{key: example.com/broken, effect: NoSchedule}]}`),
			request: anything,
			undo:    editsPatch("patch", `{filter: {driver: DRIVER, device: CASE}, taints: [{key: example.com/broken, effect: None}]}`),
		},
		"patch-is-created": {
			request: modelB,
			undo: func(t *testing.T, s *site, name string) {
				t.Helper()
				s.patch(t, name+"-patch", strings.ReplaceAll(toB, "CASE", name))
			},
		},
		"higher-priority-is-deleted": {
			patches: [][2]string{
				{"low", toC},
				{"high", `{filter: {driver: DRIVER, device: CASE}, priority: 1, attributes: {DRIVER/model: {string: B}}}`},
			},
			request: modelC, undo: deletesPatch("high"),
		},
		"priority-is-raised": {
			patches: [][2]string{{"older", toB}, {"younger", toC}}, request: modelC,
			undo: editsPatch("younger", `{filter: {driver: DRIVER, device: CASE}, priority: 1, attributes: {DRIVER/model: {string: C}}}`),
		},
		// By name the younger would be first.
		"older-is-deleted": {
			patches: [][2]string{{"older", toB}, {"a-younger", toC}}, request: modelC, undo: deletesPatch("older"),
		},
		"class-is-edited": {
			class: isCase, patches: patched(classToB), request: modelA,
			undo: func(t *testing.T, s *site, name string) {
				t.Helper()
				class, err := s.client.ResourceV1().DeviceClasses().Get(t.Context(), s.driver+"-"+name, metav1.GetOptions{})
				require.NoError(t, err)
				class.Spec.Selectors[0].CEL.Expression = "false"
				_, err = s.client.ResourceV1().DeviceClasses().Update(t.Context(), class, metav1.UpdateOptions{})
				require.NoError(t, err)
			},
		},
		"class-is-deleted": {
			class: isCase, patches: patched(classToB), request: modelA,
			undo: func(t *testing.T, s *site, name string) {
				t.Helper()
				require.NoError(t, s.client.ResourceV1().DeviceClasses().Delete(t.Context(), s.driver+"-"+name, metav1.DeleteOptions{}))
			},
		},
		"class-is-created": {
			patches: patched(classToB), request: modelB,
			undo: func(t *testing.T, s *site, name string) {
				t.Helper()
				s.class(t, "DRIVER-"+name, strings.ReplaceAll(isCase, "CASE", name))
			},
		},
	}
}

// It runs alone: what other tests write would wake its pods.
func TestAPodThatWaitsBecauseOfAPatchIsScheduledWhenThatChangesAndNothingElseDoes(t *testing.T) {
	s := newSite(t)
	cases := waitingCases()
	var devices []resourcev1.Device
	var pods []string
	for name, c := range cases {
		devices = append(devices, gpu(name, 0))
		pods = append(pods, name)
		if c.class != "" {
			s.class(t, "DRIVER-"+name, strings.ReplaceAll(c.class, "CASE", name))
		}
	}
	s.publish(t, "pool", devices...)
	s.createInOrderOfAge(t, cases)
	s.settle(t)
	for name, c := range cases {
		s.runOn(t, name, c.request)
	}
	s.requirePods(t, "", 0, len(cases))
	time.Sleep(quiet)
	s.requirePods(t, "", 0, len(cases))

	var took []time.Duration
	for len(pods) > 0 {
		name := pods[0]
		pods = pods[1:]
		t.Run(name, func(t *testing.T) {
			s.stillWaiting(t, append(pods, name)...)
			start := time.Now()
			cases[name].undo(t, s, name)
			s.requireOn(t, name, "pool/"+name)
			took = append(took, time.Since(start))
		})
	}
	t.Logf("scheduled after %v", took)
}

// createInOrderOfAge creates the first patches of all cases, and then the second.
func (s *site) createInOrderOfAge(t *testing.T, cases map[string]waiting) {
	t.Helper()
	for i := range 2 {
		if i > 0 {
			time.Sleep(apart)
		}
		for name, c := range cases {
			if i < len(c.patches) {
				s.patch(t, name+"-"+c.patches[i][0], strings.ReplaceAll(c.patches[i][1], "CASE", name))
			}
		}
	}
}

// runOn creates a pod that asks for the device of its name.
func (s *site) runOn(t *testing.T, name, request string) {
	t.Helper()
	claim := s.claim(t, name, request)
	exactly := claim.Spec.Devices.Requests[0].Exactly
	exactly.Selectors = append(exactly.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{
		Expression: s.text(`device.attributes["DRIVER"].name == "` + name + `"`),
	}})
	require.NoError(t, s.create(t.Context(), name, claim))
}
