package kubelet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestAddressesArePutWhereNoOtherPodListens(t *testing.T) {
	t.Parallel()
	address := podAddress{podIP: "10.160.7.3", loopback: "127.210.7.3"}
	for given, want := range map[string]string{
		":9443":           "127.160.7.3:9443",
		"0.0.0.0:9443":    "127.160.7.3:9443",
		"[::]:9443":       "127.160.7.3:9443",
		"10.160.7.3:9443": "127.160.7.3:9443",
		"127.0.0.1:8080":  "127.210.7.3:8080",
		"localhost:8080":  "127.210.7.3:8080",
		"192.0.2.7:8080":  "192.0.2.7:8080",
		"0":               "0",
	} {
		require.Equal(t, want, address.listen(given), given)
	}
}

func TestWhatNamesAFileInAContainerNamesItHere(t *testing.T) {
	t.Parallel()
	r := rewriter{mounts: []mount{{"/etc/tollgate", "/tmp/a"}, {"/etc/tollgate/tls/", "/tmp/b"}}}
	for given, want := range map[string]string{
		"/etc/tollgate/tollgate.yaml":          "/tmp/a/tollgate.yaml",
		"/etc/tollgate/tls/tls.crt":            "/tmp/b/tls.crt",
		"/etc/tollgate":                        "/tmp/a",
		"/etc/tollgate-other":                  "/etc/tollgate-other",
		"--config=/etc/tollgate/tollgate.yaml": "--config=/tmp/a/tollgate.yaml",
		"--verbose":                            "--verbose",
		"serve":                                "serve",
	} {
		require.Equal(t, want, r.argument(given), given)
	}
}

func TestAConfigurationListensWhereThePodIs(t *testing.T) {
	t.Parallel()
	r := rewriter{address: podAddress{podIP: "10.160.7.3", loopback: "127.210.7.3"}, mounts: []mount{{"/tls", "/tmp/tls"}}}
	out, err := r.configurations(map[string]string{
		"10-first.yaml": `
kind: TollgateConfiguration
health: {bindAddress: ":8081"}
metrics: {bindAddress: "0"}
certificates: {directory: /tls}
`,
		"20-second.yaml": `{kind: TollgateConfiguration, metrics: {bindAddress: "localhost:8080"}}`,
		"other.yaml":     `{kind: Other, health: {bindAddress: ":8081"}}`,
		"ca.crt":         "-----BEGIN CERTIFICATE-----",
	})
	require.NoError(t, err)
	require.YAMLEq(t, `
kind: TollgateConfiguration
webhook: {bindAddress: "127.160.7.3:9443"}
health: {bindAddress: "127.160.7.3:8081"}
metrics: {bindAddress: "0"}
certificates: {directory: /tmp/tls}
`, out["10-first.yaml"])
	require.YAMLEq(t, `{kind: TollgateConfiguration, metrics: {bindAddress: "127.210.7.3:8080"}}`, out["20-second.yaml"])
	require.Equal(t, `{kind: Other, health: {bindAddress: ":8081"}}`, out["other.yaml"])
	require.Equal(t, "-----BEGIN CERTIFICATE-----", out["ca.crt"])
}

func TestAnswersToAProbeCountWhenThereAreEnoughOfThem(t *testing.T) {
	t.Parallel()
	counted := tally{success: 2, failure: 3}
	var said []string
	for _, ok := range []bool{true, true, false, false, true, false, false, false, true, true} {
		switch enough := counted.add(ok); {
		case enough && ok:
			said = append(said, "ready")
		case enough:
			said = append(said, "unready")
		default:
			said = append(said, "")
		}
	}
	require.Equal(t, []string{"", "ready", "", "", "", "", "", "unready", "", "ready"}, said)
}

func TestAContainerThatCrashesAgainAndAgainWaitsLonger(t *testing.T) {
	t.Parallel()
	var b backoff
	var waits []time.Duration
	for _, run := range []time.Duration{time.Second, time.Second, time.Second, longRun, time.Second} {
		waits = append(waits, b.after(run))
	}
	require.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second, 0, 10 * time.Second}, waits)
	for range 10 {
		b.after(0)
	}
	require.Equal(t, maxBackoff, b.after(0))
}

func TestAnImageIsKnownByItsNameWhateverItsTag(t *testing.T) {
	t.Parallel()
	options := Options{Images: map[string]Image{
		"ghcr.io/a/b": {Program: "b"}, "ghcr.io/a/b:old": {Program: "old"}, "localhost:5000/c": {Program: "c"},
	}}
	for reference, want := range map[string]string{
		"ghcr.io/a/b": "b", "ghcr.io/a/b:v1": "b", "ghcr.io/a/b:old": "old", "ghcr.io/a/b:v1@sha256:00": "b", "localhost:5000/c": "c",
	} {
		image, err := options.image(reference)
		require.NoError(t, err)
		require.Equal(t, want, image.Program, reference)
	}
	_, err := options.image("ghcr.io/a/other:v1")
	require.ErrorContains(t, err, `image "ghcr.io/a/other:v1" is not known here`)
}

func TestTheStatusSaysWhatIsKnownOfThePod(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	disrupted := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	pod.Status.Conditions = []corev1.PodCondition{disrupted}
	killed := &ending{code: 137, reason: "Error"}
	tests := map[string]struct {
		state  containerState
		ending bool
		phase  corev1.PodPhase
		ready  corev1.ConditionStatus
	}{
		"nothing runs yet":           {containerState{}, false, corev1.PodPending, corev1.ConditionFalse},
		"it runs and is not ready":   {containerState{startedAt: now, started: true}, false, corev1.PodRunning, corev1.ConditionFalse},
		"it runs and is ready":       {containerState{startedAt: now, started: true, ready: true}, false, corev1.PodRunning, corev1.ConditionTrue},
		"it crashed and waits":       {containerState{startedAt: now, ended: killed, waiting: "CrashLoopBackOff"}, false, corev1.PodRunning, corev1.ConditionFalse},
		"it ended in peace":          {containerState{startedAt: now, ended: &ending{}, finished: true}, true, corev1.PodSucceeded, corev1.ConditionFalse},
		"it was killed":              {containerState{startedAt: now, ended: killed, finished: true}, true, corev1.PodFailed, corev1.ConditionFalse},
		"it ended before it had run": {containerState{finished: true}, true, corev1.PodFailed, corev1.ConditionFalse},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := view{podIP: "10.160.7.3", hostIP: "192.0.2.1", containers: []containerState{test.state}, ending: test.ending}
			status := statusOf(pod, v, now)
			require.Equal(t, test.phase, status.Phase)
			require.Contains(t, status.Conditions, disrupted)
			for _, c := range status.Conditions {
				if c.Type == corev1.PodReady {
					require.Equal(t, test.ready, c.Status)
				}
			}
			require.Equal(t, "10.160.7.3", status.PodIP)
		})
	}
}

func TestExitsAreToldAsContainerEnginesDo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int32{
		"exit status 0": 0, "exit status 3": 3, "signal: killed": 137, "signal: terminated": 143, "signal: aborted": 1,
	} {
		require.Equal(t, want, exitOf(text, time.Time{}, time.Time{}).code, text)
	}
}
