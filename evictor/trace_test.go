package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tollgate-dev/tollgate/evictor/act"
	"github.com/tollgate-dev/tollgate/evictor/checks"
)

// tracedWorld has the evictor of a world traced by a sampler, and returns where the spans go.
func tracedWorld(w *world, sampler sdktrace.Sampler) *tracetest.InMemoryExporter {
	exporter := tracetest.NewInMemoryExporter()
	w.options.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sampler)).Tracer("test")
	return exporter
}

// evictions returns the spans of attempts, the first first.
func evictions(exporter *tracetest.InMemoryExporter) []tracetest.SpanStub {
	var list []tracetest.SpanStub
	for _, span := range exporter.GetSpans() {
		if span.Name == "eviction" {
			list = append(list, span)
		}
	}
	return list
}

// textsOf returns attributes as text.
func textsOf(list []attribute.KeyValue) map[string]string {
	texts := map[string]string{}
	for _, a := range list {
		texts[string(a.Key)] = a.Value.String()
	}
	return texts
}

func resultsOf(spans []tracetest.SpanStub) []string {
	results := make([]string, 0, len(spans))
	for i := range spans {
		results = append(results, textsOf(spans[i].Attributes)["tollgate.result"])
	}
	return results
}

func TestAnAttemptIsASpan(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]func(*world, *tracetest.InMemoryExporter){
		"a pod that is evicted, with the reading of the node below": func(w *world, spans *tracetest.InMemoryExporter) {
			w.setPolicy(newPolicy("p", nil))
			w.setPod(newPod("a", "n", tolerationFor("gpu", 10)))
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Minute)
			w.leaves(podA)
			all := evictions(spans)
			require.Len(w.t, all, 1)
			require.Equal(w.t, map[string]string{
				"tollgate.namespace": "default", "tollgate.name": "a", "tollgate.uid": "a-uid", "tollgate.node": "n",
				"tollgate.taint": "gpu:NoExecute", "tollgate.source.kind": "node", "tollgate.source.name": "n", "tollgate.policy": "p",
				"tollgate.method": "delete", "tollgate.late_seconds": "0", "tollgate.result": "evicted",
			}, textsOf(all[0].Attributes))
			require.False(w.t, all[0].Parent.IsValid())
			require.Equal(w.t, codes.Unset, all[0].Status.Code)
			confirm := spans.GetSpans()[0]
			require.Equal(w.t, "confirm", confirm.Name)
			require.Equal(w.t, all[0].SpanContext.SpanID(), confirm.Parent.SpanID())
			require.Equal(w.t, "node", textsOf(confirm.Attributes)["tollgate.source.kind"])
		},
		"a rule is named as the source": func(w *world, spans *tracetest.InMemoryExporter) {
			w.set(newSlice("s", 1, "d"))
			w.set(newClaim("c", "d", nil, "a"))
			w.setPod(using(newPod("a", "n"), "c"))
			w.set(newRule("r", "d", deviceTaint("broken")))
			w.pass(time.Minute)
			w.leaves(podA)
			all := evictions(spans)
			require.Equal(w.t, []string{"evicted"}, resultsOf(all))
			got := textsOf(all[0].Attributes)
			require.Equal(w.t, "devicetaintrule", got["tollgate.source.kind"])
			require.Equal(w.t, "r", got["tollgate.source.name"])
		},
		"a pod that a policy holds before an attempt is made has none": func(w *world, spans *tracetest.InMemoryExporter) {
			w.setPolicy(newPolicy("p", paused))
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Hour)
			require.Empty(w.t, spans.GetSpans())
		},
		"a pod that a breaker holds for an hour has one": func(w *world, spans *tracetest.InMemoryExporter) {
			w.setPolicy(newPolicy("tripped", bounded))
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Hour)
			all := evictions(spans)
			require.Equal(w.t, []string{"held"}, resultsOf(all))
			require.Len(w.t, all[0].Events, 1)
			require.Equal(w.t, "held", all[0].Events[0].Name)
			require.Equal(w.t, map[string]string{
				"tollgate.reason": "breaker_tripped", "tollgate.policy": "tripped", "tollgate.taint": "gpu:NoExecute",
			}, textsOf(all[0].Events[0].Attributes))
		},
		"a budget that refuses is asked every 30 s at most, each time in one": func(w *world, spans *tracetest.InMemoryExporter) {
			w.setPolicy(newPolicy("p", byEviction))
			w.allow("web", 0)
			w.setPod(labelled(newPod("a", "n"), "web"))
			w.setNode("n", noExecute("gpu"))
			w.pass(10 * time.Minute)
			all := evictions(spans)
			require.Less(w.t, len(all), 26)
			for i := range all {
				require.Equal(w.t, "held", textsOf(all[i].Attributes)["tollgate.result"])
				require.Equal(w.t, codes.Unset, all[i].Status.Code)
				require.Equal(w.t, "budget", textsOf(all[i].Events[0].Attributes)["tollgate.reason"])
			}
			w.allow("web", 1)
			w.pass(time.Minute)
			require.Equal(w.t, "evicted", resultsOf(evictions(spans))[len(all)])
		},
		"pods that wait for a pace have one when they begin to, and one when their turn has come": func(w *world, spans *tracetest.InMemoryExporter) {
			w.setPolicy(newPolicy("p", paced(1, 1)))
			const pods = 100
			for i := range pods {
				w.setPod(newPod(podName(i), "n"))
			}
			w.setNode("n", noExecute("gpu"))
			w.pass(2 * pods * time.Second)
			counts := map[string]int{}
			for _, result := range resultsOf(evictions(spans)) {
				counts[result]++
			}
			require.Equal(w.t, map[string]int{"waiting": pods - 1, "evicted": pods}, counts)
		},
		"a request that fails is an error of the span": func(w *world, spans *tracetest.InMemoryExporter) {
			w.api.setFaults(once(is("delete pods default/a"), func() error { return apierrors.NewTooManyRequests("later", 1) }), nil)
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Minute)
			all := evictions(spans)
			require.Equal(w.t, []string{"failed", "evicted"}, resultsOf(all))
			require.Equal(w.t, sdktrace.Status{Code: codes.Error, Description: "throttled"}, all[0].Status)
		},
		"a node that cannot be read is an error of both": func(w *world, spans *tracetest.InMemoryExporter) {
			w.api.setFaults(once(is("get nodes n"), func() error { return apierrors.NewServiceUnavailable("down") }), nil)
			w.setPod(newPod("a", "n"))
			w.setNode("n", noExecute("gpu"))
			w.pass(time.Minute)
			all := evictions(spans)
			require.Equal(w.t, []string{"failed", "evicted"}, resultsOf(all))
			require.Equal(w.t, "0.01", textsOf(all[1].Attributes)["tollgate.late_seconds"])
			require.Equal(w.t, codes.Error, spans.GetSpans()[0].Status.Code)
			require.Equal(w.t, "confirm", spans.GetSpans()[0].Name)
		},
		"a pod whose taint is found to be gone is kept": func(w *world, spans *tracetest.InMemoryExporter) {
			w.setPod(newPod("a", "n", tolerationFor("gpu", 60)))
			w.setNode("n", noExecute("gpu"))
			w.api.setLag(true)
			w.setNode("n")
			w.pass(2 * time.Minute)
			w.stays(podA)
			require.Equal(w.t, []string{"kept"}, resultsOf(evictions(spans)))
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				spans := tracedWorld(w, sdktrace.AlwaysSample())
				w.options.Breaker = trippedFor("tripped").Ask
				w.start()
				test(w, spans)
			})
		})
	}
}

func TestAttemptsThatAreNotSampledAreNotSent(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		spans := tracedWorld(w, sdktrace.NeverSample())
		w.start()
		w.setPod(newPod("a", "n"))
		w.setNode("n", noExecute("gpu"))
		w.pass(time.Minute)
		w.leaves(podA)
		require.Empty(t, spans.GetSpans())
	})
}

func TestWithoutATracerTracingAllocatesNothing(t *testing.T) {
	e, ctx := &Evictor{}, t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, end := e.traceAttempt(ctx, nil, false)
		defer end()
		e.traceCause(ctx, nil)
		traceHold(ctx, nil, &checks.Hold{})
		traceResult(ctx, resultHeld)
		traceFailure(ctx, act.Timeout)
	}))
}
