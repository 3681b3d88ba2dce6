package app

import (
	"fmt"

	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	apidiscovery "github.com/tollgate-dev/tollgate/cmd/tollgate/internal/discovery"
	"github.com/tollgate-dev/tollgate/controllers/audit"
)

// reportResource is the resource of the Reports of OpenReports.
var reportResource = openreportsv1alpha1.SchemeGroupVersion.WithResource("reports")

// addReports returns the options of the Reports of OpenReports, nil if none are configured. It
// adds the discovery of their resource, which is that of a CustomResourceDefinition.
func (p *program) addReports() (*audit.ReportOptions, error) {
	if !p.config.Audit.OpenReports || !p.components.evictor {
		return nil, nil
	}
	keeper := p.newKeeper(func(bool) {}, apidiscovery.Resource{
		Name: reportResource.GroupResource(), Versions: []string{reportResource.Version},
		Without: "no Reports are written until its CustomResourceDefinition is installed",
	})
	p.add(keeper)
	scheme := runtime.NewScheme()
	if err := openreportsv1alpha1.Install(scheme); err != nil {
		return nil, fmt.Errorf("register Reports: %w", err)
	}
	// Without a cache: the leader alone reads them, and seldom.
	reports, err := client.New(p.connection, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client for Reports: %w", err)
	}
	return &audit.ReportOptions{
		Client: reports, Served: func() bool { return keeper.Version(reportResource.GroupResource()) != "" },
		Metrics: audit.NewReportMetrics(ctrlmetrics.Registry),
	}, nil
}

// newKeeper returns a keeper of resources. All keepers share their metrics.
func (p *program) newKeeper(known func(bool), resources ...apidiscovery.Resource) *apidiscovery.Keeper {
	if p.resources == nil {
		p.resources = apidiscovery.NewMetrics(ctrlmetrics.Registry)
	}
	return apidiscovery.New(apidiscovery.Options{
		Discovery: discovery.ToServerResourcesInterfaceWithContext(p.clientset.Discovery()),
		Clock:     p.local, Resources: resources, Known: known, Metrics: p.resources,
	})
}
