package policies

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// reportNow returns the Report of a namespace, as the types of OpenReports have it.
func reportNow(ctx context.Context, t *testing.T, namespace string) (*openreportsv1alpha1.Report, error) {
	t.Helper()
	resource := openreportsv1alpha1.SchemeGroupVersion.WithResource("reports")
	object, err := admin(t).resource(t, resource, namespace).Get(ctx, "tollgate", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	report := &openreportsv1alpha1.Report{}
	return report, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, report, true)
}

// The definition of Reports was installed when Tollgate ran already.
func TestC28WhatViolatesAlreadyIsReportedToOtherTools(t *testing.T) {
	const key = "reported.example.com/x"
	eventually(t, "Reports are served", func(ctx context.Context) error {
		served, err := metric(ctx, "tollgate_api_resources", `resource="reports"`, `state="served"`)
		if err == nil && served != 1 {
			err = errors.New("not yet")
		}
		return err
	})
	log, err := os.ReadFile(tollgate.LogPath)
	require.NoError(t, err)
	require.Contains(t, string(log), "no Reports are written until its CustomResourceDefinition is installed")

	namespaces(t, "reported", "reported-granted")
	alice := tenant(t, "alice")
	alice.createPod(t, "reported", podNamed("violates", exists(key, "")))
	alice.createPod(t, "reported", podNamed("harmless"))
	alice.createPod(t, "reported-granted", podNamed("granted", exists(key, "")))
	for _, name := range []string{"violates", "harmless"} {
		waitRuns(t, "reported", name)
	}
	enforce(t, `
kind: TolerationPolicy
metadata: {name: reported}
spec:
  taints: [{key: reported.example.com/x}]
  grants: [{namespaces: [reported-granted]}]
`)
	eventually(t, "the pod is reported", func(ctx context.Context) error {
		report, err := reportNow(ctx, t, "reported")
		if err != nil {
			return err
		}
		if len(report.Results) != 1 || report.Summary.Fail != 1 || report.Source != "tollgate" {
			return fmt.Errorf("%+v", report)
		}
		result := report.Results[0]
		if result.Policy != "TolerationPolicy/reported" || result.Result != "fail" || result.Subjects[0].Name != "violates" || result.Timestamp.Seconds == 0 {
			return fmt.Errorf("%+v", result)
		}
		if len(report.OwnerReferences) != 1 || report.OwnerReferences[0].Name != "reported" {
			return fmt.Errorf("owners %+v", report.OwnerReferences)
		}
		return nil
	})
	_, err = reportNow(t.Context(), t, "reported-granted")
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	withdraw(t, "TolerationPolicy", "reported")
	eventually(t, "the Report goes with its policy", func(ctx context.Context) error {
		_, err := reportNow(ctx, t, "reported")
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it is still there")
		}
		return err
	})
}
