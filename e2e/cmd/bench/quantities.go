package main

// quantity is something measured, less being better unless it is a rate.
type quantity struct {
	label    string
	decimals int
	value    func(measurement) float64
}

func quantities(s scenario) []quantity {
	if s.timed {
		return append(lateness(), costs(s)...)
	}
	return append(times(s), costs(s)...)
}

func times(s scenario) []quantity {
	return []quantity{
		{"until the last pod is marked, s", 2, func(m measurement) float64 { return m.last.Seconds() }},
		{"until half of them are marked, s", 2, func(m measurement) float64 { return m.half.Seconds() }},
		{"until the first pod is marked, s", 2, func(m measurement) float64 { return m.first.Seconds() }},
		{"until the last pod is gone, s", 2, func(m measurement) float64 { return m.gone.Seconds() }},
		rate(s),
	}
}

func rate(s scenario) quantity {
	return quantity{"pods a second", 1, func(m measurement) float64 { return float64(s.pods) / m.last.Seconds() }}
}

func costs(s scenario) []quantity {
	perPod := func(count func(requests) int) func(measurement) float64 {
		return func(m measurement) float64 { return float64(count(m.requests)) / float64(s.pods) }
	}
	others := "  others (GET node)"
	if s.devices {
		others = "  others (rule and its status)"
	}
	return []quantity{
		{"requests a pod", 2, perPod(func(r requests) int { return r.total() })},
		{"  GET pod", 2, perPod(func(r requests) int { return r.gets })},
		{"  PATCH pod status", 2, perPod(func(r requests) int { return r.marks })},
		{"  DELETE pod", 2, perPod(func(r requests) int { return r.deletes })},
		{"  events", 2, perPod(func(r requests) int { return r.events })},
		{others, 2, perPod(func(r requests) int { return r.others })},
		{"answers of 429", 0, func(m measurement) float64 { return float64(m.requests.throttled) }},
		{"answers of 409", 0, func(m measurement) float64 { return float64(m.requests.conflicts) }},
		{"CPU of the evicting process, s", 2, func(m measurement) float64 { return m.evictor.Seconds() }},
		{"CPU of kube-controller-manager, s", 2, func(m measurement) float64 { return m.controllerManager.Seconds() }},
		{"CPU of kube-apiserver, s", 2, func(m measurement) float64 { return m.apiServer.Seconds() }},
		{"CPU of what has no part in it, s", 2, func(m measurement) float64 { return m.others.Seconds() }},
		{"peak RSS of the evicting process, MiB", 0, func(m measurement) float64 { return float64(m.peak) / (1 << 20) }},
	}
}

// lateness is from when a toleration ends, by the time that stands in the taint,
// until the pod is seen to be marked. That time is in whole seconds, the rest cut
// off: by a better clock a pod can be early.
func lateness() []quantity {
	percentile := func(n int) func(measurement) float64 {
		return func(m measurement) float64 { return m.late[(len(m.late)-1)*n/100].Seconds() }
	}
	return []quantity{
		{"late by, least, s", 3, percentile(0)},
		{"late by, median, s", 3, percentile(50)},
		{"late by, 99th percentile, s", 3, percentile(99)},
		{"late by, most, s", 3, percentile(100)},
		{"least, from when the taint was written", 3, func(m measurement) float64 { return m.sinceStart.Seconds() }},
		{"99th percentile in its own metric, s", 3, func(m measurement) float64 { return m.lateness }},
	}
}
