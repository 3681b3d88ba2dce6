package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2" //nolint:depguard // It sets the logger of client-go.
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
	"github.com/tollgate-dev/tollgate/cmd/internal/settings"
)

// NewCommand returns the command of the server.
func NewCommand() *cobra.Command {
	version := new(bool)
	root := &cobra.Command{
		Use:   "tollgate",
		Short: "Decide who may pass a taint, and evict safely those who may not stay",
		Long: `Tollgate decides who may tolerate the taints of a Kubernetes cluster, writes
into node taints the time from which they count, and evicts pods from nodes with
NoExecute taints, on time and never the wrong one.

This is the server. The commands for people are those of kubectl tollgate, which is the
program kubectl-tollgate.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !*version {
				return cmd.Help()
			}
			return printVersion(cmd)
		},
		// A server needs no shell completion.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	// Cobra's version flag links text/template into the program.
	root.Flags().BoolVar(version, "version", false, "print the version")
	root.AddCommand(newServeCommand(), newVersionCommand())
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprint(cmd.OutOrStdout(), settings.Origin())
	return err
}

// serveFlags are the flags of tollgate serve. Settings that are not specific to one machine are
// in the configuration file.
type serveFlags struct {
	config      string
	kubeconfig  string
	components  []string
	evictorUser string
	logFormat   string
	verbose     bool
}

func newServeCommand() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the admission webhook and the evictor",
		Long: `Run the admission webhook on every replica, and the evictor on the one that
leads. With --components, a process runs one of them, so that each can have a
service account of its own. In a cluster no flag is needed; beside one, name a kubeconfig, and in the
configuration file the URL by which the API server reaches the webhook.`,
		Example: `  # In a pod, with the defaults.
  tollgate serve

  # Beside a cluster.
  tollgate serve --kubeconfig tollgate.kubeconfig --config tollgate.yaml

  # The webhook and the evictor in two Deployments with two service accounts.
  tollgate serve --components=webhook --evictor-user=system:serviceaccount:tollgate-system:tollgate
  tollgate serve --components=evictor`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := parseComponents(flags.components, flags.evictorUser)
			if err != nil {
				return err
			}
			// A closed standard error must not end the process.
			signal.Ignore(syscall.SIGPIPE)
			sink := NewLogSink(os.Stderr, NewLost(ctrlmetrics.Registry))
			defer closeLog(context.WithoutCancel(cmd.Context()), sink)
			log, err := newLogger(flags, sink)
			if err != nil {
				return err
			}
			ctrl.SetLogger(log)
			klog.SetLogger(log)
			// net/http logs one line per client error; clients could fill the log.
			stdlog.SetFlags(0)
			stdlog.SetOutput(&debugWriter{log: log.WithName("net/http")})
			config, err := loadConfig(flags.config)
			if err != nil {
				return err
			}
			if err := run.validate(config); err != nil {
				return err
			}
			connection, err := connect(flags.kubeconfig)
			if err != nil {
				return err
			}
			return serve(logr.NewContext(cmd.Context(), log), config, run, connection)
		},
	}
	cmd.Flags().StringVar(&flags.config, "config", "", "configuration `file` (kind TollgateConfiguration), or a folder of them; the defaults without one")
	cmd.Flags().StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig `file`; without one, the service account of the pod")
	cmd.Flags().StringSliceVar(&flags.components, "components", []string{componentWebhook, componentEvictor}, "`components` that this process runs: webhook, evictor or both")
	cmd.Flags().StringVar(&flags.evictorUser, "evictor-user", "", "`user` that the evictor is, with --components=webhook: the webhook does not judge what it writes")
	cmd.Flags().StringVar(&flags.logFormat, "log-format", "json", "`format` of the log: json or text")
	cmd.Flags().BoolVarP(&flags.verbose, "verbose", "v", false, "log what is planned, not only what was done")
	return cmd
}

// debugWriter logs each line that is written to it at V(1).
type debugWriter struct{ log logr.Logger }

// Write implements io.Writer.
func (w *debugWriter) Write(line []byte) (int, error) {
	w.log.V(1).Info(string(bytes.TrimSpace(line)))
	return len(line), nil
}

// logFlushTimeout limits how long the process waits at exit for its log.
const logFlushTimeout = 2 * time.Second

func closeLog(ctx context.Context, sink *Sink) {
	ctx, cancel := context.WithTimeout(ctx, logFlushTimeout)
	defer cancel()
	sink.Close(ctx)
}

func newLogger(flags serveFlags, to io.Writer) (logr.Logger, error) {
	level := zapcore.InfoLevel
	if flags.verbose {
		level = zapcore.DebugLevel
	}
	readableTime := func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.RFC3339NanoTimeEncoder }
	encoder := zap.JSONEncoder(readableTime)
	switch flags.logFormat {
	case "json":
	case "text":
		encoder = zap.ConsoleEncoder(readableTime)
	default:
		return logr.Logger{}, fmt.Errorf("--log-format is %q, want json or text", flags.logFormat)
	}
	return zap.New(zap.WriteTo(to), zap.Level(level), encoder, zap.StacktraceLevel(zapcore.DPanicLevel)), nil
}

func loadConfig(path string) (*configv1alpha1.TollgateConfiguration, error) {
	if path == "" {
		return configv1alpha1.Default(), nil
	}
	return configv1alpha1.LoadPath(path)
}

// connect returns the connection to the API server. It does not load the default kubeconfig: a
// forgotten flag would then run Tollgate with an administrator's rights.
func connect(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		connection, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server: %w (outside of a cluster, give --kubeconfig)", err)
		}
		return connection, nil
	}
	connection, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig: %w", err)
	}
	return connection, nil
}
