package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // The first context there is.
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:forbidigo // This is main.
	}
}

// options are what the command is told.
type options struct {
	root, version, output string
	// registry is where the image and the chart are published: REGISTRY/tollgate and REGISTRY/charts/tollgate.
	registry string
	// publish says whether they are. key is the file of cosign's private key; without one cosign signs
	// as the identity that the build service vouches for.
	publish bool
	key     string
	// downloads is where the archives of the plugin can be downloaded from, followed by the version.
	downloads string
	// helm, kustomize and cosign are commands, with the arguments that come first.
	helm, kustomize, cosign string
	images, plugins         []string
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "../..", "folder of the repository")
	flags.StringVar(&o.version, "version", "", "version to release, such as v0.1.0; the commit has to have this tag")
	flags.StringVar(&o.output, "output", "", "folder to write to; what is there is replaced")
	flags.StringVar(&o.registry, "registry", "ghcr.io/tollgate-dev", "where the image and the chart are published")
	flags.BoolVar(&o.publish, "publish", false, "push the image and the chart to the registry, and sign them and the checksums")
	flags.StringVar(&o.key, "key", "", "file of cosign's private key, whose password is in COSIGN_PASSWORD; without it cosign signs without a key")
	flags.StringVar(&o.downloads, "downloads", "https://github.com/tollgate-dev/tollgate/releases/download", "where the files of a release are downloaded from, without the version")
	flags.StringVar(&o.helm, "helm", "helm", "command to run Helm")
	flags.StringVar(&o.kustomize, "kustomize", "kustomize", "command to run kustomize")
	flags.StringVar(&o.cosign, "cosign", "cosign", "command to run cosign")
	images := flags.String("image-platforms", "linux/amd64,linux/arm64", "what the image is built for")
	plugins := flags.String("plugin-platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64",
		"what the plugin of kubectl is built for")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.images, o.plugins = strings.Split(*images, ","), strings.Split(*plugins, ",")
	if o.output == "" {
		return o, errors.New("--output is empty: name the folder to write to, such as dist")
	}
	var err error
	for _, path := range []*string{&o.root, &o.output} {
		if *path, err = filepath.Abs(*path); err != nil {
			return o, fmt.Errorf("find folder %s: %w", *path, err)
		}
	}
	if inside, err := filepath.Rel(o.output, o.root); err == nil && inside != ".." && !strings.HasPrefix(inside, ".."+string(filepath.Separator)) {
		return o, fmt.Errorf("--output %s is replaced, and holds the repository %s: name another folder, such as dist", o.output, o.root)
	}
	return o, nil
}

// release is a release that is being built.
type release struct {
	options
	out io.Writer
	// commit is that of the tag, and committed its time.
	commit    string
	committed time.Time
	// notes is the section of the version in CHANGELOG.md.
	notes string
	// digest is that of the image.
	digest string
	// assets are the files of the release, by their names in the folder.
	assets []string
	// work is a folder in that of the release for what is needed while it is built. A kustomization
	// refers to others by relative paths, so it has to be there.
	work string
}

// step says what is done next.
func (r *release) step(format string, values ...any) {
	_, _ = fmt.Fprintf(r.out, "==> "+format+"\n", values...)
}

// image is the image without tag or digest.
func (r *release) image() string { return r.registry + "/tollgate" }

// path is where a file of the release is written.
func (r *release) path(name string) string { return filepath.Join(r.output, name) }

// run builds the release that the arguments say.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	r := &release{options: o, out: out}
	r.step("checking that %s can be released", r.version)
	if err := r.check(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(r.output); err != nil {
		return fmt.Errorf("remove what was built before: %w", err)
	}
	if err := os.MkdirAll(r.output, 0o755); err != nil { //nolint:gosec // It is no secret.
		return fmt.Errorf("create folder: %w", err)
	}
	if r.work, err = os.MkdirTemp(r.output, "work-"); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	steps := []func(context.Context) error{
		r.buildImage, r.buildPlugins, r.buildManifests, r.archiveManifests, r.buildChart, r.writeNotes, r.writeChecksums,
	}
	if r.publish {
		steps = append(steps, r.publishAll)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	r.step("%s is in %s: %s@%s", r.version, r.output, r.image(), r.digest)
	return nil
}
