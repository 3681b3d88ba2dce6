package vap

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/cel"
	"github.com/tollgate-dev/tollgate/policy/selector"
	"github.com/tollgate-dev/tollgate/policy/toleration"
)

// tolerations exports a TolerationPolicy. Its expressions read these variables: "tolerations"
// has the tolerations of the object as maps, and "subject" its labels; "guarded" has those
// that the policy guards, each as a map g with the toleration, and "lasts", the seconds for
// which it tolerates a NoExecute taint that is guarded.
type tolerations struct {
	exporter

	spec *v1alpha1.TolerationPolicySpec
	// remedy says to whom the grants allow what is guarded; keys are the guarded keys.
	remedy string
	keys   []string
	// message is the message of the policy, an expression of type string; empty for none.
	message string

	// grants are CEL variables, one for each grant, that are true if the grant applies to the
	// request. anew are the same variables without the subjects of the grants.
	grants, anew []named
	// free, asked and whoever are CEL expressions about a guarded toleration g. free is true
	// if a grant without RBAC and without an expression allows g. asked is true if a grant
	// with RBAC or an expression allows g. whoever is true if a grant allows g for some
	// requester: it ignores subjects, RBAC, and expressions that read the requester.
	free, asked, whoever string
	// rbac says whether a grant by RBAC is for the request; newly whether a namespace has
	// labels for a grant which it did not have before.
	rbac, newly string
	// limited says that a grant limits the seconds.
	limited bool
}

// Tolerations exports a TolerationPolicy: one ValidatingAdmissionPolicy about pods and their
// templates, one about claims, one about the labels of namespaces, each where the policy has
// to do with it. Notes say what is missing.
//
// What controllers make from templates is let in, because the API server shows a policy no
// owner: the template was judged when it was written.
func Tolerations(p *v1alpha1.TolerationPolicy, settings Settings) (Exported, error) {
	ref := policy.Ref("TolerationPolicy", p.Name)
	title := strings.Replace(ref, "/", " ", 1)
	if errs := toleration.ValidatePolicy(p); len(errs) > 0 {
		return Exported{}, fmt.Errorf("read %s: %w", title, errs.ToAggregate())
	}
	x := &tolerations{
		exporter: exporter{
			settings: settings, ref: ref, title: title, exempt: settings.Exempt,
			prefix: "tollgate-tolerations-" + objectName(p.Name) + "-", actions: policy.Actions(p.Spec.ValidationActions),
			fields:   []named{{"key", ""}, {"operator", "Equal"}, {"value", ""}, {"effect", ""}},
			optional: `?"tolerationSeconds": t.?tolerationSeconds`,
			bindings: []named{
				{"object", "dyn(object)"},
				{"oldObject", "dyn(oldObject)"},
				{"pod", "variables.pod"},
				{"claim", "variables.claim"},
				{"toleration", "g.toleration"},
			},
		},
		spec: &p.Spec,
	}
	x.remedy, x.keys = toleration.Summary(p)
	x.readGrants()
	x.readConditions(p.Spec.MatchConditions)
	x.readMessage()
	if hasTarget(p.Spec.Taints, v1alpha1.TaintTargetNode) {
		x.addPods()
	}
	if hasTarget(p.Spec.Taints, v1alpha1.TaintTargetDevice) {
		x.addClaims()
	}
	if slices.ContainsFunc(p.Spec.Grants, func(g v1alpha1.TolerationGrant) bool { return g.NamespaceSelector != nil }) {
		x.addNamespaces()
	}
	return x.exported, x.err
}

func (x *tolerations) readGrants() {
	var free, asked, whoever, rbac, newly []string
	for i := range x.spec.Grants {
		g := &x.spec.Grants[i]
		name, fits := fmt.Sprintf("grant%d", i), "true"
		if g.MaxTolerationSeconds != nil {
			x.limited = true
			fits = fmt.Sprintf("g.lasts <= %d", *g.MaxTolerationSeconds)
		}
		covers := func(namespace, labels string) string {
			return and(inNamespaces(g.Namespaces, namespace), labelled(g.NamespaceSelector, labels))
		}
		place := and(covers("request.namespace", "namespaceObject.metadata.?labels"), labelled(g.ObjectSelector, "variables.subject.?metadata.?labels"))
		x.grants = append(x.grants, named{name, and(place, subjects(g.Subjects))})
		x.anew = append(x.anew, named{name + "again", place})

		terms, anew := []string{"variables." + name, fits}, []string{"variables." + name + "again", fits}
		if g.RBAC {
			x.authorizer = true
			terms = append(terms, "g.toleration.key in variables.allowed")
			rbac = append(rbac, "variables."+name)
		}
		if g.Expression != "" {
			expression, read := x.ask(fmt.Sprintf("spec.grants[%d].expression", i), cel.OfToleration, g.Expression)
			terms = append(terms, expression)
			if !read.Uses.Requester {
				anew = append(anew, expression)
			}
		}
		allows := &free
		if g.RBAC || g.Expression != "" {
			allows = &asked
		}
		*allows = append(*allows, and(terms...))
		whoever = append(whoever, and(anew...))
		if g.NamespaceSelector != nil {
			newly = append(newly, and(covers("request.name", "variables.labels"), not(covers("request.name", "variables.before"))))
		}
	}
	x.free, x.asked, x.whoever, x.rbac, x.newly = or(free...), or(asked...), or(whoever...), or(rbac...), or(newly...)
}

// readMessage reads the expression of the message. Messages of the API server cannot ask the
// authorizer; then the plain message is used.
func (x *tolerations) readMessage() {
	if x.spec.Message != "" {
		x.message = quote(x.spec.Message)
	}
	if x.spec.MessageExpression == "" {
		return
	}
	why := ""
	read, err := cel.Embed(cel.OfToleration, x.spec.MessageExpression, cel.String)
	switch {
	case err != nil:
		why = err.Error()
	case read.Reads("authorizer"):
		why = "messages cannot ask what is authorized"
	default:
		if x.authorizer {
			why = "messages cannot ask what grants are for, which ask RBAC or an authorizer"
		}
		x.message = x.bound(&read, bindText)
	}
	if why != "" {
		x.notes = append(x.notes, Note{"spec.messageExpression", "the plain message is used: " + why, false})
	}
}

// judged returns the variables from "guarded" to "refused", and the conditions. Unsettled is
// true of a g that only a grant could let in. Authorizers are asked for grants by RBAC.
func (x *tolerations) judged(target v1alpha1.TaintTarget, unsettled string, authorizers ...string) []named {
	lasts := "0"
	if x.limited {
		lasts = fmt.Sprintf(`!(%s) ? 0 : t.effect == "NoExecute" ? t.?tolerationSeconds.orValue(9223372036854775807) : 9223372036854775807`,
			anySelector(x.spec.Taints, target, couldOutlast))
	}
	variables := slices.Concat(
		[]named{{"guarded", fmt.Sprintf(`variables.tolerations.transformList(i, t, %s, {"toleration": dyn(t), "lasts": dyn(%s)})`,
			anySelector(x.spec.Taints, target, could), lasts)}},
		x.grants,
		[]named{{"unsettled", "variables.guarded.filter(g, " + and(not(x.free), unsettled) + ")"}},
	)
	if x.rbac != "false" {
		variables = append(variables, allowed(enclose(x.rbac)+" ? variables.unsettled.map(g, string(g.toleration.key)) : []", policy.VerbTolerate, authorizers...)...)
	}
	refused := "variables.unsettled"
	if x.asked != "false" {
		refused += ".filter(g, " + not(x.asked) + ")"
	}
	return append(variables, named{"refused", refused}, named{"conditions", x.conditions})
}

// refusal returns the validation that refuses where a list of g is not empty. The message
// names the first g of the list, which stands at a path. It is left out where the verdict
// depends on the authorizer, which messages cannot ask.
func (x *tolerations) refusal(list, path, problem string) validation {
	plain := x.ref + ": a toleration is not granted; " + x.remedy
	if message := strings.TrimSpace(policy.Short(x.spec.Message, policy.MaxFinding)); message != "" {
		plain += ": " + message
	}
	all, expression := "variables."+list, ""
	if list != "refused" || !x.authorizer {
		text := fmt.Sprintf(`%q + %s + " (operator=" + g.toleration.operator`+
			` + (g.toleration.key == "" ? "" : " key=" + g.toleration.key)`+
			` + (g.toleration.value == "" ? "" : " value=" + g.toleration.value)`+
			` + (g.toleration.effect == "" ? "" : " effect=" + g.toleration.effect)`+
			` + (has(g.toleration.tolerationSeconds) ? " for " + string(g.toleration.tolerationSeconds) + "s" : "")`+
			` + ")" + (size(%[3]s) > 1 ? " and " + string(size(%[3]s) - 1) + " more" : "")`+
			` + %[4]q + request.userInfo.username + " in namespace " + request.namespace + %[5]q`,
			x.ref+": ", path, all, ": "+problem, "; "+x.remedy)
		if x.message != "" {
			text += ` + ": " + ` + x.message
		}
		// The API server evaluates the message of a request that is allowed too. A list that comes from a map
		// has no order; in one of more than 20 any item will do.
		expression = fmt.Sprintf(`size(%[1]s) == 0 ? "" : [(size(%[1]s) > 20 ? %[1]s : `+
			`%[1]s.filter(a, %[1]s.all(b, a.toleration.at <= b.toleration.at)))[0]].map(g, %[2]s)[0]`, all, text)
	}
	return refuses("size("+all+") == 0 || !variables.conditions", plain, expression)
}

// workloadControllers are the users that make pods, and what pods are made from, from
// templates. The controller of DaemonSets is among them.
var workloadControllers = []string{
	"system:serviceaccount:kube-system:deployment-controller",
	"system:serviceaccount:kube-system:replicaset-controller",
	"system:serviceaccount:kube-system:statefulset-controller",
	"system:serviceaccount:kube-system:daemon-set-controller",
	"system:serviceaccount:kube-system:job-controller",
	"system:serviceaccount:kube-system:cronjob-controller",
	"system:serviceaccount:kube-system:replication-controller",
	"system:kube-controller-manager",
}

const (
	// notMirror is false of the mirror of a static pod that its own kubelet writes: that pod
	// runs in any case.
	notMirror = `request.resource.resource != "pods" || !("system:nodes" in request.userInfo.?groups.orValue([])) || ` +
		`request.userInfo.username != "system:node:" + dyn(object).spec.?nodeName.orValue("") || ` +
		`!dyn(object).metadata.?annotations[?"` + corev1.MirrorPodAnnotationKey + `"].hasValue()`
	// podAccount is the name of the service account of the pod.
	podAccount = `variables.pod.?spec.?serviceAccountName.orValue("") == "" ? "default" : string(variables.pod.spec.serviceAccountName)`
	// letGo is true if the last scheduling gate of a pod is removed.
	letGo = `request.resource.resource == "pods" && request.operation == "UPDATE" && ` +
		`size(dyn(oldObject).spec.?schedulingGates.orValue([])) > 0 && size(dyn(object).spec.?schedulingGates.orValue([])) == 0`
	// ofDaemonSet is true if a DaemonSet controls the pod.
	ofDaemonSet = `dyn(object).metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && o.kind == "DaemonSet")`

	// podPath is the path of the tolerations.
	podPath = `request.resource.resource == "pods" ? "spec.tolerations" : request.resource.resource == "podtemplates" ? "template.spec.tolerations" : ` +
		`request.resource.resource == "cronjobs" ? "spec.jobTemplate.spec.template.spec.tolerations" : ` +
		`request.resource.resource == "controllerrevisions" ? "data.spec.template.spec.tolerations" : "spec.template.spec.tolerations"`
	// podOf is the pod, or the template of one, in OBJECT. A ControllerRevision may hold
	// anything; where it has no template of a pod, that is empty.
	podOf = `request.resource.resource == "pods" ? dyn(OBJECT) : request.resource.resource == "podtemplates" ? dyn(OBJECT).?template.orValue({}) : ` +
		`request.resource.resource == "cronjobs" ? dyn(OBJECT).spec.jobTemplate.spec.?template.orValue({}) : ` +
		`request.resource.resource == "controllerrevisions" ? ((type(dyn(OBJECT).?data.orValue(null)) == map) && ` +
		`(type(dyn(OBJECT).?data.?spec.orValue(null)) == map) && (type(dyn(OBJECT).?data.?spec.?template.orValue(null)) == map) && ` +
		`(type(dyn(OBJECT).?data.?spec.?template.?spec.orValue(null)) == map) ? dyn(OBJECT).?data.?spec.?template.orValue({}) : dyn({})) : ` +
		`dyn(OBJECT).spec.?template.orValue({})`
	// same is true if two tolerations are the same: negative seconds count as zero.
	same = `%[1]s.key == %[2]s.key && %[1]s.operator == %[2]s.operator && %[1]s.value == %[2]s.value && %[1]s.effect == %[2]s.effect && ` +
		`(%[1]s.?tolerationSeconds == %[2]s.?tolerationSeconds || %[1]s.?tolerationSeconds.orValue(1) <= 0 && %[2]s.?tolerationSeconds.orValue(1) <= 0)`
)

// fresh is true of a g that is not as often among the tolerations of the old object. One in
// its old place is not compared with all others: most updates append, or change nothing.
var fresh = "size(variables.stood) == 0 || !(g.toleration.at < size(variables.stood) && " + fmt.Sprintf(same, "variables.stood[g.toleration.at]", "g.toleration") +
	") && variables.moved.filter(u, " + fmt.Sprintf(same, "u", "g.toleration") + ").size() > variables.gone.filter(u, " + fmt.Sprintf(same, "u", "g.toleration") + ").size()"

// elsewhere returns the tolerations of a list that are not in the same place in another one.
func elsewhere(list, other string) string {
	return fmt.Sprintf("variables.%[1]s.transformList(i, t, !(i < size(variables.%[2]s) && %[3]s), t)", list, other, fmt.Sprintf(same, "variables."+other+"[i]", "t"))
}

// addPods adds the policy about pods and their templates. When the last gate of a pod is
// removed, all its tolerations are judged, whoever the requester is.
func (x *tolerations) addPods() {
	var notes []string
	if slices.ContainsFunc(x.spec.Taints, func(s v1alpha1.TaintSelector) bool { // of nodes, which keep pods off
		return !ofDevice(&s) && !slices.Equal(s.Effects, []corev1.TaintEffect{corev1.TaintEffectPreferNoSchedule})
	}) {
		notes = append(notes, "a pod with spec.nodeName, and a binding of a pod, are not held against the taints of the node, which the API server does not show a policy")
	}
	if x.rbac != "false" {
		notes = append(notes, AboutKeys.Text)
	}
	notes = append(notes,
		"what the controllers of Kubernetes make from templates is let in, since the template was judged: what is added on the way, or to an owner that was never judged, is not",
		"what a RuntimeClass, ExtendedResourceToleration, PodTolerationRestriction or mode Window adds to a pod is judged as if its user had asked for it",
		"mirror pods are not recorded, and pods that stand already are not counted in status.violations",
	)
	tolerationsOf := func(pod string) string {
		return pod + ".?spec.?tolerations.orValue([]).transformList(i, t, " + x.object(`"at": dyn(i)`) + ")"
	}
	const path = `variables.place + "[" + string(g.toleration.at) + "]"`
	x.add(&export{
		what:  "pods",
		notes: notes,
		rules: []resourceRule{
			rule("", "v1", namespaced, written, "pods", "replicationcontrollers", "podtemplates"),
			rule("apps", "v1", namespaced, written, "deployments", "replicasets", "statefulsets", "daemonsets"),
			rule("apps", "v1", namespaced, created, "controllerrevisions"),
			rule("batch", "v1", namespaced, written, "jobs", "cronjobs"),
		},
		conditions: []named{
			{"not-made-from-a-template", not(in("request.userInfo.username", slices.Concat(workloadControllers, x.settings.WorkloadControllers)))},
			{"not-a-mirror-pod", notMirror},
		},
		variables: slices.Concat(
			[]named{
				{"place", podPath},
				{"pod", strings.ReplaceAll(podOf, "OBJECT", "object")},
				{"subject", "variables.pod"},
				{"claim", "null"},
				{"tolerations", tolerationsOf("variables.pod")},
				{"stood", `request.operation == "CREATE" ? [] : ` + bindText("before", strings.ReplaceAll(podOf, "OBJECT", "oldObject"), tolerationsOf("before"))},
				{"moved", elsewhere("tolerations", "stood")},
				{"gone", elsewhere("stood", "tolerations")},
			},
			x.judged(v1alpha1.TaintTargetNode, and(not(x.byKubernetes(`request.resource.resource == "daemonsets"`)), fresh),
				"authorizer", "authorizer.serviceAccount(request.namespace, "+podAccount+")"),
			x.anew,
			[]named{{"refusedAgain", enclose(letGo) + " ? variables.guarded.filter(g, " + and(not(x.byKubernetes(ofDaemonSet)), not(x.whoever)) + ") : []"}},
		),
		validations: []validation{
			x.refusal("refused", path, "could tolerate what the policy guards, which is not granted to user "),
			x.refusal("refusedAgain", path, "the pod is let go, and could tolerate what the policy guards, which is not granted; asked by user "),
		},
	})
}

// systemKeys are the keys of the tolerations that Kubernetes adds to pods.
var systemKeys = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
	corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
}

// byKubernetes is true of a g that Kubernetes itself adds, as the decision about tolerations
// has it; "false" where the policy guards none. Daemon is whether the pod is of a DaemonSet.
func (x *tolerations) byKubernetes(daemon string) string {
	if !slices.ContainsFunc(x.spec.Taints, func(s v1alpha1.TaintSelector) bool {
		compiled := selector.Compile(&s)
		return slices.ContainsFunc(systemKeys, func(key string) bool {
			t := selector.OfPod(&corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
			return compiled.Could(&t)
		})
	}) {
		return "false"
	}
	return fmt.Sprintf(`(g.toleration.operator == "Exists") && (g.toleration.value == "") && (((g.toleration.effect == "NoExecute") && (`+
		`(g.toleration.key == "node.kubernetes.io/not-ready" && g.toleration.?tolerationSeconds == optional.of(%d)) || `+
		`(g.toleration.key == "node.kubernetes.io/unreachable" && g.toleration.?tolerationSeconds == optional.of(%d)) || `+
		`((g.toleration.key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]) && `+
		`(!has(g.toleration.tolerationSeconds)) && (%[3]s)))) || `+
		`((g.toleration.effect == "NoSchedule") && ((!has(g.toleration.tolerationSeconds)) && (%[3]s) && `+
		`((g.toleration.key in ["node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure", `+
		`"node.kubernetes.io/pid-pressure", "node.kubernetes.io/unschedulable"]) || `+
		`((g.toleration.key == "node.kubernetes.io/network-unavailable") && (variables.pod.?spec.?hostNetwork.orValue(false)))))))`,
		x.settings.NotReady, x.settings.Unreachable, daemon)
}

// addClaims adds the policy about ResourceClaims and their templates. The tolerations of a
// claim do not change. Each is found by its path, with the class of its request or of the
// alternative to it.
func (x *tolerations) addClaims() {
	const (
		claim = `request.resource.resource == "resourceclaims" ? `
		at    = `variables.place + string(n) + "]." + part.name + ".tolerations[" + string(i) + "]"`
	)
	var notes []string
	if x.rbac != "false" {
		notes = append(notes, AboutKeys.Text)
	}
	x.add(&export{
		what: "claims",
		notes: append(notes,
			"claims that Kubernetes makes from a template are let in, since the template was judged",
			"what mode Window gives a claim is judged as if its user had asked for it",
		),
		rules: []resourceRule{
			rule("resource.k8s.io", "v1", namespaced, created, "resourceclaims", "resourceclaimtemplates"),
		},
		conditions: []named{{"not-made-from-a-template", not(in("request.userInfo.username",
			[]string{"system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager"}))}},
		variables: append([]named{
			{"place", claim + `"spec.devices.requests[" : "spec.spec.devices.requests["`},
			{"claim", claim + "dyn(object) : dyn(object).spec"},
			{"subject", "variables.claim"},
			{"pod", "null"},
			{"tolerations", `variables.claim.spec.?devices.?requests.orValue([]).transformMapEntry(n, r, ` +
				`([{"name": dyn("exactly"), "of": dyn(r.?exactly.orValue({}))}] + ` +
				`r.?firstAvailable.orValue([]).transformList(k, sub, {"name": dyn("firstAvailable[" + string(k) + "]"), "of": dyn(sub)}))` +
				`.transformMapEntry(p, part, part.of.?tolerations.orValue([]).transformMapEntry(i, t, {` + at + ": " +
				x.object(`"at": dyn(`+at+`)`, `"class": dyn(part.of.?deviceClassName.orValue(""))`) + "})))"},
		}, x.judged(v1alpha1.TaintTargetDevice, "true", "authorizer")...),
		validations: []validation{
			x.refusal("refused", "g.toleration.at", "could tolerate what the policy guards, which is not granted to user "),
		},
	})
}

// mostNamespaceKeys is about how many keys RBAC is asked for a namespace. Where there are
// more, only a requester who may tolerate all keys may set the labels.
const mostNamespaceKeys = 20

// addNamespaces adds the policy about the labels of namespaces: a requester who gives a
// namespace labels for which the policy grants something must be allowed to tolerate the
// taints, by each key or all of them. Each question is a variable, because the cost of an
// expression bounds it to two.
func (x *tolerations) addNamespaces() {
	keys := x.keys
	if len(keys) > mostNamespaceKeys {
		keys = nil
		x.notes = append(x.notes, Note{"spec.taints", fmt.Sprintf("names more than %d keys: only who may tolerate every key may set labels that satisfy a namespaceSelector", mostNamespaceKeys), true})
	}
	variables := []named{
		{"labels", "dyn(object).metadata.?labels.orValue({})"},
		{"before", `request.operation == "CREATE" ? dyn({"kubernetes.io/metadata.name": request.name}) : dyn(oldObject).metadata.?labels.orValue({})`},
		{"newly", x.newly},
		{"mayEvery", may("authorizer", policy.VerbTolerate, quote(""))},
	}
	each := make([]string, len(keys))
	for i, key := range keys {
		name := fmt.Sprintf("may%d", i)
		variables = append(variables, named{name, may("authorizer", policy.VerbTolerate, quote(key))})
		each[i] = "variables." + name
	}
	all := "false"
	if len(each) > 0 {
		all = and(each...)
	}
	x.add(&export{
		what: "namespaces",
		rules: []resourceRule{
			rule("", "v1", clusterWide, written, "namespaces"),
			rule("", "v1", clusterWide, updated, "namespaces/status", "namespaces/finalize"),
		},
		variables: append(variables, named{"mayAll", or("variables.mayEvery", all)}),
		validations: []validation{refuses("!variables.newly || variables.mayAll",
			x.ref+": metadata.labels: with these labels the namespace would be granted taints of the policy, which you may not "+
				"tolerate yourself; allowed to whom RBAC allows the verb tolerate on taints.tollgate.dev of their keys", "")},
	})
}
