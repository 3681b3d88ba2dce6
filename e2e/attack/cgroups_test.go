package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// processorShare is how much of the processors Tollgate has when the attacker wants them too, to 1 for each
// thread of the attacker. Attackers are on other machines, and take none of its processors.
const processorShare = 16

// cgroups are the control groups in which Tollgate has memoryLimit, as a container has, and its share of the
// processors.
type cgroups []string

// newCgroups makes them, in either version of control groups. Only root may.
func newCgroups() (cgroups, error) {
	const root, weight = "/sys/fs/cgroup", 1024 // The weight of a thread in version 1 of control groups.
	name, limit := "tollgate-attack-"+strconv.Itoa(os.Getpid()), strconv.Itoa(memoryLimit)
	memory, processors := filepath.Join(root, "memory", name), filepath.Join(root, "cpu", name)
	groups := cgroups{memory, processors}
	files := map[string]string{
		filepath.Join(memory, "memory.limit_in_bytes"): limit,
		filepath.Join(processors, "cpu.shares"):        strconv.Itoa(processorShare * weight),
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		one := filepath.Join(root, name)
		// In version 2 the other processes are a group of the weight 100 in sum.
		groups, files = cgroups{one}, map[string]string{
			filepath.Join(one, "memory.max"): limit,
			filepath.Join(one, "cpu.weight"): strconv.Itoa(processorShare * 100),
		}
	}
	for _, folder := range groups {
		if err := os.Mkdir(folder, 0o750); err != nil {
			return nil, fmt.Errorf("make a control group, which asks for root: %w", err)
		}
	}
	for file, text := range files {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("limit a control group: %w", err), groups.remove())
		}
	}
	return groups, nil
}

// remove removes them, when no process is left in them.
func (g cgroups) remove() error {
	var errs []error
	for _, folder := range g {
		errs = append(errs, os.Remove(folder))
	}
	return errors.Join(errs...)
}
