package main

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// binDir has the commands that the env file puts in front of the PATH.
func binDir(dir string) string { return filepath.Join(dir, "bin") }

// linkCommands makes the commands that a user types: kubectl, and with Tollgate its plugin,
// which kubectl finds on the PATH.
func (c *cluster) linkCommands(tollgate bool) error {
	commands := map[string]string{"kubectl": c.programs.Kubectl()}
	if tollgate {
		commands["kubectl-tollgate"] = c.programs.Plugin()
	}
	if err := os.MkdirAll(binDir(c.dir), 0o750); err != nil {
		return fmt.Errorf("create directory of commands: %w", err)
	}
	for name, program := range commands {
		link := filepath.Join(binDir(c.dir), name)
		if err := os.RemoveAll(link); err != nil {
			return fmt.Errorf("replace link of %s: %w", name, err)
		}
		if err := os.Symlink(program, link); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

func envFile(dir string) string { return filepath.Join(dir, "env") }

// variables are what the env file tells: where things are, and for each process
// NAME_PID and, where it serves, NAME_URL and NAME_PORT.
func (c *cluster) variables(cp *controlplane.ControlPlane, tollgate *install.Tollgate) map[string]string {
	variables := map[string]string{
		"KUBECONFIG":  cp.Kubeconfig(),
		"KUBECTL":     c.programs.Kubectl(),
		"CLUSTER_DIR": cp.Dir(),
	}
	for name, pid := range cp.RunningPIDs() {
		variables[variable(name)+"_PID"] = strconv.Itoa(pid)
	}
	for _, name := range []string{
		controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager, controlplane.Scheduler,
	} {
		variables[variable(name)+"_URL"] = cp.URL(name)
		if u, err := url.Parse(cp.URL(name)); err == nil {
			variables[variable(name)+"_PORT"] = u.Port()
		}
	}
	if tollgate != nil {
		variables["TOLLGATE_METRICS_URL"] = tollgate.MetricsURL
		variables["TOLLGATE_HEALTH_URL"] = tollgate.HealthURL
		variables["TOLLGATE_WEBHOOK_URL"] = tollgate.WebhookURL
		variables["TOLLGATE_CONFIG"] = tollgate.ConfigPath
		variables["TOLLGATE_KUBECONFIG"] = tollgate.Kubeconfig
		variables["TOLLGATE_LOG"] = tollgate.LogPath
	}
	return variables
}

func variable(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// writeEnv writes assignments for a POSIX shell, in one step, with the commands of the
// cluster in front of the PATH.
func writeEnv(path string, variables map[string]string) error {
	var content strings.Builder
	// Once, however often the file is read.
	fmt.Fprintf(&content, "case \"$PATH\" in %[1]s:*) ;; *) export PATH=%[1]s:\"$PATH\" ;; esac\n", quote(binDir(filepath.Dir(path))))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		fmt.Fprintf(&content, "export %s=%s\n", name, quote(variables[name]))
	}
	next := path + ".next"
	if err := os.WriteFile(next, []byte(content.String()), 0o600); err != nil {
		return fmt.Errorf("write environment: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write environment: %w", err)
	}
	return nil
}

// quote makes one word for a POSIX shell of any string.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
