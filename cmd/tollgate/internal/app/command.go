package app

import (
	"bytes"
	"context"
	"errors"
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
	root := &cobra.Command{
		Use:   "tollgate",
		Short: "Enforce policies about taints and tolerations, and evict pods from tainted nodes and devices",
		Long: `Tollgate enforces policies about the taints and tolerations of a Kubernetes cluster, adds
the time to node taints, and evicts pods from nodes and devices with NoExecute taints.

This program is the server. The command line is another program, kubectl-tollgate, a
plugin of kubectl.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		// A server needs no shell completion.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	settings.AddVersion(root)
	root.AddCommand(newServeCommand())
	return root
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
		Long: `Run the admission webhook on every replica, and the evictor on the leader. With
--components, a process runs only one of them, so that each can have its own service
account. In a cluster, no flag is required. Outside of a cluster, set a kubeconfig file and,
in the configuration file, the URL at which the API server reaches the webhook.`,
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
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), logFlushTimeout)
				defer cancel()
				sink.Close(ctx)
			}()
			log, err := newLogger(flags, sink)
			if err != nil {
				return err
			}
			ctrl.SetLogger(log)
			klog.SetLogger(log)
			// net/http logs one line per client error; clients could fill the log.
			stdlog.SetFlags(0)
			stdlog.SetOutput(&debugWriter{log: log.WithName("net/http")})
			config := configv1alpha1.Default()
			if flags.config != "" {
				if config, err = configv1alpha1.LoadPath(flags.config); err != nil {
					return err
				}
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
	cmd.Flags().StringVar(&flags.config, "config", "", "configuration `file` (kind TollgateConfiguration), or a folder of such files; without it, all settings have their defaults")
	cmd.Flags().StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig `file`; without one, the service account of the pod")
	cmd.Flags().StringSliceVar(&flags.components, "components", []string{componentWebhook, componentEvictor}, "`components` that this process runs: webhook, evictor or both")
	cmd.Flags().StringVar(&flags.evictorUser, "evictor-user", "", "`user` name of the evictor, with --components=webhook; the webhook does not judge its writes")
	cmd.Flags().StringVar(&flags.logFormat, "log-format", "json", "`format` of the log: json or text")
	cmd.Flags().BoolVarP(&flags.verbose, "verbose", "v", false, "log planned actions too, not only completed ones")
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

// The components of tollgate serve. With the webhook, a process serves admission and keeps
// its certificates. With the evictor, it takes part in the leader election; the leader evicts
// pods and runs the controllers, which write nodes, rules and the status of all objects of
// Tollgate.
const (
	componentWebhook = "webhook"
	componentEvictor = "evictor"
)

// components are the components that a process runs.
type components struct {
	webhook, evictor bool
	// evictorUser is the user of an evictor in another process; empty where it is in this one.
	evictorUser string
}

// parseComponents reads the values of --components and --evictor-user.
func parseComponents(names []string, evictorUser string) (components, error) {
	c := components{evictorUser: evictorUser}
	for _, name := range names {
		switch name {
		case componentWebhook:
			c.webhook = true
		case componentEvictor:
			c.evictor = true
		default:
			return components{}, fmt.Errorf("--components has %q, want %s, %s or both, separated by a comma", name, componentWebhook, componentEvictor)
		}
	}
	switch {
	case !c.webhook && !c.evictor:
		return components{}, fmt.Errorf("--components is empty, want %s, %s or both, separated by a comma", componentWebhook, componentEvictor)
	case c.webhook && !c.evictor && evictorUser == "":
		return components{}, errors.New("--evictor-user is empty, want the user name of the evictor, " +
			"such as system:serviceaccount:tollgate-system:tollgate: the webhook admits what the evictor writes")
	case c.evictor && evictorUser != "":
		return components{}, fmt.Errorf("--evictor-user is %q, want it with --components=%s alone", evictorUser, componentWebhook)
	}
	return c, nil
}

// validate returns an error where metrics are to be served by HTTPS without a certificate.
func (c components) validate(config *configv1alpha1.TollgateConfiguration) error {
	if c.webhook || !config.Metrics.Asked() || config.Metrics.CertificateDirectory != "" {
		return nil
	}
	return fmt.Errorf("metrics.certificateDirectory is empty, want the directory of tls.crt and tls.key: metrics at %s are served by HTTPS, "+
		"and with --components=%s there is no certificate of the webhooks (other ways: an address of the loopback interface, or metrics.authorization None)",
		config.Metrics.BindAddress, componentEvictor)
}

// selves returns the users whose writes the webhook does not judge, if self is the user of
// this process.
func (c components) selves(self string) []string {
	if c.evictor {
		return []string{self}
	}
	return []string{self, c.evictorUser}
}

// String implements fmt.Stringer.
func (c components) String() string {
	switch {
	case !c.evictor:
		return componentWebhook
	case !c.webhook:
		return componentEvictor
	}
	return componentWebhook + "," + componentEvictor
}
