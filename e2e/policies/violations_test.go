package policies

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestC28WhatViolatesAlreadyIsListed(t *testing.T) {
	const key = "listed.example.com/x"
	namespaces(t, "listed", "listed-granted")
	alice := tenant(t, "alice")
	alice.createPod(t, "listed", podNamed("violates", exists(key, "")))
	alice.createPod(t, "listed", podNamed("violates-too", exists("", "")))
	alice.createPod(t, "listed", podNamed("harmless"))
	alice.createPod(t, "listed-granted", podNamed("granted", exists(key, "")))
	for _, name := range []string{"violates", "violates-too", "harmless"} {
		waitRuns(t, "listed", name)
	}
	enforce(t, `
kind: TolerationPolicy
metadata: {name: listed}
spec:
  taints: [{key: listed.example.com/x}]
  grants: [{namespaces: [listed-granted]}]
`)
	violations := func(parts ...string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			policy, err := admin(t).resource(t, ofTollgate("TolerationPolicy"), "").Get(ctx, "listed", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if text := string(encode(t, policy.Object["status"])); !containsAll(text, parts) {
				return fmt.Errorf("status %s", text)
			}
			return nil
		}
	}
	eventually(t, "both are listed", violations(`"count":2`, `"name":"violates"`, `"name":"violates-too"`, `"namespace":"listed"`, key))
	eventually(t, "and counted", func(ctx context.Context) error {
		counted, err := metric(ctx, "tollgate_policy_violations")
		if err == nil && counted != 2 {
			err = fmt.Errorf("%v", counted)
		}
		return err
	})
	alice.deletePod(t, "listed", "violates")
	eventually(t, "who is gone is not listed", violations(`"count":1`))
}
