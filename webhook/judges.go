package webhook

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
)

// tolerationJudges returns the judges of everything that tolerations are written in,
// or that gives a pod or a namespace what a toleration would.
func tolerationJudges(c Config) map[resource]judge {
	schedulers, controllers := c.Schedulers, c.WorkloadControllers
	if len(schedulers) == 0 {
		schedulers = DefaultSchedulers()
	}
	if len(controllers) == 0 {
		controllers = DefaultWorkloadControllers()
	}
	by := &tolerating{
		namespaces: c.Namespaces,
		authorizer: c.Authorizer,
		owners:     newOwners(c.Live, c.Clock, controllers),
		nodes:      newLiveNodes(c.Live, c.Cache, c.Clock),
	}
	added := &additions{c.RuntimeClasses, c.ExtendedResourceToleration, c.PodTolerationRestriction}
	place := c.placer()
	claim := claimJudge{
		policies: c.Policies, tolerating: by, live: newLive(c.Live, c.Clock), placement: place, windows: c.windows(),
		judgesSyntax: c.JudgeDevices,
	}
	template := claim
	template.template = true
	binding := &bindingJudge{
		policies: c.Policies, tolerating: by, pods: newLive(c.Live, c.Clock), defaults: c.DefaultSeconds, schedulers: schedulers,
	}
	label := &labelJudge{policies: c.Policies, authorizer: c.operators()}
	judges := map[resource]judge{
		pods: &podJudge{
			policies: c.Policies, tolerating: by, added: added, placement: place, windows: c.windows(),
			defaults: c.DefaultSeconds, schedulers: schedulers, directives: c.JudgeDirectives,
			spread: c.Spread, ignoreComparisons: c.IgnoreComparisonOperators,
		},
		claims: &claim, claimTemplates: &template,

		{name: "pods", subresource: "binding"}: binding, {name: "bindings"}: binding,

		{name: "namespaces"}:                          label,
		{name: "namespaces", subresource: "status"}:   label,
		{name: "namespaces", subresource: "finalize"}: label,
	}
	for r, at := range templates() {
		judges[r] = &templateJudge{
			at: at, policies: c.Policies, tolerating: by, defaults: c.DefaultSeconds, schedulers: schedulers,
			daemons: r.name == "daemonsets", gated: r.name == "jobs", revision: r.name == "controllerrevisions",
			placement: place, spread: c.Spread, ignoreComparisons: c.IgnoreComparisonOperators,
		}
	}
	return judges
}

// templates says where each kind of workload has the template of its pods.
func templates() map[resource][]string {
	spec := []string{"spec", "template"}
	return map[resource][]string{
		{group: appsv1.GroupName, name: "deployments"}:  spec,
		{group: appsv1.GroupName, name: "replicasets"}:  spec,
		{group: appsv1.GroupName, name: "statefulsets"}: spec,
		{group: appsv1.GroupName, name: "daemonsets"}:   spec,
		{group: batchv1.GroupName, name: "jobs"}:        spec,
		{group: batchv1.GroupName, name: "cronjobs"}:    {"spec", "jobTemplate", "spec", "template"},
		{name: "replicationcontrollers"}:                spec,
		{name: "podtemplates"}:                          {"template"},

		{group: appsv1.GroupName, name: "controllerrevisions"}: append([]string{"data"}, templateOfRevision...),
	}
}
