package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

var update = flag.Bool("update", false, "write docs/cli.md and testdata/commands.txt")

const manualFile = "../../docs/cli.md"

// manualIntro begins the manual.
const manualIntro = `# The command line

<!-- Written by make generate from the commands themselves and from what their tests expect of them. -->

` + "`kubectl-tollgate`" + ` is the command line of Tollgate. On the PATH, it is a plugin of kubectl. Without kubectl, type
` + "`kubectl-tollgate`" + ` instead of ` + "`kubectl tollgate`" + `. The server is another program, ` + "`tollgate serve`" + `, with its own flags
([configuration](configuration.md)).

` + "```sh" + `
install bin/kubectl-tollgate ~/.local/bin/
printf '#!/bin/sh\nexec kubectl tollgate __complete "$@"\n' > ~/.local/bin/kubectl_complete-tollgate # for kubectl's completion
chmod +x ~/.local/bin/kubectl_complete-tollgate
kubectl tollgate devices
` + "```" + `

The commands read the cluster with your rights, and decide with the functions of Tollgate's admission and eviction.
Without Tollgate in the cluster, they show what Kubernetes alone does. Only ` + "`approve`" + `, ` + "`pause`" + `, ` + "`resume`" + ` and ` + "`release`" + ` need
Tollgate.

| exit code | meaning |
|---|---|
| 0 | The command succeeded. |
| 1 | The command line, a file or the cluster caused an error. |
| 2 | The answer is no, if the help of the command describes this code. |

`

// example is what a command prints, as its tests expect it.
type example struct {
	// line is what was typed.
	line string
	// file has what was printed.
	file string
}

// examples are the outputs that the manual shows, by command.
func examples() map[string][]example {
	return map[string][]example{
		"kubectl tollgate preview node": {
			{"kubectl tollgate preview node node-7 down=hard:NoExecute", "internal/preview/testdata/node.txt"},
			{"kubectl tollgate preview node node-7 down=soft:NoExecute -o wide", "internal/preview/testdata/node-wide.txt"},
			{"kubectl tollgate preview node node-7 old- -o wide", "internal/preview/testdata/node-removal.txt"},
		},
		"kubectl tollgate preview device": {
			{"kubectl tollgate preview device gpu.example.com/node-7/gpu-0 hot:NoExecute", "internal/preview/testdata/device.txt"},
		},
		"kubectl tollgate taint device": {
			{"kubectl tollgate taint device gpu.example.com/node-7/gpu-0 overheating:NoExecute", "internal/preview/testdata/taint.txt"},
			{"kubectl tollgate taint device gpu.example.com/node-7 fans:NoSchedule power:NoExecute --yes", "internal/preview/testdata/taint-two.txt"},
			{"kubectl tollgate taint device --class a100 recall:NoExecute --dry-run -o yaml", "internal/preview/testdata/taint-class.txt"},
		},
		"kubectl tollgate untaint device": {
			{"kubectl tollgate untaint device gpu.example.com/node-7/gpu-0 overheating", "internal/preview/testdata/untaint.txt"},
			{"kubectl tollgate untaint device gpu.example.com/node-7/gpu-0 hot", "internal/preview/testdata/untaint-refused.txt"},
		},
		"kubectl tollgate devices": {
			{"kubectl tollgate devices", "internal/devices/testdata/table.txt"},
			{"kubectl tollgate devices -o wide", "internal/devices/testdata/wide.txt"},
		},
		"kubectl tollgate evictions": {
			{"kubectl tollgate evictions -A", "internal/evictions/testdata/table.txt"},
		},
		"kubectl tollgate status": {{"kubectl tollgate status", "internal/operate/testdata/status.txt"}},
		"kubectl tollgate simulate": {
			{"kubectl tollgate simulate -f testdata/rack --timeline rack-7.txt", "internal/preview/testdata/rack.txt"},
		},
		"kubectl tollgate pause":   {{"kubectl tollgate pause all", "internal/operate/testdata/pause.txt"}},
		"kubectl tollgate resume":  {{"kubectl tollgate resume all --yes", "internal/operate/testdata/resume.txt"}},
		"kubectl tollgate release": {{"kubectl tollgate release default --pods 3 --dry-run", "internal/operate/testdata/release.txt"}},
		"kubectl tollgate approve": {
			{"kubectl tollgate approve node n1 --taint example.com/broken --dry-run", "internal/operate/testdata/node.txt"},
			{"kubectl tollgate approve policy default --dry-run", "internal/operate/testdata/policy.txt"},
			{"kubectl tollgate approve rule hot --for 30m --dry-run -o yaml", "internal/operate/testdata/yaml.txt"},
			{"kubectl tollgate approve node new --taint example.com/broken --pods 120 --dry-run", "internal/operate/testdata/to-come.txt"},
		},
		"kubectl tollgate explain": {
			{"kubectl tollgate explain pod p -n ml", "internal/explain/testdata/pod-spread.txt"},
			{"kubectl tollgate explain pod p -n ml # another one", "internal/explain/testdata/pod-held.txt"},
			{"kubectl tollgate explain claim gpu -n ml", "internal/explain/testdata/claim.txt"},
			{"kubectl tollgate explain node n-1", "internal/explain/testdata/node.txt"},
			{"kubectl tollgate explain device gpu.example.com/n-1/gpu-1", "internal/explain/testdata/device.txt"},
		},
		"kubectl tollgate check": {
			{"kubectl tollgate check -p testdata/policies -f testdata/manifests.yaml", "internal/check/testdata/text.golden"},
			{"kubectl tollgate check --tests testdata/tests -o wide", "internal/check/testdata/tests.golden"},
		},
		"kubectl tollgate export vap": {
			{"kubectl tollgate export vap -f shared-nodes.yaml > policies.yaml", "internal/check/testdata/export/shared-nodes.txt"},
		},
	}
}

// The manual is written from the commands; make generate writes it anew.
func TestTheManualIsAsTheCommandsAre(t *testing.T) {
	t.Parallel()
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	shown := examples()
	manual := manualOf(t, root, shown)
	require.Empty(t, shown, "examples of commands that are not there")
	if *update {
		require.NoError(t, os.WriteFile(manualFile, manual, 0o600))
	}
	written, err := os.ReadFile(manualFile)
	require.NoError(t, err)
	require.Equal(t, string(manual), string(written), "docs/cli.md is out of date: run make generate")
}

// manualOf takes what it shows out of the examples.
func manualOf(t *testing.T, root *cobra.Command, shown map[string][]example) []byte {
	t.Helper()
	out := bytes.NewBufferString(manualIntro)
	commands := described(root)
	for _, cmd := range commands {
		fmt.Fprintf(out, "- [%s](#%s): %s\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
	}
	connection := connectionFlags()
	fmt.Fprintf(out, "\n## Flags of all that read a cluster\n\nThese flags are those of kubectl.\n\n```\n%s```\n", connection.FlagUsages())
	for _, cmd := range commands {
		describe(t, out, cmd, connection, shown[cmd.CommandPath()])
		delete(shown, cmd.CommandPath())
	}
	return out.Bytes()
}

// described returns the commands that do something, and that people run.
func described(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "completion" && sub.Name() != "help" {
			all = append(all, described(sub)...)
		}
	}
	if cmd.Runnable() && cmd.HasParent() {
		all = append([]*cobra.Command{cmd}, all...)
	}
	return all
}

// connectionFlags are those of every command that reads a cluster.
func connectionFlags() *pflag.FlagSet {
	cmd := &cobra.Command{}
	cli.Connect(cmd)
	// Its default is a folder of whoever builds the manual.
	if cache := cmd.Flags().Lookup("cache-dir"); cache != nil {
		cache.DefValue = "$HOME/.kube/cache"
	}
	return cmd.Flags()
}

func describe(t *testing.T, out *bytes.Buffer, cmd *cobra.Command, connection *pflag.FlagSet, shown []example) {
	t.Helper()
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(out, "\n## %s\n\n%s\n\n```\n%s\n```\n", cmd.CommandPath(), text, cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(out, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	}
	own, connects := pflag.NewFlagSet("", pflag.ContinueOnError), false
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if known := connection.Lookup(f.Name); known != nil && known.Usage == f.Usage {
			connects = true
			return
		}
		if f.Name != "help" {
			own.AddFlag(f)
		}
	})
	if own.HasFlags() {
		fmt.Fprintf(out, "\n```\n%s```\n", own.FlagUsages())
	}
	if connects {
		without := ""
		for _, name := range []string{"as", "as-group", "cluster"} {
			if f := cmd.Flags().Lookup(name); f != nil && f.Usage != connection.Lookup(name).Usage {
				without = ", except those with another meaning here"
			}
		}
		out.WriteString("\nThe command also has the [flags of all that read a cluster](#flags-of-all-that-read-a-cluster)" + without + ".\n")
	}
	if schemas := schemasOf(t, cmd); len(schemas) > 0 {
		out.WriteString("\nWith `-o json` and `-o yaml`, the output has the schema " + strings.Join(schemas, ", ") + ".\n")
	}
	for _, e := range shown {
		printed, err := os.ReadFile(filepath.FromSlash(e.file))
		require.NoError(t, err)
		fmt.Fprintf(out, "\n```\n$ %s\n%s```\n", e.line, printed)
	}
}

// schemasOf returns links to the schemas of what a command writes.
func schemasOf(t *testing.T, cmd *cobra.Command) []string {
	t.Helper()
	_, path, _ := strings.Cut(cmd.CommandPath(), "tollgate ")
	name := strings.ReplaceAll(strings.Replace(strings.Replace(path, "preview node", "preview", 1), "preview device", "preview", 1), " ", "-")
	files, err := filepath.Glob(filepath.Join(filepath.Dir(manualFile), "schemas", name+"*.json"))
	require.NoError(t, err)
	var links []string
	for _, file := range files {
		base := filepath.Base(file)
		links = append(links, "["+strings.TrimSuffix(base, ".json")+"](schemas/"+base+")")
	}
	return links
}

func TestEveryCommandSaysWhatItIsFor(t *testing.T) {
	t.Parallel()
	for _, cmd := range described(newRootCommand()) {
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		require.False(t, strings.HasSuffix(cmd.Short, "."), cmd.CommandPath())
		for line := range strings.Lines(cmd.Long) {
			require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 120, "%s: %s", cmd.CommandPath(), line)
		}
		var undocumented []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" && !f.Hidden {
				undocumented = append(undocumented, f.Name)
			}
		})
		require.Empty(t, slices.DeleteFunc(undocumented, func(name string) bool { return name == "help" }), cmd.CommandPath())
	}
}
