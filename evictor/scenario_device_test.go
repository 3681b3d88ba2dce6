package evictor

import (
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// deviceCommands are the commands of a story about slices, rules and claims.
func (s *scene) deviceCommands(name string, args []string) map[string]func() {
	return map[string]func(){
		"set-slice":    func() { s.defineSlice(name, args[2:]) },
		"set-rule":     func() { s.defineRule(name, args[2:]) },
		"set-claim":    func() { s.defineClaim(name, args[2:]) },
		"delete-slice": func() { s.drop(newSlice(name, 0, "")) },
		"delete-rule":  func() { s.drop(newRule(name, "", resourcev1.DeviceTaint{})) },
		"delete-claim": func() { s.drop(newClaim(name, "", nil)) },
	}
}

func (s *scene) deviceTaints(texts []string) []resourcev1.DeviceTaint {
	var taints []resourcev1.DeviceTaint
	for _, taint := range s.taints(texts) {
		taints = append(taints, resourcev1.DeviceTaint{
			Key: taint.Key, Value: taint.Value, Effect: resourcev1.DeviceTaintEffect(taint.Effect), TimeAdded: taint.TimeAdded,
		})
	}
	return taints
}

func (s *scene) defineSlice(name string, args []string) {
	generation, err := strconv.ParseInt(args[0], 10, 64)
	require.NoError(s.t, err)
	slice := newSlice(name, generation, "")
	slice.Spec.Devices = nil
	for _, arg := range args[1:] {
		device, taints, tainted := strings.Cut(arg, "=")
		published := resourcev1.Device{Name: device}
		if tainted {
			published.Taints = s.deviceTaints(strings.Split(taints, ","))
		}
		slice.Spec.Devices = append(slice.Spec.Devices, published)
	}
	s.set(slice)
}

func (s *scene) defineRule(name string, args []string) {
	rule := newRule(name, args[0], s.deviceTaints(args[1:2])[0])
	switch args[0] {
	case "all":
		rule.Spec.DeviceSelector = &resourcev1.DeviceTaintSelector{}
	case "none":
		rule.Spec.DeviceSelector = nil
	}
	if len(args) > 2 {
		rule.UID = types.UID(strings.TrimPrefix(args[2], "uid="))
	}
	s.set(rule)
}

func (s *scene) defineClaim(name string, args []string) {
	claim := newClaim(name, "", nil)
	claim.Status.Allocation = nil
	var devices []string
	var tolerations []resourcev1.DeviceToleration
	for _, arg := range args {
		field, value, _ := strings.Cut(arg, "=")
		switch values := strings.Split(value, ","); field {
		case "uid":
			claim.UID = types.UID(value)
		case "for":
			for _, pod := range values {
				claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
					Resource: "pods", Name: pod, UID: s.uidOf(pod),
				})
			}
		case "of":
			claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: value, UID: s.uidOf(value), Controller: new(true)}}
		case "devices":
			devices = values
		case "tolerate":
			for _, text := range values {
				tolerations = append(tolerations, s.deviceToleration(text))
			}
		default:
			require.Fail(s.t, "no such field: "+field)
		}
	}
	if len(devices) > 0 {
		claim.Status.Allocation = &resourcev1.AllocationResult{}
	}
	for _, device := range devices {
		allocated := newClaim("", device, tolerations).Status.Allocation.Devices.Results
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, allocated...)
	}
	s.set(claim)
}

// uidOf returns the UID that a pod of that name has or will have.
func (s *scene) uidOf(pod string) types.UID {
	if p := s.api.pod("default/" + pod); p != nil {
		return p.UID
	}
	return types.UID(pod + "-uid")
}

func (s *scene) deviceToleration(text string) resourcev1.DeviceToleration {
	text, every := strings.CutSuffix(text, "~")
	native := s.toleration(text)
	toleration := resourcev1.DeviceToleration{
		Key: native.Key, Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffectNoExecute,
		TolerationSeconds: native.TolerationSeconds,
	}
	if every {
		toleration.Effect = ""
	}
	return toleration
}

// deviceField sets what a pod has to do with claims.
func (s *scene) deviceField(pod *corev1.Pod, field, value string) {
	switch field {
	case "claims":
		for claim := range strings.SplitSeq(value, ",") {
			using(pod, claim)
		}
	case "extended":
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: value}
	default:
		require.Fail(s.t, "no such field: "+field)
	}
}
