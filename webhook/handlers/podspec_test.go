package handlers

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/webhook/review"
)

// What Tollgate does about a field of a pod. A field that says where a pod may run, or from which it
// has tolerations, must be judged.
const (
	// placed fields say where the pod may run, and are read.
	placed = "judged"
	// containers are lists of containers, whose requests are read.
	containers = "containers"
	// another is a field that matters to what Tollgate decides beside that.
	another = "another"
	// passed fields say nothing of where the pod may run, or nothing that a toleration, a taint or a
	// gate is about.
	passed = "passed over"
)

// fieldsOfPods are the fields of a pod's spec, and those of what it says of places, as Kubernetes has
// them in the version that Tollgate is built with.
var fieldsOfPods = map[reflect.Type]map[string]string{
	reflect.TypeFor[corev1.PodSpec](): {
		"nodeSelector": placed, "nodeName": placed, "affinity": placed, "tolerations": placed, "topologySpreadConstraints": placed,
		"schedulingGates": placed, "resourceClaims": placed, "runtimeClassName": placed,
		// The daemons of a node, with its network, have tolerations of their own.
		"hostNetwork": placed,
		"containers":  containers, "initContainers": containers, "ephemeralContainers": containers,
		"resources": placed,
		// RBAC is asked of the service account, spread is for the schedulers that know it, EvictionPolicies
		// protect by priority, and claims can be those of a group.
		"serviceAccountName": another, "schedulerName": another, "priorityClassName": another, "priority": another, "schedulingGroup": another,
		"volumes": passed, "restartPolicy": passed, "terminationGracePeriodSeconds": passed, "activeDeadlineSeconds": passed,
		"dnsPolicy": passed, "serviceAccount": passed, "automountServiceAccountToken": passed, "hostPID": passed, "hostIPC": passed,
		"shareProcessNamespace": passed, "securityContext": passed, "imagePullSecrets": passed, "hostname": passed, "subdomain": passed,
		"hostAliases": passed, "dnsConfig": passed, "readinessGates": passed, "enableServiceLinks": passed, "preemptionPolicy": passed,
		"overhead": passed, "setHostnameAsFQDN": passed, "os": passed, "hostUsers": passed, "hostnameOverride": passed,
		"evictionResponders": passed,
	},
	reflect.TypeFor[corev1.Toleration](): {
		"key": placed, "operator": placed, "value": placed, "effect": placed, "tolerationSeconds": placed,
	},
	reflect.TypeFor[corev1.Affinity](): {"nodeAffinity": placed, "podAffinity": passed, "podAntiAffinity": passed},
	reflect.TypeFor[corev1.NodeAffinity](): {
		"requiredDuringSchedulingIgnoredDuringExecution": placed, "preferredDuringSchedulingIgnoredDuringExecution": placed,
	},
	reflect.TypeFor[corev1.NodeSelectorTerm]():        {"matchExpressions": placed, "matchFields": placed},
	reflect.TypeFor[corev1.NodeSelectorRequirement](): {"key": placed, "operator": placed, "values": placed},
	reflect.TypeFor[corev1.TopologySpreadConstraint](): {
		"maxSkew": placed, "topologyKey": placed, "whenUnsatisfiable": placed, "labelSelector": placed, "minDomains": placed,
		"nodeAffinityPolicy": placed, "nodeTaintsPolicy": placed, "matchLabelKeys": placed,
	},
	reflect.TypeFor[corev1.PodSchedulingGate]():    {"name": placed},
	reflect.TypeFor[corev1.PodResourceClaim]():     {"name": placed, "resourceClaimName": placed, "resourceClaimTemplateName": placed},
	reflect.TypeFor[corev1.ResourceRequirements](): {"requests": placed, "limits": passed, "claims": passed},
}

// jsonNames returns the fields of a type by their names in JSON.
func jsonNames(of reflect.Type) map[string]reflect.StructField {
	named := map[string]reflect.StructField{}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		named[name] = field
	}
	return named
}

// holdsContainers reports whether a field is a list of things with an image and a command.
func holdsContainers(field reflect.Type) bool {
	if field.Kind() != reflect.Slice || field.Elem().Kind() != reflect.Struct {
		return false
	}
	names := jsonNames(field.Elem())
	if inline, ok := names[""]; ok && inline.Anonymous {
		return holdsContainers(reflect.SliceOf(inline.Type))
	}
	_, image := names["image"]
	_, command := names["command"]
	return image && command
}

func TestB13EveryFieldOfAPodIsJudgedOrPassedOverOnPurpose(t *testing.T) {
	for of, known := range fieldsOfPods {
		for name, field := range jsonNames(of) {
			what, ok := known[name]
			require.True(t, ok, "Kubernetes has a field %s of %s: say in fieldsOfPods what Tollgate does about it", name, of)
			require.Equal(t, holdsContainers(field.Type), what == containers, "%s of %s holds containers, or does not", name, of)
		}
		for name := range known {
			require.Contains(t, jsonNames(of), name, "Kubernetes has no longer this field of %s", of)
		}
	}
}

func TestB13EveryListOfContainersCounts(t *testing.T) {
	lists := 0
	for name, what := range fieldsOfPods[reflect.TypeFor[corev1.PodSpec]()] {
		if what != containers {
			continue
		}
		lists++
		var fields review.Fields
		pod := readPod(&fields, parsed(t, []byte(`{"spec":{"`+name+`":[{"name":"a"},{"name":"b","resources":{"requests":{"example.com/gpu":"1"}}}]}}`)))
		require.NoError(t, fields.Err())
		requested, err := pod.requested()
		require.NoError(t, err)
		// The API server refuses resources of ephemeral containers.
		require.Equal(t, name != "ephemeralContainers", slices.Contains(requested, "example.com/gpu"), name)
	}
	require.Equal(t, 3, lists)
}
