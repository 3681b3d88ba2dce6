package check

import (
	"fmt"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// generator makes up objects that Kubernetes takes, of all kinds that Tollgate is asked about,
// and policies about them.
type generator struct {
	*rand.Rand

	count int
}

type fields = map[string]any

// world is what there is besides, in the cluster and in the files. The nodes are left out of
// service, so that nothing happens to them.
const world = `
apiVersion: v1
kind: Namespace
metadata: {name: iron, labels: {tier: iron}}
---
apiVersion: v1
kind: Namespace
metadata: {name: gold, labels: {tier: gold, team: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: banana, labels: {team: b, queue: managed}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner, namespace: iron}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner, namespace: gold}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner, namespace: banana}
---
apiVersion: v1
kind: Node
metadata: {name: plain, labels: {pool: iron, zone: a}}
---
apiVersion: v1
kind: Node
metadata: {name: tainted, labels: {pool: banana, zone: b}}
spec: {taints: [{key: dedicated, value: banana, effect: NoSchedule}, {key: example.com/spot, effect: PreferNoSchedule}]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: special}
handler: special
scheduling:
  nodeSelector: {runtime: special}
  tolerations: [{key: dedicated, operator: Exists}, {key: example.com/spot, operator: Equal, value: "true", effect: NoSchedule}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nics}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu, namespace: gold}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}}
`

var (
	nodeKeys   = []string{"dedicated", "example.com/spot", "example.com/other", "node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable", "team"}
	deviceKeys = []string{"health.example.com/failed", "health.example.com/degraded", "example.com/recalled"}
	values     = []string{"", "banana", "true", "a"}
	effects    = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
	namespaces = []string{"iron", "gold", "banana"}
)

func one[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// in reports true in some cases of a hundred.
func (g *generator) in(percent int) bool { return g.IntN(100) < percent }

// toleration returns one of a node taint, now and then one that Kubernetes refuses.
func (g *generator) toleration() fields {
	t := fields{}
	if g.in(85) {
		t["key"] = one(g, nodeKeys...)
	}
	if t["key"] == nil || g.in(50) {
		t["operator"] = "Exists"
	} else if v := one(g, values...); v != "" {
		t["value"] = v
	}
	if g.in(60) {
		t["effect"] = one(g, effects...)
	}
	if t["effect"] == "NoExecute" && g.in(60) {
		t["tolerationSeconds"] = one(g, 0, 60, 300, 3600)
	}
	if g.in(3) {
		t["operator"], t["value"] = "Exists", "x"
	}
	return t
}

func (g *generator) tolerations() []any {
	list := []any{}
	for range g.IntN(4) {
		list = append(list, g.toleration())
	}
	return list
}

func (g *generator) deviceTolerations() []any {
	list := []any{}
	for range g.IntN(3) {
		t := fields{"operator": "Exists"}
		if g.in(85) {
			t["key"] = one(g, deviceKeys...)
		}
		if t["key"] != nil && g.in(30) {
			t = fields{"key": t["key"], "value": "a"}
		}
		if g.in(70) {
			t["effect"] = one(g, "NoSchedule", "NoExecute")
		}
		if t["effect"] == "NoExecute" && g.in(50) {
			t["tolerationSeconds"] = one(g, 60, 3600)
		}
		list = append(list, t)
	}
	return list
}

// podSpec returns the spec of a pod, or of a template.
func (g *generator) podSpec(restart string) fields {
	container := fields{"name": "c", "image": one(g, "x", "x:1", "registry.example.com/x:latest")}
	if g.in(30) {
		container["resources"] = fields{"limits": fields{one(g, "example.com/gpu", "example.com/fpga", "cpu"): "1"}}
	}
	spec := fields{"containers": []any{container}, "restartPolicy": restart, "tolerations": g.tolerations()}
	if g.in(30) {
		spec["nodeSelector"] = fields{"pool": one(g, "banana", "iron")}
	}
	if g.in(30) {
		spec["serviceAccountName"] = "runner"
	}
	if g.in(10) {
		spec["runtimeClassName"] = "special"
	}
	if g.in(10) {
		spec["priorityClassName"] = "high"
	}
	if g.in(15) {
		spec["nodeName"] = one(g, "plain", "tainted", "nowhere")
	}
	if g.in(10) && spec["nodeName"] == nil {
		spec["schedulingGates"] = []any{fields{"name": "queue.example.com/admission"}}
	}
	if g.in(10) {
		spec["hostNetwork"] = true
	}
	if g.in(30) {
		spec["topologySpreadConstraints"] = []any{g.constraint()}
	}
	if g.in(15) {
		spec["resourceClaims"] = []any{fields{"name": "d", "resourceClaimTemplateName": one(g, "gpu", "none")}}
	}
	return spec
}

// constraint returns one that now and then counts a node which pods cannot use. No generated
// node has one of the keys: check counts those among its files, and the API server none of
// a dry run.
func (g *generator) constraint() fields {
	c := fields{
		"topologyKey": one(g, "zone", "zone", "rack"), "maxSkew": one(g, 1, 2),
		"whenUnsatisfiable": one(g, "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
		"labelSelector":     fields{"matchExpressions": []any{fields{"key": "app", "operator": "Exists"}}},
	}
	if g.in(20) {
		c["nodeTaintsPolicy"] = one(g, "Honor", "Ignore")
	}
	return c
}

func (g *generator) requests() []any {
	request := func() fields {
		r := fields{"deviceClassName": one(g, "gpu.example.com", "nics")}
		if list := g.deviceTolerations(); len(list) > 0 {
			r["tolerations"] = list
		}
		return r
	}
	requests := []any{}
	for i := range 1 + g.IntN(2) {
		name := fmt.Sprintf("r%d", i)
		if g.in(70) {
			requests = append(requests, fields{"name": name, "exactly": request()})
			continue
		}
		sub := request()
		sub["name"] = "s"
		requests = append(requests, fields{"name": name, "firstAvailable": []any{sub}})
	}
	return requests
}

// object returns an object of a random kind, of a name of its own.
func (g *generator) object() *unstructured.Unstructured {
	g.count++
	name := fmt.Sprintf("check-%d", g.count)
	labels := fields{"app": name}
	if g.in(40) {
		labels["team"] = one(g, "a", "b")
	}
	template := func(restart string) fields {
		return fields{"metadata": fields{"labels": labels}, "spec": g.podSpec(restart)}
	}
	selector := fields{"matchLabels": fields{"app": name}}
	made := func(apiVersion, kind, namespace string, rest fields) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: rest}
		o.SetAPIVersion(apiVersion)
		o.SetKind(kind)
		metadata := fields{"name": name, "labels": labels}
		if namespace != "" {
			metadata["namespace"] = namespace
		}
		o.Object["metadata"] = metadata
		return o
	}
	in := one(g, namespaces...)
	switch n := g.IntN(100); {
	case n < 35:
		return made("v1", "Pod", in, fields{"spec": g.podSpec("Always")})
	case n < 42:
		return made("apps/v1", "Deployment", in, fields{"spec": fields{"selector": selector, "template": template("Always")}})
	case n < 47:
		return made("apps/v1", "DaemonSet", in, fields{"spec": fields{"selector": selector, "template": template("Always")}})
	case n < 50:
		return made("apps/v1", "StatefulSet", in, fields{"spec": fields{"serviceName": "s", "selector": selector, "template": template("Always")}})
	case n < 53:
		return made("batch/v1", "Job", in, fields{"spec": fields{"template": template("Never")}})
	case n < 56:
		return made("batch/v1", "CronJob", in, fields{"spec": fields{"schedule": "0 * * * *", "jobTemplate": fields{"spec": fields{"template": template("Never")}}}})
	case n < 58:
		return made("v1", "PodTemplate", in, fields{"template": template("Always")})
	case n < 68:
		return made("resource.k8s.io/v1", "ResourceClaim", in, fields{"spec": fields{"devices": fields{"requests": g.requests()}}})
	case n < 74:
		return made("resource.k8s.io/v1", "ResourceClaimTemplate", in, fields{"spec": fields{"spec": fields{"devices": fields{"requests": g.requests()}}}})
	case n < 84:
		return g.node(made("v1", "Node", "", fields{}))
	case n < 92:
		return made("resource.k8s.io/v1", "DeviceTaintRule", "", fields{"spec": g.rule()})
	case n < 95:
		return made("tollgate.dev/v1alpha1", "ResourceSlicePatch", "", fields{"spec": fields{"devices": fields{
			"filter": fields{"driver": one(g, "gpu.example.com", "nic.example.com")}, "taints": []any{g.deviceTaint()},
		}}})
	default:
		namespace := made("v1", "Namespace", "", fields{})
		namespace.SetLabels(map[string]string{one(g, "tier", "team"): one(g, "gold", "iron", "a", "b")})
		return namespace
	}
}

func (g *generator) node(node *unstructured.Unstructured) *unstructured.Unstructured {
	labels := map[string]string{"kubernetes.io/os": "linux"}
	if g.in(60) {
		labels["pool"] = one(g, "banana", "iron", "shared", "spot")
	}
	node.SetLabels(labels)
	taints := []any{}
	for _, key := range nodeKeys {
		if !g.in(20) {
			continue
		}
		taint := fields{"key": key, "effect": one(g, effects...)}
		if v := one(g, values...); v != "" {
			taint["value"] = v
		}
		taints = append(taints, taint)
	}
	if len(taints) > 0 {
		node.Object["spec"] = fields{"taints": taints}
	}
	return node
}

func (g *generator) deviceTaint() fields {
	return fields{"key": one(g, deviceKeys...), "effect": one(g, "None", "NoSchedule", "NoExecute")}
}

func (g *generator) rule() fields {
	rule := fields{"taint": g.deviceTaint()}
	switch selector := (fields{}); {
	case g.in(10):
	case g.in(20):
		rule["deviceSelector"] = selector
	default:
		selector["driver"] = one(g, "gpu.example.com", "nic.example.com")
		if g.in(50) {
			selector["pool"] = "p"
		}
		rule["deviceSelector"] = selector
	}
	return rule
}

// policies returns a set of random policies.
func (g *generator) policies() []*unstructured.Unstructured {
	list := []*unstructured.Unstructured{}
	add := func(kind string, spec fields) {
		g.count++
		policy := &unstructured.Unstructured{Object: fields{"spec": spec}}
		policy.SetAPIVersion("tollgate.dev/v1alpha1")
		policy.SetKind(kind)
		policy.SetName(fmt.Sprintf("random-%d", g.count))
		list = append(list, policy)
	}
	for range 2 + g.IntN(3) {
		spec := fields{"taints": []any{g.selector()}, "validationActions": one(g, []any{"Deny"}, []any{"Deny", "Audit"}, []any{"Warn"}, []any{"Audit"})}
		grants := []any{}
		for range g.IntN(3) {
			grants = append(grants, g.grant())
		}
		if len(grants) > 0 {
			spec["grants"] = grants
		}
		if g.in(20) {
			spec["matchConditions"] = []any{fields{"name": "c", "expression": one(g, "request.userInfo.username != 'rita'", "object.metadata.name.endsWith('1') || object.kind != 'Pod'")}}
		}
		add("TolerationPolicy", spec)
	}
	for range g.IntN(3) {
		add("PlacementPolicy", fields{"match": g.match(), "pod": one(g,
			fields{"nodeSelector": fields{"pool": one(g, "banana", "iron")}},
			fields{"tolerations": []any{fields{"key": one(g, nodeKeys...), "operator": "Exists"}}},
			fields{"schedulingGates": []any{"queue.example.com/admission"}},
		)})
	}
	if g.in(50) {
		add("PlacementPolicy", fields{
			"match": fields{"namespaces": []any{one(g, namespaces...)}, "deviceClasses": []any{"gpu.example.com"}},
			"claim": fields{"tolerations": []any{fields{"key": one(g, deviceKeys...), "value": "a", "effect": "NoSchedule"}}},
		})
	}
	for range g.IntN(3) {
		setters := []any{one(g, fields{"subjects": []any{fields{"kind": "Group", "name": "platform"}}}, fields{"rbac": true},
			fields{"expression": "request.userInfo.username == 'rita'"})}
		spec := fields{"taints": []any{fields{"key": one(g, nodeKeys...)}, fields{"target": "Device", "key": one(g, "health.example.com/*", "*")}}, "setters": setters}
		spec["validationActions"] = one(g, []any{"Deny"}, []any{"Warn"})
		if g.in(50) {
			spec["limits"] = fields{"requireSelector": g.in(50), "requirePreview": g.in(50)}
		}
		add("TaintPolicy", spec)
	}
	return list
}

func (g *generator) selector() fields {
	if g.in(30) {
		s := fields{"target": "Device", "key": one(g, "health.example.com/*", "example.com/recalled", "*")}
		if g.in(40) {
			s["deviceClasses"] = []any{"gpu.example.com"}
		}
		return s
	}
	s := fields{"key": one(g, append([]string{"*", "example.com/*", "node.kubernetes.io/*"}, nodeKeys...)...)}
	if g.in(30) {
		s["values"] = []any{one(g, "banana", "true")}
	}
	if g.in(30) {
		s["effects"] = []any{one(g, "NoSchedule", "NoExecute")}
	}
	return s
}

func (g *generator) grant() fields {
	grant := one(g,
		fields{"namespaces": []any{one(g, "gold", "b*", "iron")}},
		fields{"namespaceSelector": fields{"matchLabels": fields{"tier": one(g, "gold", "iron")}}},
		fields{"subjects": []any{fields{"kind": "Group", "name": "platform"}}},
		fields{"subjects": []any{fields{"kind": "User", "name": "alice"}}},
		fields{"rbac": true},
		fields{"expression": one(g, "request.userInfo.groups.exists(x, x == 'platform')", "namespaceObject.metadata.labels[?'team'].orValue('') == 'a'",
			"object.metadata.labels[?'team'].orValue('') == 'b'", "toleration.key == 'dedicated'")},
	)
	if g.in(25) {
		grant["objectSelector"] = fields{"matchLabels": fields{"team": one(g, "a", "b")}}
	}
	if g.in(25) {
		grant["maxTolerationSeconds"] = one(g, 60, 600)
	}
	return grant
}

func (g *generator) match() fields {
	return one(g,
		fields{"namespaces": []any{one(g, namespaces...)}},
		fields{"namespaceSelector": fields{"matchLabels": fields{"tier": "gold"}}},
		fields{"namespaces": []any{"*"}, "resources": []any{"example.com/gpu"}},
		fields{"namespaces": []any{"*"}, "deviceClasses": []any{"gpu.example.com"}},
		fields{"namespaces": []any{"*"}, "podSelector": fields{"matchLabels": fields{"team": "a"}}},
	)
}
