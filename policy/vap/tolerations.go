package vap

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

	p *v1alpha1.TolerationPolicy
	// remedy says to whom the grants allow what is guarded; keys are the guarded keys.
	remedy string
	keys   []string
	// message is the message of the policy, an expression of type string; empty for none.
	message string

	// grants are CEL variables, one for each grant, that are true if the grant applies to the
	// request. anew are the same variables without the subjects of the grants.
	grants, anew []variable
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
	if errs := toleration.ValidatePolicy(p); len(errs) > 0 {
		return Exported{}, fmt.Errorf("read %s: %w", strings.Replace(ref, "/", " ", 1), errs.ToAggregate())
	}
	x := &tolerations{
		exporter: exporter{
			settings: settings, ref: ref, title: strings.Replace(ref, "/", " ", 1),
			prefix: "tollgate-tolerations-" + objectName(p.Name) + "-", actions: policy.Actions(p.Spec.ValidationActions),
			fields:   []textField{{"key", ""}, {"operator", "Equal"}, {"value", ""}, {"effect", ""}},
			optional: `?"tolerationSeconds": t.?tolerationSeconds`,
			bindings: []textField{
				{"object", "dyn(object)"},
				{"oldObject", "dyn(oldObject)"},
				{"pod", "variables.pod"},
				{"claim", "variables.claim"},
				{"toleration", "g.toleration"},
			},
		},
		p: p,
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
	for i := range x.p.Spec.Grants {
		g := &x.p.Spec.Grants[i]
		name, fits := "grant"+strconv.Itoa(i), "true"
		if g.MaxTolerationSeconds != nil {
			x.limited = true
			fits = "g.lasts <= " + strconv.FormatInt(*g.MaxTolerationSeconds, 10)
		}
		covers := func(namespace, labels string) string {
			return and(inNamespaces(g.Namespaces, namespace), labelled(g.NamespaceSelector, labels))
		}
		place := and(covers("request.namespace", "namespaceObject.metadata.?labels"), labelled(g.ObjectSelector, "variables.subject.?metadata.?labels"))
		x.grants = append(x.grants, variable{Name: name, Expression: and(place, subjects(g.Subjects))})
		x.anew = append(x.anew, variable{Name: name + "again", Expression: place})

		terms, anew := []string{"variables." + name, fits}, []string{"variables." + name + "again", fits}
		if g.RBAC {
			x.authorizer = true
			terms = append(terms, "g.toleration.key in variables.allowed")
			rbac = append(rbac, "variables."+name)
		}
		if g.Expression != "" {
			field := "spec.grants[" + strconv.Itoa(i) + "].expression"
			expression, read := x.embed(field, cel.OfToleration, g.Expression, "false")
			if read.Reads("authorizer") {
				x.authorizer = true
				x.notes = append(x.notes, AboutQuestions(field))
			}
			terms = append(terms, expression)
			if !read.Uses.Requester {
				anew = append(anew, expression)
			}
		}
		if g.RBAC || g.Expression != "" {
			asked = append(asked, and(terms...))
		} else {
			free = append(free, and(terms...))
		}
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
	if x.p.Spec.Message != "" {
		x.message = quote(x.p.Spec.Message)
	}
	if x.p.Spec.MessageExpression == "" {
		return
	}
	why := ""
	read, err := cel.Embed(cel.OfToleration, x.p.Spec.MessageExpression, cel.String)
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
		x.notes = append(x.notes, Note{Field: "spec.messageExpression", Text: "the plain message is used: " + why})
	}
}

// judged returns the variables from "guarded" to "refused", and the conditions. Unsettled is
// true of a g that only a grant could let in. Authorizers are asked for grants by RBAC.
func (x *tolerations) judged(target v1alpha1.TaintTarget, unsettled string, authorizers ...string) []variable {
	taints, lasts := x.p.Spec.Taints, "0"
	if x.limited {
		const forEver = "9223372036854775807"
		outlasts := anySelector(taints, target, func(s *v1alpha1.TaintSelector) string { return couldOutlast(s, "t") })
		lasts = "!" + enclose(outlasts) + ` ? 0 : t.effect == "NoExecute" ? t.?tolerationSeconds.orValue(` + forEver + ") : " + forEver
	}
	guards := anySelector(taints, target, func(s *v1alpha1.TaintSelector) string { return could(s, "t") })
	variables := slices.Concat(
		[]variable{{Name: "guarded", Expression: "variables.tolerations.transformList(i, t, " + guards + `, {"toleration": dyn(t), "lasts": dyn(` + lasts + ")})"}},
		x.grants,
		[]variable{{Name: "unsettled", Expression: "variables.guarded.filter(g, " + and(not(x.free), unsettled) + ")"}},
	)
	if x.rbac != "false" {
		variables = append(variables, allowed(enclose(x.rbac)+" ? variables.unsettled.map(g, string(g.toleration.key)) : []", policy.VerbTolerate, authorizers...)...)
	}
	refused := "variables.unsettled"
	if x.asked != "false" {
		refused += ".filter(g, " + not(x.asked) + ")"
	}
	return append(variables, variable{Name: "refused", Expression: refused}, variable{Name: "conditions", Expression: x.conditions})
}

// refusal returns the validation that refuses where a list of g is not empty. The message
// names the first g of the list, which stands at a path. It is left out where the verdict
// depends on the authorizer, which messages cannot ask.
func (x *tolerations) refusal(list, path, problem string) validation {
	plain := x.ref + ": a toleration is not granted; " + x.remedy
	if message := strings.TrimSpace(policy.Short(x.p.Spec.Message, policy.MaxFinding)); message != "" {
		plain += ": " + message
	}
	all := "variables." + list
	expression := ""
	if list != "refused" || !x.authorizer {
		described := func(field string) string {
			return ` + (g.toleration.` + field + ` == "" ? "" : ` + quote(" "+field+"=") + " + g.toleration." + field + ")"
		}
		text := quote(x.ref+": ") + " + " + path + ` + " (operator=" + g.toleration.operator` + described("key") + described("value") + described("effect") +
			` + (has(g.toleration.tolerationSeconds) ? " for " + string(g.toleration.tolerationSeconds) + "s" : "")` +
			` + ")" + (size(` + all + `) > 1 ? " and " + string(size(` + all + `) - 1) + " more" : "")` +
			" + " + quote(": "+problem) + ` + request.userInfo.username + " in namespace " + request.namespace + ` + quote("; "+x.remedy)
		if x.message != "" {
			text += ` + ": " + ` + x.message
		}
		// A list that comes from a map has no order; in one of more than 20 any item will do.
		first := "(size(" + all + ") > 20 ? " + all + " : " + all + ".filter(a, " + all + ".all(b, a.toleration.at <= b.toleration.at)))[0]"
		// The API server evaluates the message of a request that is allowed too.
		expression = "size(" + all + `) == 0 ? "" : ` + bindText("g", first, text)
	}
	return refuses("size("+all+") == 0 || !variables.conditions", plain, expression)
}

// rbacNotes are the notes on questions to RBAC.
func (x *tolerations) rbacNotes() []Note {
	if x.rbac == "false" {
		return nil
	}
	return []Note{AboutKeys}
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
	// same is true if two tolerations A and B are the same: negative seconds count as zero.
	same = `A.key == B.key && A.operator == B.operator && A.value == B.value && A.effect == B.effect && ` +
		`(A.?tolerationSeconds == B.?tolerationSeconds || A.?tolerationSeconds.orValue(1) <= 0 && B.?tolerationSeconds.orValue(1) <= 0)`
)

func podIn(object string) string { return strings.ReplaceAll(podOf, "OBJECT", object) }

func sameToleration(a, b string) string {
	return strings.NewReplacer("A.", a+".", "B.", b+".").Replace(same)
}

// fresh is true of a g that is not as often among the tolerations of the old object. One in
// its old place is not compared with all others: most updates append, or change nothing.
var fresh = "size(variables.stood) == 0 || !(g.toleration.at < size(variables.stood) && " + sameToleration("variables.stood[g.toleration.at]", "g.toleration") +
	") && variables.moved.filter(u, " + sameToleration("u", "g.toleration") + ").size() > variables.gone.filter(u, " + sameToleration("u", "g.toleration") + ").size()"

// elsewhere returns the tolerations of a list that are not in the same place in another one.
func elsewhere(list, other string) string {
	return "variables." + list + ".transformList(i, t, !(i < size(variables." + other + ") && " + sameToleration("variables."+other+"[i]", "t") + "), t)"
}

// addPods adds the policy about pods and their templates. When the last gate of a pod is
// removed, all its tolerations are judged, whoever the requester is.
func (x *tolerations) addPods() {
	var notes []Note
	if slices.ContainsFunc(x.p.Spec.Taints, func(s v1alpha1.TaintSelector) bool { // of nodes, which keep pods off
		return selector.TargetOf(s.Target) == v1alpha1.TaintTargetNode &&
			(len(s.Effects) == 0 || slices.ContainsFunc(s.Effects, func(e corev1.TaintEffect) bool { return e != corev1.TaintEffectPreferNoSchedule }))
	}) {
		notes = append(notes, Note{Text: "a pod with spec.nodeName, and a binding of a pod, are not held against the taints of the node, which the API server does not show a policy"})
	}
	notes = append(append(notes, x.rbacNotes()...),
		Note{Text: "what the controllers of Kubernetes make from templates is let in, since the template was judged: what is added on the way, or to an owner that was never judged, is not"},
		Note{Text: "what a RuntimeClass, ExtendedResourceToleration, PodTolerationRestriction or mode Window adds to a pod is judged as if its user had asked for it"},
		Note{Text: "mirror pods are not recorded, and pods that stand already are not counted in status.violations"},
	)
	tolerationsOf := func(pod string) string {
		return pod + ".?spec.?tolerations.orValue([]).transformList(i, t, " + x.object(`"at": dyn(i)`) + ")"
	}
	again := and(not(x.byKubernetes(ofDaemonSet)), not(x.whoever))
	const path = `variables.place + "[" + string(g.toleration.at) + "]"`
	x.add("pods", x.settings.Exempt, notes, []resourceRule{
		rule("", "v1", admissionregistrationv1.NamespacedScope, written, "pods", "replicationcontrollers", "podtemplates"),
		rule("apps", "v1", admissionregistrationv1.NamespacedScope, written, "deployments", "replicasets", "statefulsets", "daemonsets"),
		rule("apps", "v1", admissionregistrationv1.NamespacedScope, created, "controllerrevisions"),
		rule("batch", "v1", admissionregistrationv1.NamespacedScope, written, "jobs", "cronjobs"),
	}, policySpec{
		MatchConditions: []matchCondition{
			{Name: "not-made-from-a-template", Expression: not(in("request.userInfo.username", slices.Concat(workloadControllers, x.settings.WorkloadControllers)))},
			{Name: "not-a-mirror-pod", Expression: notMirror},
		},
		Variables: slices.Concat(
			[]variable{
				{Name: "place", Expression: podPath},
				{Name: "pod", Expression: podIn("object")},
				{Name: "subject", Expression: "variables.pod"},
				{Name: "claim", Expression: "null"},
				{Name: "tolerations", Expression: tolerationsOf("variables.pod")},
				{Name: "stood", Expression: `request.operation == "CREATE" ? [] : ` + bindText("before", podIn("oldObject"), tolerationsOf("before"))},
				{Name: "moved", Expression: elsewhere("tolerations", "stood")},
				{Name: "gone", Expression: elsewhere("stood", "tolerations")},
			},
			x.judged(v1alpha1.TaintTargetNode, and(not(x.byKubernetes(`request.resource.resource == "daemonsets"`)), fresh),
				"authorizer", "authorizer.serviceAccount(request.namespace, "+podAccount+")"),
			x.anew,
			[]variable{{Name: "refusedAgain", Expression: enclose(letGo) + " ? variables.guarded.filter(g, " + again + ") : []"}},
		),
		Validations: []validation{
			x.refusal("refused", path, "could tolerate what the policy guards, which is not granted to user "),
			x.refusal("refusedAgain", path, "the pod is let go, and could tolerate what the policy guards, which is not granted; asked by user "),
		},
	})
}

// systemKeys are the keys of the tolerations that Kubernetes adds to pods: two of NoExecute,
// then those of NoSchedule, the last one for pods in the network of their node.
var systemKeys = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
	corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
}

// byKubernetes is true of a g that Kubernetes itself adds, as the decision about tolerations
// has it; "false" where the policy guards none. Daemon is whether the pod is of a DaemonSet.
func (x *tolerations) byKubernetes(daemon string) string {
	if !slices.ContainsFunc(x.p.Spec.Taints, func(s v1alpha1.TaintSelector) bool {
		compiled := selector.Compile(&s)
		return slices.ContainsFunc(systemKeys, func(key string) bool {
			t := selector.OfPod(&corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
			return compiled.Could(&t)
		})
	}) {
		return "false"
	}
	const t, unlimited = "g.toleration.", "!has(g.toleration.tolerationSeconds)"
	bounded := func(key string, seconds int64) string {
		return t + "key == " + quote(key) + " && " + t + "?tolerationSeconds == optional.of(" + strconv.FormatInt(seconds, 10) + ")"
	}
	last := len(systemKeys) - 1
	noExecute := or(
		bounded(corev1.TaintNodeNotReady, x.settings.NotReady), bounded(corev1.TaintNodeUnreachable, x.settings.Unreachable),
		and(in(t+"key", systemKeys[:2]), unlimited, daemon),
	)
	noSchedule := and(unlimited, daemon, or(
		in(t+"key", systemKeys[2:last]), and(t+"key == "+quote(systemKeys[last]), "variables.pod.?spec.?hostNetwork.orValue(false)"),
	))
	return and(t+`operator == "Exists"`, t+`value == ""`, or(and(t+`effect == "NoExecute"`, noExecute), and(t+`effect == "NoSchedule"`, noSchedule)))
}

// addClaims adds the policy about ResourceClaims and their templates. The tolerations of a
// claim do not change. Each is found by its path, with the class of its request or of the
// alternative to it.
func (x *tolerations) addClaims() {
	const (
		claim = `request.resource.resource == "resourceclaims" ? `
		parts = `([{"name": dyn("exactly"), "of": dyn(r.?exactly.orValue({}))}] + ` +
			`r.?firstAvailable.orValue([]).transformList(k, sub, {"name": dyn("firstAvailable[" + string(k) + "]"), "of": dyn(sub)}))`
		at = `variables.place + string(n) + "]." + part.name + ".tolerations[" + string(i) + "]"`
	)
	t := x.object(`"at": dyn(`+at+`)`, `"class": dyn(part.of.?deviceClassName.orValue(""))`)
	x.add("claims", x.settings.Exempt, append(x.rbacNotes(),
		Note{Text: "claims that Kubernetes makes from a template are let in, since the template was judged"},
		Note{Text: "what mode Window gives a claim is judged as if its user had asked for it"},
	), []resourceRule{
		rule("resource.k8s.io", "v1", admissionregistrationv1.NamespacedScope, created, "resourceclaims", "resourceclaimtemplates"),
	}, policySpec{
		MatchConditions: []matchCondition{{Name: "not-made-from-a-template", Expression: not(in("request.userInfo.username",
			[]string{"system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager"}))}},
		Variables: append([]variable{
			{Name: "place", Expression: claim + `"spec.devices.requests[" : "spec.spec.devices.requests["`},
			{Name: "claim", Expression: claim + "dyn(object) : dyn(object).spec"},
			{Name: "subject", Expression: "variables.claim"},
			{Name: "pod", Expression: "null"},
			{Name: "tolerations", Expression: "variables.claim.spec.?devices.?requests.orValue([]).transformMapEntry(n, r, " + parts +
				".transformMapEntry(p, part, part.of.?tolerations.orValue([]).transformMapEntry(i, t, {" + at + ": " + t + "})))"},
		}, x.judged(v1alpha1.TaintTargetDevice, "true", "authorizer")...),
		Validations: []validation{
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
	var notes []Note
	keys := x.keys
	if len(keys) > mostNamespaceKeys {
		notes, keys = []Note{{Field: "spec.taints", Partial: true, Text: "names more than " + strconv.Itoa(mostNamespaceKeys) +
			" keys: only who may tolerate every key may set labels that satisfy a namespaceSelector"}}, nil
	}
	variables := []variable{
		{Name: "labels", Expression: "dyn(object).metadata.?labels.orValue({})"},
		{Name: "before", Expression: `request.operation == "CREATE" ? dyn({` + quote(corev1.LabelMetadataName) + `: request.name}) : dyn(oldObject).metadata.?labels.orValue({})`},
		{Name: "newly", Expression: x.newly},
		{Name: "mayEvery", Expression: may("authorizer", policy.VerbTolerate, quote(""))},
	}
	each := make([]string, len(keys))
	for i, key := range keys {
		name := "may" + strconv.Itoa(i)
		variables = append(variables, variable{Name: name, Expression: may("authorizer", policy.VerbTolerate, quote(key))})
		each[i] = "variables." + name
	}
	all := "false"
	if len(each) > 0 {
		all = and(each...)
	}
	x.add("namespaces", x.settings.Exempt, notes, []resourceRule{
		rule("", "v1", admissionregistrationv1.ClusterScope, written, "namespaces"),
		rule("", "v1", admissionregistrationv1.ClusterScope, updated, "namespaces/status", "namespaces/finalize"),
	}, policySpec{
		Variables: append(variables, variable{Name: "mayAll", Expression: or("variables.mayEvery", all)}),
		Validations: []validation{refuses("!variables.newly || variables.mayAll",
			x.ref+": metadata.labels: with these labels the namespace would be granted taints of the policy, which you may not "+
				"tolerate yourself; allowed to whom RBAC allows the verb tolerate on taints.tollgate.dev of their keys", "")},
	})
}
