package binaries

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// reportInterval is how often a build that takes long says where it is.
const reportInterval = 10 * time.Second

// goBuild builds one program.
func (b Binaries) goBuild(ctx context.Context, dir, output, pkg string, flags ...string) error {
	return b.compile(ctx, dir, pkg, append([]string{"build", "-v", "-o", output}, flags...))
}

// compile runs the go command on a package. The go command names each module that it fetches
// and, as -v asks, each package that it compiles; what else it prints is why it
// failed.
func (b Binaries) compile(ctx context.Context, dir, pkg string, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...) //nolint:gosec // The arguments are this package's own.
	cmd.Dir = dir
	cmd.WaitDelay = time.Minute // what it has printed must have been read by then
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer

	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(reader)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
		// A line beyond all measure must not stop the build.
		_, _ = io.Copy(io.Discard, reader)
	}()
	failed := make(chan error, 1)
	go func() {
		failed <- errors.Join(cmd.Run(), writer.Close())
	}()

	complaints := b.follow(lines)
	if err := <-failed; err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", pkg, dir, err, complaints)
	}
	return nil
}

// follow reports on the lines of the go command, and returns those that are not
// progress.
func (b Binaries) follow(lines <-chan string) string {
	var (
		complaints            strings.Builder
		fetched, compiled     int
		ticker                = time.NewTicker(reportInterval)
		reportedAt, countedAt int
	)
	defer ticker.Stop()
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok:
				return complaints.String()
			case strings.HasPrefix(line, "go: downloading "):
				fetched++
			case isPackage(line):
				compiled++
			default:
				complaints.WriteString(line + "\n")
			}
			countedAt = fetched + compiled
		case <-ticker.C:
			if countedAt > reportedAt && b.Progress != nil {
				b.Progress(fmt.Sprintf("... %d modules fetched, %d packages compiled", fetched, compiled))
			}
			reportedAt = countedAt
		}
	}
}

// isPackage tells the import path that -v prints from a message.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " :\t")
}
