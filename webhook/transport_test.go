package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
	"github.com/tollgate-dev/tollgate/webhook/auth"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

const simplePod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[]}}`

func TestA01BodiesOverTheLimitAreRefused(t *testing.T) {
	url := serveHandler(t, testOptions(), allowAll)
	body := bytes.Repeat([]byte(" "), maxBodyBytes+1)
	for name, reader := range map[string]io.Reader{
		"declared": bytes.NewReader(body),
		"chunked":  struct{ io.Reader }{bytes.NewReader(body)},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := postAs(t, url, "application/json", reader)
			require.Equal(t, http.StatusRequestEntityTooLarge, status)
			require.Contains(t, text, "7 MiB")
			status, _ = post(t, url, marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
			require.Equal(t, http.StatusOK, status, "the next request is served")
		})
	}
}

func TestA01NoMoreThanTheLimitIsRead(t *testing.T) {
	endless := &counting{}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate", endless)
	req.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	newEndpoint("validate", testOptions(), map[handlers.Resource]handlers.Handler{pods: allowAll}).ServeHTTP(answer, req)
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.Code)
	const buffered = 64 << 10
	require.LessOrEqual(t, endless.read.Load(), int64(maxBodyBytes+buffered))
}

// counting is a body without an end that counts what was read of it.
type counting struct{ read atomic.Int64 }

func (c *counting) Read(p []byte) (int, error) {
	c.read.Add(int64(len(p)))
	return len(p), nil
}

func TestA02LargeBodiesDoNotCrowdOutSmallOnes(t *testing.T) {
	opts := testOptions()
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	var waiting sync.WaitGroup
	var holding, busy atomic.Int64
	url := serveHandler(t, opts, handlers.Handler(func(_ context.Context, req *review.Request) (handlers.Result, error) {
		if req.Name == "large" {
			holding.Add(1)
			<-release
		}
		return allowed(), nil
	}))
	t.Cleanup(let) // after that of the server, so that it comes before it: the server waits for its connections
	review := podReview(t, admissionv1.Create, simplePod, "")
	small := marshal(t, review)
	review.Request.Name = "large"
	review.Request.Object.Raw = []byte(`{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 6900<<10) + `"}}}`)
	large := marshal(t, review)

	send := func() {
		for {
			resp, err := http.Post(url, "application/json", bytes.NewReader(large))
			if err == nil {
				_ = resp.Body.Close()
				switch {
				case resp.StatusCode == http.StatusOK:
					return
				case resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "1":
					busy.Add(1)
					return
				}
			}
			select {
			case <-release:
				return
			default: // refused while it was still being sent; or late, as on a busy machine, and its room is free again
			}
		}
	}
	const clients = 100 // together far more than the memory below
	for range clients {
		waiting.Go(send)
	}
	require.Eventually(t, func() bool { return holding.Load() >= 3 && busy.Load() > 0 }, time.Minute, time.Millisecond)
	for range 20 {
		status, _ := post(t, url, small)
		require.Equal(t, http.StatusOK, status)
	}
	require.LessOrEqual(t, holding.Load()*int64(len(large)), opts.Bodies.limit*3/4, "a quarter is left to small reviews")
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	require.Less(t, memory.HeapInuse, uint64(256<<20))
	let()
	waiting.Wait()
}

func TestA09WhatIsNotAReviewIsRefused(t *testing.T) {
	url := serveHandler(t, testOptions(), allowAll)
	review := string(marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
	tests := map[string]struct {
		method, contentType, encoding, body string
		want                                int
	}{
		"an empty body":                        {http.MethodPost, "application/json", "", "", http.StatusBadRequest},
		"GET":                                  {http.MethodGet, "application/json", "", "", http.StatusMethodNotAllowed},
		"HEAD":                                 {http.MethodHead, "application/json", "", "", http.StatusMethodNotAllowed},
		"PUT":                                  {http.MethodPut, "application/json", "", review, http.StatusMethodNotAllowed},
		"no content type":                      {http.MethodPost, "", "", review, http.StatusUnsupportedMediaType},
		"another content type":                 {http.MethodPost, "text/plain", "", review, http.StatusUnsupportedMediaType},
		"protobuf":                             {http.MethodPost, "application/vnd.kubernetes.protobuf", "", review, http.StatusUnsupportedMediaType},
		"another charset":                      {http.MethodPost, "application/json; charset=utf-16", "", review, http.StatusUnsupportedMediaType},
		"a compressed body (A08)":              {http.MethodPost, "application/json", "gzip", review, http.StatusUnsupportedMediaType},
		"the charset of JSON":                  {http.MethodPost, "application/json; charset=utf-8", "", review, http.StatusOK},
		"the charset of JSON in capitals":      {http.MethodPost, "application/json; charset=UTF-8", "", review, http.StatusOK},
		"the content type in unusual spelling": {http.MethodPost, "Application/JSON;charset=\"utf-8\"", "", review, http.StatusOK},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, url, strings.NewReader(tt.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", tt.contentType)
			if tt.encoding != "" {
				req.Header.Set("Content-Encoding", tt.encoding)
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, tt.want, resp.StatusCode)
		})
	}
}

func TestA12ACallerThatLeavesEndsTheEvaluation(t *testing.T) {
	for name, multiplexed := range map[string]bool{"with its connection, over HTTP/1.1": false, "with its stream, over HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			started, ended := make(chan struct{}), make(chan struct{})
			server := httptest.NewUnstartedServer(newEndpoint("validate", opts, map[handlers.Resource]handlers.Handler{
				pods: func(ctx context.Context, _ *review.Request) (handlers.Result, error) {
					close(started)
					<-ctx.Done()
					close(ended)
					return allowed(), nil
				},
			}))
			server.EnableHTTP2 = multiplexed
			server.StartTLS()
			t.Cleanup(server.Close)
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader(marshal(t, podReview(t, admissionv1.Create, simplePod, ""))))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			go func() { <-started; leave() }()
			resp, err := server.Client().Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			require.ErrorIs(t, err, context.Canceled)
			<-ended
			requireNoVerdict(t, opts.Metrics)
		})
	}
	t.Run("at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			opts := testOptions()
			started, ended := make(chan struct{}), make(chan struct{})
			client := pipeTo(t, newEndpoint("validate", opts, map[handlers.Resource]handlers.Handler{
				pods: func(ctx context.Context, _ *review.Request) (handlers.Result, error) {
					close(started)
					<-ctx.Done()
					close(ended)
					return allowed(), nil
				},
			}))
			_, err := io.WriteString(client, requestOf(marshal(t, podReview(t, admissionv1.Create, simplePod, ""))))
			require.NoError(t, err)
			<-started
			left := time.Now()
			require.NoError(t, client.Close())
			<-ended
			require.Zero(t, time.Since(left), "nothing is waited for")
			requireNoVerdict(t, opts.Metrics)
		})
	})
}

// requireNoVerdict waits for the one review to be counted, and fails if it was as one with a verdict.
func requireNoVerdict(t *testing.T, m *Metrics) {
	t.Helper()
	require.Eventually(t, func() bool {
		return testutil.ToFloat64(m.requests.WithLabelValues("validate", "pods", "CREATE", "error", "false")) == 1
	}, time.Minute, time.Millisecond)
	require.Equal(t, 1, testutil.CollectAndCount(m.requests), "no other verdict")
	require.Equal(t, 1, testutil.CollectAndCount(m.duration), "nor how long one took")
	require.Zero(t, testutil.CollectAndCount(m.findings))
}

func TestA13TheAnnouncedTimeoutOnlyShortens(t *testing.T) {
	const budget = time.Second
	tests := map[string]struct {
		hint string
		want time.Duration
	}{
		"missing":                       {"", budget},
		"longer than the budget":        {"10s", budget},
		"as short as the API allows":    {"1s", 500 * time.Millisecond},
		"no longer than the way back":   {"500ms", budget},
		"zero":                          {"0s", budget},
		"negative":                      {"-3s", budget},
		"longer than the API allows":    {"9000h", budget},
		"larger than a duration can be": {"99999999999999999999s", budget},
		"not a duration":                {"soon", budget},
		"a number without unit":         {"3", budget},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, allowedTime(tt.hint, budget))
			synctest.Test(t, func(t *testing.T) {
				var left time.Duration
				opts := testOptions()
				opts.Budget = budget
				endpoint := newEndpoint("validate", opts, map[handlers.Resource]handlers.Handler{pods: handlers.Handler(func(ctx context.Context, _ *review.Request) (handlers.Result, error) {
					deadline, ok := ctx.Deadline()
					if !ok {
						return handlers.Result{}, errors.New("no deadline")
					}
					left = time.Until(deadline)
					return allowed(), nil
				})})
				review := marshal(t, podReview(t, admissionv1.Create, simplePod, ""))
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/validate?timeout="+tt.hint, bytes.NewReader(review))
				req.Header.Set("Content-Type", "application/json")
				answer := httptest.NewRecorder()
				endpoint.ServeHTTP(answer, req)
				require.Equal(t, http.StatusOK, answer.Code)
				require.Equal(t, tt.want, left)
			})
		})
	}
}

func TestE04AVerdictThatComesTooLateIsNone(t *testing.T) {
	opts := testOptions()
	opts.Budget = time.Millisecond
	url := serveHandler(t, opts, handlers.Handler(func(ctx context.Context, _ *review.Request) (handlers.Result, error) {
		<-ctx.Done()
		return allowed(), nil
	}))
	status, _ := post(t, url, marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
	require.Equal(t, http.StatusInternalServerError, status)
}

func TestAFaultIsNeverAVerdict(t *testing.T) {
	opts := testOptions()
	url := serveHandler(t, opts, handlers.Handler(func(context.Context, *review.Request) (handlers.Result, error) {
		return handlers.Result{}, errors.New("secret detail of the inside")
	}))
	status, text := post(t, url, marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
	require.Equal(t, http.StatusInternalServerError, status)
	require.NotContains(t, text, "secret detail")
	require.InDelta(t, 1, testutil.ToFloat64(opts.Metrics.requests.WithLabelValues("validate", "pods", "CREATE", "error", "false")), 0)
}

func TestB20APanicEndsOneRequest(t *testing.T) {
	opts := testOptions()
	url := serveHandler(t, opts, handlers.Handler(func(_ context.Context, req *review.Request) (handlers.Result, error) {
		if req.Name == "bad" {
			panic("nil map")
		}
		return allowed(), nil
	}))
	review := podReview(t, admissionv1.Create, simplePod, "")
	review.Request.Name = "bad"
	status, text := post(t, url, marshal(t, review))
	require.Equal(t, http.StatusInternalServerError, status)
	require.NotContains(t, text, "nil map")
	require.InDelta(t, 1, testutil.ToFloat64(opts.Metrics.panics), 0)
	review.Request.Name = "good"
	status, _ = post(t, url, marshal(t, review))
	require.Equal(t, http.StatusOK, status, "the process lives")
	require.InDelta(t, 1, testutil.ToFloat64(opts.Metrics.panics), 0)
}

func TestTheBudgetIsGivenBack(t *testing.T) {
	opts := testOptions()
	endpoint := newEndpoint("validate", opts, map[handlers.Resource]handlers.Handler{pods: allowAll})
	url := serveEndpoint(t, endpoint)
	for _, body := range []string{
		string(marshal(t, podReview(t, admissionv1.Create, simplePod, ""))),
		"not JSON",
		strings.Repeat(" ", maxBodyBytes+1),
	} {
		post(t, url, []byte(body))
		postAs(t, url, "application/json", struct{ io.Reader }{strings.NewReader(body)})
	}
	require.Zero(t, endpoint.opts.Bodies.used.Load())
}

func TestF14MetricsHaveAClosedSetOfLabels(t *testing.T) {
	opts := testOptions()
	url := serveEndpoint(t, Validate(Config{Options: opts}))
	review := podReview(t, admissionv1.Create, simplePod, "")
	for _, name := range []string{"a", "b", "c"} {
		review.Request.Resource.Resource = name
		status, text := post(t, url, marshal(t, review))
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, text, name)
	}
	require.Equal(t, 1, testutil.CollectAndCount(opts.Metrics.requests))
}

func TestFindingsAreCountedByPolicyReasonAndAction(t *testing.T) {
	opts := testOptions()
	url := serveHandler(t, opts, handlers.Handler(func(context.Context, *review.Request) (handlers.Result, error) {
		return handlers.Result{Decision: policy.Decide([]policy.Finding{
			{Policy: "TolerationPolicy/a", Reason: policy.TolerationNotGranted},
			{Policy: "TolerationPolicy/b", Reason: policy.TolerationNotGranted, Actions: []v1alpha1.ValidationAction{v1alpha1.Warn, v1alpha1.Audit}},
			{Policy: policy.JoinRefs([]string{"PlacementPolicy/a", "PlacementPolicy/b"}), Reason: policy.PlacementContradicted},
			{Reason: policy.Invalid},
		})}, nil
	}))
	status, text := post(t, url, marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
	require.Equal(t, http.StatusOK, status, text)
	for _, labels := range [][]string{
		{"TolerationPolicy", "a", "TolerationNotGranted", "deny"},
		{"TolerationPolicy", "b", "TolerationNotGranted", "warn"},
		{"TolerationPolicy", "b", "TolerationNotGranted", "audit"},
		{"PlacementPolicy", "a", "PlacementContradicted", "deny"},
		{"PlacementPolicy", "b", "PlacementContradicted", "deny"},
		{"none", "none", "Invalid", "deny"},
	} {
		require.InDelta(t, 1, testutil.ToFloat64(opts.Metrics.findings.WithLabelValues(labels...)), 0, "%v", labels)
	}
	require.Equal(t, 6, testutil.CollectAndCount(opts.Metrics.findings))
}

func TestF14FindingsAreCountedForALimitedNumberOfPolicies(t *testing.T) {
	opts := testOptions()
	url := serveHandler(t, opts, handlers.Handler(func(context.Context, *review.Request) (handlers.Result, error) {
		var findings []policy.Finding
		for i := range policy.MaxNamed + 3 {
			findings = append(findings, policy.Finding{Policy: fmt.Sprintf("TolerationPolicy/p%03d", i), Reason: policy.TolerationNotGranted})
		}
		return handlers.Result{Decision: policy.Decide(findings)}, nil
	}))
	for range 2 {
		status, text := post(t, url, marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
		require.Equal(t, http.StatusOK, status, text)
	}
	require.Equal(t, policy.MaxNamed+1, testutil.CollectAndCount(opts.Metrics.findings))
	for name, want := range map[string]int{"p000": 2, policy.OtherName: 6} {
		counted := opts.Metrics.findings.WithLabelValues("TolerationPolicy", name, "TolerationNotGranted", "deny")
		require.InDelta(t, want, testutil.ToFloat64(counted), 0, name)
	}
}

func TestFindingsOfAReviewWithoutDecisionAreNotCounted(t *testing.T) {
	opts := testOptions()
	url := serveHandler(t, opts, handlers.Handler(func(context.Context, *review.Request) (handlers.Result, error) {
		return handlers.Result{Decision: policy.Decide([]policy.Finding{{Reason: policy.Invalid}})}, errors.New("what else was asked is not known")
	}))
	status, text := post(t, url, marshal(t, podReview(t, admissionv1.Create, simplePod, "")))
	require.Equal(t, http.StatusInternalServerError, status, text)
	require.Zero(t, testutil.CollectAndCount(opts.Metrics.findings))
}

func TestE13TheServersClockMovesNoDeadlineOfAConnection(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		config := testConfig()
		config.Handlers.ServerClock = clocktesting.NewFakePassiveClock(time.Now().Add(off))
		config.Budget = time.Minute // what is judged is slow to read on a busy machine
		url := serveEndpoint(t, Validate(config))
		review := podReview(t, admissionv1.Create, `{"metadata":{"annotations":{"a":"`+strings.Repeat("x", 1<<20)+`"}}}`, "")
		status, text := post(t, url, marshal(t, review))
		require.Equal(t, http.StatusOK, status, text)
	}
}

func TestResourcesOfDevicesHaveLabelsOfTheirOwn(t *testing.T) {
	endpoint := Validate(testConfig())
	label := func(name, subresource string) string {
		review := podReview(t, admissionv1.Create, `{}`, "")
		review.Request.Resource = metav1.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: name}
		review.Request.SubResource = subresource
		req, err := readRequest(marshal(t, review))
		require.NoError(t, err)
		return endpoint.label(req)
	}
	for _, name := range []string{"resourceslices", "devicetaintrules", "resourceclaims", "resourceclaimtemplates"} {
		require.Equal(t, name, label(name, ""))
	}
	require.Equal(t, "resourceclaims/status", label("resourceclaims", "status"))
	require.Equal(t, "other", label("resourceclaims", "anything"))
	require.Equal(t, "other", label("deviceclasses", ""))
}

// lenient is an API server that allows everything.
type lenient struct{}

func (lenient) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = true
	return review, nil
}

func TestAUserWhoseQuestionIsNotPutIsToldSo(t *testing.T) {
	config := testConfig()
	config.Handlers.Policies = fixedPolicies{policyset.None().WithTolerations([]v1alpha1.TolerationPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "dedicated"},
		Spec: v1alpha1.TolerationPolicySpec{
			Taints: []v1alpha1.TaintSelector{{Key: "dedicated"}}, Grants: []v1alpha1.TolerationGrant{{RBAC: true}},
		},
	}})}
	config.Handlers.Authorizer = auth.NewAuthority(lenient{}, clock.RealClock{}, auth.AuthorityLimits{PerSecond: 0.1, Burst: 4})
	endpoint := Validate(config)
	create := func(namespace, user string) *httptest.ResponseRecorder {
		review := podReview(t, admissionv1.Create, `{"spec":{"tolerations":[{"key":"dedicated","operator":"Exists","effect":"NoSchedule"}]}}`, "")
		review.Request.UserInfo = authenticationv1.UserInfo{Username: user}
		review.Request.Namespace = namespace
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(marshal(t, review)))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		endpoint.ServeHTTP(answer, request)
		return answer
	}
	for _, user := range []string{"anna", "bert"} {
		require.Contains(t, create("apple", user).Body.String(), `"allowed":true`)
	}
	refused := create("apple", "carl")
	require.Equal(t, http.StatusInternalServerError, refused.Code, "no verdict")
	require.Contains(t, refused.Body.String(), `no decision could be made: too many questions about permissions of namespace "apple" are in line`)
	require.Contains(t, create("apple", "anna").Body.String(), `"allowed":true`, "an answer that is known needs no question")
}
