package devices

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/devices/auditlog"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/e2e/suite"
)

// plane is a control plane with Tollgate in it.
type plane struct {
	cp       *controlplane.ControlPlane
	tollgate *install.Tollgate
	// audit is what Tollgate asked of the API server about pods, nodes and rules.
	audit auditlog.Log
	// auditArgs are what the API server needs to write it.
	auditArgs []string
}

const (
	// account is the user that Tollgate is.
	account = "system:serviceaccount:tollgate-system:tollgate"

	auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  users: ["` + account + `"]
  verbs: [delete]
  resources: [{group: "", resources: [pods]}]
- level: Metadata
  users: ["` + account + `"]
  verbs: [get, patch, update, delete, deletecollection, create]
  resources: [{group: "", resources: [pods, pods/*]}, {group: resource.k8s.io}]
- level: None
`
)

// lease is for how long a leader leads that is not heard of, and by when it has renewed that.
// What is between the two is how long one attempt may take.
type lease struct{ duration, renewed time.Duration }

var (
	// lasting is for where nobody crashes: a busy machine does not make the leader lose it.
	lasting = lease{time.Minute, 45 * time.Second}
	// brief is for where somebody does: who is started after that does not wait long.
	brief = lease{8 * time.Second, 3 * time.Second}
)

// startPlane starts a control plane; the audit log goes into a directory.
func startPlane(ctx context.Context, name, dir string, leads lease) (*plane, error) {
	log, args, err := auditlog.New(dir, auditPolicy)
	if err != nil {
		return nil, err
	}
	cp, err := suite.Start(ctx, name, controlplane.Options{
		Nodes: 4, ExtraArgs: map[string][]string{
			controlplane.APIServer: args,
			// What takes back the claims of a thousand pods shall not keep the others
			// waiting for theirs.
			controlplane.ControllerManager: {"--kube-api-qps=500", "--kube-api-burst=1000"},
		},
	})
	if err != nil {
		return nil, err
	}
	p := &plane{cp: cp, audit: log, auditArgs: args}
	if err := p.install(ctx, leads); err != nil {
		return nil, errors.Join(err, cp.Stop(ctx))
	}
	return p, nil
}

func (p *plane) install(ctx context.Context, leads lease) error {
	programs, err := suite.Binaries(ctx)
	if err != nil {
		return err
	}
	if err := programs.BuildTollgate(ctx); err != nil {
		return err
	}
	p.tollgate, err = install.Install(ctx, p.cp, install.Options{Programs: programs, Patch: func(config map[string]any) {
		config["leaderElection"] = map[string]any{
			"leaseDuration": leads.duration.String(), "renewDeadline": leads.renewed.String(), "retryPeriod": "500ms",
		}
	}})
	return err
}

// restConfig is the access of the administrator, who does not listen to warnings.
func (p *plane) restConfig() *rest.Config {
	config := p.cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	return config
}

// logLines returns how many lines of Tollgate's log have all of some words.
func (p *plane) logLines(words ...string) (int, error) {
	log, err := os.ReadFile(filepath.Clean(p.tollgate.LogPath))
	if err != nil {
		return 0, err
	}
	count := 0
	for line := range strings.Lines(string(log)) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			count++
		}
	}
	return count, nil
}
