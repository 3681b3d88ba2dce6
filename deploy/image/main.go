package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // The first context there is.
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1) //nolint:forbidigo // This is main.
	}
}

// run builds what the arguments say, and prints the version and the digest of the image.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	root := flags.String("root", "../..", "folder of the repository")
	output := flags.String("output", "", "folder to write the OCI image layout to; what is there is replaced")
	sboms := flags.String("sbom", "", "folder to write an SPDX document per platform to")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "what to build for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *output == "" || *sboms == "" {
		return fmt.Errorf("--output %q and --sbom %q must both be given", *output, *sboms)
	}
	built, err := build(ctx, *root, strings.Split(*platforms, ","))
	if err != nil {
		return err
	}
	digest, err := write(*output, built)
	if err != nil {
		return err
	}
	if err := writeSBOMs(*sboms, built); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s@%s\n", built[0].version(), digest)
	return err
}
