package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// root is the folder of the repository.
const root = "../.."

// platforms are those that the tests build: the one they run on, or what the variable
// says. Each takes minutes where nothing is compiled yet.
func platforms() []string {
	if asked := os.Getenv("TOLLGATE_IMAGE_PLATFORMS"); asked != "" {
		return strings.Split(asked, ",")
	}
	return []string{"linux/" + runtime.GOARCH}
}

// shared is the image that the tests look at. Nobody writes to it after TestMain.
var shared struct {
	dir, digest string
	programs    []*program
}

func TestMain(m *testing.M) {
	// TestMain has no *testing.T to take a context from.
	code, err := tests(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func tests(ctx context.Context, m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tollgate-image-test-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// The user that the image is for looks into it.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	shared.dir = filepath.Join(dir, "image")
	if shared.programs, err = build(ctx, root, platforms()); err != nil {
		return 1, err
	}
	if shared.digest, err = write(shared.dir, shared.programs); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
