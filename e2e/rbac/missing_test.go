package rbac

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// lost are permissions that are taken away, and what Tollgate's log then has in a line.
var lost = map[grant]string{
	{verb: "create", resource: "events"}:                                           "events is forbidden",
	{verb: "patch", resource: "devicetaintrules/status", group: "resource.k8s.io"}: "devicetaintrules.resource.k8s.io",
	{verb: "patch", resource: "tolerationpolicies/status", group: "tollgate.dev"}:  "tolerationpolicies.tollgate.dev",
}

const (
	// watchedFor is for how long Tollgate at least asks for what it may not do, and counted
	// is how much of the end of it is looked at.
	watchedFor = 25 * time.Second
	counted    = 10 * time.Second
	// mostAtLast is how often it may ask in that time about one object. Tollgate asks again
	// after a tenth of a second and then after twice as long each time, so that ten seconds
	// have one or two; what is written from two places is asked for twice.
	mostAtLast = 4
)

func TestF10WhatIsNotPermittedIsSaidAndTheRestGoesOn(t *testing.T) {
	write(t, nil, "apply", `apiVersion: v1
kind: Namespace
metadata: {name: missing}
`)
	node := controlplane.NodeName(1)
	since := time.Now()
	takeAway(t)

	write(t, nil, "create", `
kind: TolerationPolicy
metadata: {name: missing}
spec: {taints: [{key: missing.example.com/x}]}
`)
	becomesRefused(t, podOn("missing", "refused", node, "  tolerations: [{key: missing.example.com/x, operator: Exists}]"))
	write(t, nil, "create", rule("missing", "missing.example.com/x", "", "none-of-that-name"))
	write(t, nil, "create", podOn("missing", "leaves", node, ""))
	kubectl(t, nil, "taint", "node", node, "missing.example.com/broken=:NoExecute")
	gone(t, "-n", "missing", "pod/leaves")
	kubectl(t, nil, "taint", "node", node, "missing.example.com/broken-")

	for what, said := range lost {
		waitAskedInVain(t, what, since)
		waitLogged(t, "forbidden", said)
	}
	until := time.Now().Add(watchedFor)
	poll(t, "time passes", func(context.Context) error {
		if time.Now().Before(until) {
			return errors.New("not yet")
		}
		return nil
	})
	for what := range lost {
		last := mostOften(asked(t, until.Add(-counted), func(event *auditv1.Event) bool {
			return forbidden(what)(event) && event.RequestReceivedTimestamp.Time.Before(until)
		}))
		require.LessOrEqual(t, last, mostAtLast, what)
	}

	giveBack(t)
	becomes(t, "the policy says what it is", has("True"),
		"get", "tolerationpolicy", "missing", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	becomes(t, "the rule says how far it is", has("False"),
		"get", "devicetaintrule", "missing", "-o", `jsonpath={.status.conditions[?(@.type=="EvictionInProgress")].status}`)
	kubectl(t, nil, "delete", "devicetaintrule/missing", "tolerationpolicy/missing")
}

// poll returns when check finds nothing wrong.
func poll(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never looked")
	err := wait.PollUntilContextTimeout(t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(context.WithoutCancel(ctx))
		return last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// mostOften returns how often the object was asked for that was asked for most often.
func mostOften(events []auditv1.Event) int {
	most, times := 0, map[string]int{}
	for i := range events {
		object := events[i].ObjectRef.Namespace + "/" + events[i].ObjectRef.Name
		times[object]++
		most = max(most, times[object])
	}
	return most
}

// takeAway takes from the role what is lost, until the test is over at the latest.
func takeAway(t *testing.T) {
	t.Helper()
	roles := client(t).RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "tollgate-evictor", metav1.GetOptions{})
	require.NoError(t, err)
	for i := range role.Rules {
		rule := &role.Rules[i]
		rule.Resources = slices.DeleteFunc(rule.Resources, func(resource string) bool {
			for what := range lost {
				if resource == what.resource && slices.Contains(rule.APIGroups, what.group) && slices.Contains(rule.Verbs, what.verb) {
					return true
				}
			}
			return false
		})
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Resources) == 0 })
	t.Cleanup(func() { giveBack(t) })
	_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// giveBack applies what ships.
func giveBack(t *testing.T) {
	t.Helper()
	require.NoError(t, install.Apply(context.WithoutCancel(t.Context()), shared, "testdata/apart/rights"))
}

// becomesRefused returns when a pod is refused because of the policy.
func becomesRefused(t *testing.T, pod string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(path, []byte(pod), 0o600))
	poll(t, "the policy is in force", func(ctx context.Context) error {
		out, err := install.Kubectl(ctx, shared, append([]string{"create", "--dry-run=server", "-f", path}, alice...)...)
		if err == nil || !strings.Contains(string(out), "TolerationPolicy/missing") {
			return fmt.Errorf("kubectl says %s", out)
		}
		return nil
	})
}

// waitAskedInVain returns when Tollgate has asked for what it may not do.
func waitAskedInVain(t *testing.T, what grant, since time.Time) {
	t.Helper()
	poll(t, "Tollgate asks in vain: "+what.String(), func(context.Context) error {
		if len(asked(t, since, forbidden(what))) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
}

// waitLogged returns when the evictor's log has a line with all of some words.
func waitLogged(t *testing.T, words ...string) {
	t.Helper()
	poll(t, fmt.Sprintf("the log says %v", words), func(context.Context) error {
		log, err := os.ReadFile(evictor.LogPath)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return nil
			}
		}
		return errors.New("it does not")
	})
}
