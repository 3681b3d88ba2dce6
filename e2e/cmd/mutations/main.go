package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
)

func main() {
	selected := flag.String("run", "", "play only the faults whose name matches this regular expression")
	parallel := flag.Int("j", 2, "how many faults are played at once")
	flag.Parse()
	os.Exit(run(*selected, *parallel))
}

func run(selected string, parallel int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	caught, err := play(ctx, selected, parallel)
	if err != nil {
		fmt.Fprintf(os.Stderr, "mutations: %v\n", err)
	}
	if err != nil || !caught {
		return 1
	}
	return 0
}

// play plays the faults of the list that are selected, and reports whether all are caught.
func play(ctx context.Context, selected string, parallel int) (bool, error) {
	pattern, err := regexp.Compile(selected)
	if err != nil {
		return false, fmt.Errorf("read -run: %w", err)
	}
	root, err := binaries.Root(".")
	if err != nil {
		return false, err
	}
	all, err := readList()
	if err != nil {
		return false, err
	}
	var mutations []mutation
	for _, m := range all {
		if pattern.MatchString(m.Name) {
			mutations = append(mutations, m)
		}
	}
	if len(mutations) == 0 {
		return false, fmt.Errorf("no fault has a name that matches %q", selected)
	}
	temporary, err := os.MkdirTemp("", "tollgate-mutations-")
	if err != nil {
		return false, fmt.Errorf("create directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	p := player{root: root, temporary: temporary, parallel: max(parallel, 1), out: os.Stdout}
	return p.play(ctx, mutations)
}
