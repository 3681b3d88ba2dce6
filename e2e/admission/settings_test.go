package admission

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestL07ABadSettingStopsTheStartWithItsName(t *testing.T) {
	tests := map[string]struct {
		change func(config map[string]any)
		args   []string
		named  string
	}{
		"a key that is unknown":          {change: func(c map[string]any) { c["noSuchSetting"] = true }, named: `"noSuchSetting"`},
		"a key that is unknown below":    {change: func(c map[string]any) { c["webhook"].(map[string]any)["bindAdress"] = "x" }, named: `"webhook.bindAdress"`},
		"a key with another case":        {change: func(c map[string]any) { c["Namespace"] = "a" }, named: `"Namespace"`},
		"a value of the wrong type":      {change: func(c map[string]any) { c["eviction"] = map[string]any{"workers": "many"} }, named: "workers"},
		"a value that makes no sense":    {change: func(c map[string]any) { c["eviction"] = map[string]any{"workers": -1} }, named: "eviction.workers"},
		"a feature gate that is unknown": {change: func(c map[string]any) { c["featureGates"] = map[string]any{"Teleport": true} }, named: "Teleport"},
		"another version":                {change: func(c map[string]any) { c["apiVersion"] = "config.tollgate.dev/v9" }, named: "config.tollgate.dev/v9"},
		"certificates that are too short": {change: func(c map[string]any) {
			c["certificates"] = map[string]any{"servingDuration": "1s"}
		}, named: "certificates.servingDuration"},
		"a flag that is unknown":    {args: []string{"--teleport"}, named: "--teleport"},
		"an argument that is none":  {args: []string{"teleport"}, named: `"teleport"`},
		"a log format that is none": {args: []string{"--log-format=xml"}, named: "--log-format"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config := configOf(t)
			moveTo(t, config)
			if tt.change != nil {
				tt.change(config)
			}
			path := filepath.Join(t.TempDir(), "config.yaml")
			writeConfig(t, path, config)
			var out, errs bytes.Buffer
			args := append([]string{"serve", "--config", path, "--kubeconfig", tollgate.Kubeconfig}, tt.args...)
			cmd := exec.CommandContext(t.Context(), programs.Tollgate(), args...)
			cmd.Stdout, cmd.Stderr = &out, &errs
			err := cmd.Run()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 1, exit.ExitCode())
			require.Empty(t, out.String())
			lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
			require.Len(t, lines, 1, "%s", errs.String())
			require.Contains(t, lines[0], tt.named)
		})
	}
}
