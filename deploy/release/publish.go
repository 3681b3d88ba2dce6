package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// publishAll pushes the image and the chart, and signs them, the bills of materials and the checksums.
func (r *release) publishAll(ctx context.Context) error {
	image, err := r.pushImage(ctx)
	if err != nil {
		return err
	}
	chart, err := r.pushChart(ctx)
	if err != nil {
		return err
	}
	for _, reference := range []string{image, chart} {
		r.step("signing %s", reference)
		if err := r.sign(ctx, "sign", reference); err != nil {
			return err
		}
	}
	if err := r.attest(ctx); err != nil {
		return err
	}
	r.step("signing %s", checksums)
	_, err = r.command(ctx, r.cosign, append(r.identity("sign-blob"), "--bundle", r.path(checksums+".sigstore.json"), r.path(checksums))...)
	return err
}

// loopback tells whether the registry is on this machine, where it has no certificate.
func (r *release) loopback() bool {
	host, _, _ := strings.Cut(r.registry, "/")
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// index returns the image that was built.
func (r *release) index() (v1.ImageIndex, error) {
	written, err := layout.ImageIndexFromPath(r.path("image"))
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	digest, err := v1.NewHash(r.digest)
	if err != nil {
		return nil, fmt.Errorf("read digest of the image: %w", err)
	}
	index, err := written.ImageIndex(digest)
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	return index, nil
}

func (r *release) pushImage(ctx context.Context) (string, error) {
	r.step("pushing %s:%s", r.image(), r.version)
	tag, err := name.NewTag(r.image() + ":" + r.version)
	if err != nil {
		return "", fmt.Errorf("--registry: %w", err)
	}
	index, err := r.index()
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", fmt.Errorf("push image: %w", err)
	}
	return r.image() + "@" + r.digest, nil
}

// pushed is how Helm says the digest of what it pushed.
var pushed = regexp.MustCompile(`(?m)^Digest: (sha256:[0-9a-f]{64})$`)

func (r *release) pushChart(ctx context.Context) (string, error) {
	r.step("pushing oci://%s/charts/tollgate", r.registry)
	args := []string{"push", r.path(r.chart()), "oci://" + r.registry + "/charts"}
	if r.loopback() {
		args = append(args, "--plain-http")
	}
	fields := append(strings.Fields(r.helm), args...)
	// Helm writes the digest to its log.
	out, err := exec.CommandContext(ctx, fields[0], fields[1:]...).CombinedOutput() //nolint:gosec // The programs are those of who releases.
	if err != nil {
		return "", fmt.Errorf("run %s: %w\n%s", strings.Join(fields, " "), err, out)
	}
	found := pushed.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("helm push does not say the digest of the chart: %s", out)
	}
	return r.registry + "/charts/tollgate@" + string(found[1]), nil
}

// identity returns the arguments of a cosign command that signs. With a private key, cosign writes
// no entry to a transparency log; without one, it gets a certificate for the identity of the workflow.
func (r *release) identity(verb string) []string {
	args := []string{verb, "--yes"}
	if r.key != "" {
		args = append(args, "--key", r.key, "--use-signing-config=false", "--tlog-upload=false")
	}
	return args
}

func (r *release) sign(ctx context.Context, verb, reference string, args ...string) error {
	all := append(r.identity(verb), args...)
	if r.loopback() {
		all = append(all, "--allow-http-registry")
	}
	_, err := r.command(ctx, r.cosign, append(all, reference)...)
	return err
}

// attest attaches its bill of materials to the image of each platform.
func (r *release) attest(ctx context.Context) error {
	index, err := r.index()
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	for _, image := range manifest.Manifests {
		if image.Platform == nil {
			return errors.New("an image of the index has no platform")
		}
		document := r.path("tollgate-" + image.Platform.OS + "-" + image.Platform.Architecture + ".spdx.json")
		if _, err := os.Stat(document); err != nil {
			return fmt.Errorf("find bill of materials: %w", err)
		}
		r.step("attesting the bill of materials of %s", image.Platform)
		if err := r.sign(ctx, "attest", r.image()+"@"+image.Digest.String(), "--type", "spdxjson", "--predicate", document); err != nil {
			return err
		}
	}
	return nil
}
