package toleration

import (
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

// makers are the users that make pods, and what pods are made from, from templates. Those of
// DaemonSets are among them.
var makers = []string{
	"system:serviceaccount:kube-system:deployment-controller",
	"system:serviceaccount:kube-system:replicaset-controller",
	"system:serviceaccount:kube-system:statefulset-controller",
	"system:serviceaccount:kube-system:daemon-set-controller",
	"system:serviceaccount:kube-system:job-controller",
	"system:serviceaccount:kube-system:cronjob-controller",
	"system:serviceaccount:kube-system:replication-controller",
	"system:kube-controller-manager",
}

// ofPods returns the policy about pods and their templates.
func (x *export) ofPods() *vap.Policy {
	p := x.blank("pods", x.podNotes()...)
	p.Rules = []admissionregistrationv1.NamedRuleWithOperations{
		vap.Rule("", "v1", admissionregistrationv1.NamespacedScope, written, "pods", "replicationcontrollers", "podtemplates"),
		vap.Rule("apps", "v1", admissionregistrationv1.NamespacedScope, written, "deployments", "replicasets", "statefulsets", "daemonsets"),
		vap.Rule("apps", "v1", admissionregistrationv1.NamespacedScope, created, "controllerrevisions"),
		vap.Rule("batch", "v1", admissionregistrationv1.NamespacedScope, written, "jobs", "cronjobs"),
	}
	p.Conditions = []admissionregistrationv1.MatchCondition{
		{Name: "not-made-from-a-template", Expression: vap.Not(vap.In("request.userInfo.username", slices.Concat(makers, x.settings.WorkloadControllers)))},
		{Name: "not-a-mirror-pod", Expression: notMirror},
	}
	p.Variables = slices.Concat(
		[]admissionregistrationv1.Variable{
			variable("place", podPlaces()),
			variable("pod", podIn("object")),
			variable("subject", "variables.pod"),
			variable("claim", "null"),
			variable("tolerations", x.podTolerations("variables.pod")),
			variable("stood", `request.operation == "CREATE" ? [] : `+vap.BindText("before", podIn("oldObject"), x.podTolerations("before"))),
			variable("moved", elsewhere("tolerations", "stood")),
			variable("gone", elsewhere("stood", "tolerations")),
			x.guarded(v1alpha1.TaintTargetNode),
		},
		x.judging(vap.And(vap.Not(x.settled(`request.resource.resource == "daemonsets"`)), fresh),
			"authorizer", "authorizer.serviceAccount(request.namespace, "+serviceAccount+")"),
		x.again(),
	)
	const path = `variables.place + "[" + string(g.toleration.at) + "]"`
	p.Validations = []admissionregistrationv1.Validation{
		x.validation("refused", x.words("refused", path, "could tolerate what the policy guards, which is not granted to user ")),
		x.validation("refusedAgain", x.words("refusedAgain", path, "the pod is let go, and could tolerate what the policy guards, which is not granted; asked by user ")),
	}
	return p
}

// notMirror is false of the mirror of a static pod that its own kubelet writes: that pod
// runs all the same.
const notMirror = `request.resource.resource != "pods" || !("system:nodes" in request.userInfo.?groups.orValue([])) || ` +
	`request.userInfo.username != "system:node:" + dyn(object).spec.?nodeName.orValue("") || ` +
	`!dyn(object).metadata.?annotations[?"` + corev1.MirrorPodAnnotationKey + `"].hasValue()`

// serviceAccount is the name of the service account of the pod.
const serviceAccount = `variables.pod.?spec.?serviceAccountName.orValue("") == "" ? "default" : string(variables.pod.spec.serviceAccountName)`

// fresh is true of what did not stand as often before. What stands where it stood is not
// compared with all others: most updates add something at the end, or change nothing.
var fresh = "size(variables.stood) == 0 || !(g.toleration.at < size(variables.stood) && " + sameToleration("variables.stood[g.toleration.at]", "g.toleration") + ") && " +
	count("moved") + " > " + count("gone")

func count(list string) string {
	return "variables." + list + ".filter(u, " + sameToleration("u", "g.toleration") + ").size()"
}

// elsewhere returns those of a list of tolerations that are not in the same place in another
// one.
func elsewhere(list, other string) string {
	other = "variables." + other
	return "variables." + list + ".transformList(i, t, !(i < size(" + other + ") && " + sameToleration(other+"[i]", "t") + "), t)"
}

// sameToleration returns whether two tolerations are the same, as identify reads them.
func sameToleration(a, b string) string {
	var terms []string
	for _, field := range tolerationFields {
		terms = append(terms, a+"."+field+" == "+b+"."+field)
	}
	const seconds = ".?tolerationSeconds"
	return strings.Join(terms, " && ") + " && (" + a + seconds + " == " + b + seconds + " || " +
		a + seconds + ".orValue(1) <= 0 && " + b + seconds + ".orValue(1) <= 0)"
}

// podTemplates says where kinds that have no pod have the template of one.
var podTemplates = []struct{ resource, path, at string }{
	{"pods", "", ""},
	{"podtemplates", "template.", ".?template"},
	{"cronjobs", "spec.jobTemplate.spec.template.", ".spec.jobTemplate.spec.?template"},
	{"controllerrevisions", "data.spec.template.", ""},
	{"", "spec.template.", ".spec.?template"},
}

// podPlaces returns where the tolerations stand.
func podPlaces() string {
	return eachTemplate(func(path, _ string) string { return vap.Quote(path + "spec.tolerations") })
}

// podIn returns the pod, or the template of one, in an object.
func podIn(object string) string {
	return eachTemplate(func(path, at string) string {
		switch {
		case path == "":
			return "dyn(" + object + ")"
		case at == "":
			return revisionIn(object)
		default:
			return "dyn(" + object + ")" + at + ".orValue({})"
		}
	})
}

func eachTemplate(of func(path, at string) string) string {
	var b strings.Builder
	for _, t := range podTemplates {
		if t.resource != "" {
			b.WriteString("request.resource.resource == " + vap.Quote(t.resource) + " ? ")
		}
		b.WriteString(of(t.path, t.at))
		if t.resource != "" {
			b.WriteString(" : ")
		}
	}
	return b.String()
}

// revisionIn returns the template in a ControllerRevision, which may hold anything: what is
// no template of a pod is none.
func revisionIn(object string) string {
	isMap := func(path string) string { return "type(dyn(" + object + ")" + path + ".orValue(null)) == map" }
	const spec, template, inner = ".?data.?spec", ".?data.?spec.?template", ".?data.?spec.?template.?spec"
	return vap.Enclose(vap.And(isMap(".?data"), isMap(spec), isMap(template), isMap(inner)) +
		" ? dyn(" + object + ")" + template + ".orValue({}) : dyn({})")
}

// podTolerations returns the tolerations of a pod, each with the number of its place.
func (x *export) podTolerations(pod string) string {
	return pod + ".?spec.?tolerations.orValue([]).transformList(i, t, " + x.toleration(`"at": dyn(i)`) + ")"
}

// again returns the variables of what is judged when the last gate of a pod goes: all that
// it tolerates, whoever asked for it.
func (x *export) again() []admissionregistrationv1.Variable {
	const letGo = `request.resource.resource == "pods" && request.operation == "UPDATE" && ` +
		`size(dyn(oldObject).spec.?schedulingGates.orValue([])) > 0 && size(dyn(object).spec.?schedulingGates.orValue([])) == 0`
	const ofDaemonSet = `dyn(object).metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && o.kind == "DaemonSet")`
	refused := vap.And(vap.Not(x.settled(ofDaemonSet)), vap.Not(x.whoever()))
	return append(x.staticsAgain(), variable("refusedAgain", vap.Enclose(letGo)+" ? variables.guarded.filter(g, "+refused+") : []"))
}

// systemKeys are those of what Kubernetes adds to pods: for NoExecute, for NoSchedule, and
// the last one for pods in the network of their node.
var systemKeys = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
	corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
}

// settled returns whether g is what Kubernetes itself adds, as Input.system says; false
// where the policy guards none of that. Daemon is whether the pod is of a DaemonSet.
func (x *export) settled(daemon string) string {
	guards := func(s v1alpha1.TaintSelector) bool {
		compiled := selector.Compile(&s)
		return slices.ContainsFunc(systemKeys, func(key string) bool {
			t := selector.OfPod(&corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
			return compiled.Could(&t)
		})
	}
	if !slices.ContainsFunc(x.p.Spec.Taints, guards) {
		return "false"
	}
	const t = "g.toleration."
	bounded := func(key string, seconds int64) string {
		return t + "key == " + vap.Quote(key) + " && " + t + "?tolerationSeconds == optional.of(" + strconv.FormatInt(seconds, 10) + ")"
	}
	noExecute := vap.Or(
		bounded(corev1.TaintNodeNotReady, x.settings.NotReady), bounded(corev1.TaintNodeUnreachable, x.settings.Unreachable),
		vap.And(vap.In(t+"key", systemKeys[:2]), "!has("+t+"tolerationSeconds)", daemon),
	)
	last := len(systemKeys) - 1
	noSchedule := vap.And("!has("+t+"tolerationSeconds)", daemon, vap.Or(
		vap.In(t+"key", systemKeys[2:last]),
		vap.And(t+"key == "+vap.Quote(systemKeys[last]), "variables.pod.?spec.?hostNetwork.orValue(false)"),
	))
	return vap.And(t+`operator == "Exists"`, t+`value == ""`, vap.Or(
		vap.And(t+`effect == "NoExecute"`, noExecute), vap.And(t+`effect == "NoSchedule"`, noSchedule),
	))
}

// askingNotes says what RBAC is not asked about.
func (x *export) askingNotes() []vap.Note {
	if !x.asksRBAC() {
		return nil
	}
	return []vap.Note{vap.AboutKeys}
}

// podNotes says what the policy about pods does not do.
func (x *export) podNotes() []vap.Note {
	var notes []vap.Note
	if slices.ContainsFunc(x.p.Spec.Taints, keepsOff) {
		notes = append(notes, vap.Note{Text: "a pod with spec.nodeName, and a binding of a pod, are not held against the taints of the node, which the API server does not show a policy"})
	}
	return append(append(notes, x.askingNotes()...),
		vap.Note{Text: "what the controllers of Kubernetes make from templates is let in, since the template was judged: what is added on the way, or to an owner that was never judged, is not"},
		vap.Note{Text: "what a RuntimeClass, ExtendedResourceToleration, PodTolerationRestriction or mode Window adds to a pod is judged as if its user had asked for it"},
		vap.Note{Text: "mirror pods are not recorded, and pods that stand already are not counted in status.violations"},
	)
}

// keepsOff reports whether a selector selects taints of nodes that keep pods off.
func keepsOff(s v1alpha1.TaintSelector) bool {
	return selector.TargetOf(s.Target) == v1alpha1.TaintTargetNode &&
		(len(s.Effects) == 0 || slices.ContainsFunc(s.Effects, func(e corev1.TaintEffect) bool { return e != corev1.TaintEffectPreferNoSchedule }))
}
