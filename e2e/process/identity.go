package process

import (
	"fmt"
	"os"
	"syscall"
)

// Identity tells one process from every other on the machine, those that get
// its id later included.
type Identity struct {
	PID int `json:"pid"`
	// Started is when the process started, in the notation of the operating
	// system. It is only ever compared.
	Started string `json:"started"`
}

func (i Identity) alive() bool {
	now, err := identify(i.PID)
	return err == nil && now == i
}

// signal sends a signal to the process. The handle is taken before the
// identity is compared: where the system has process handles, as Linux, the id
// cannot change hands in between.
func (i Identity) signal(signal syscall.Signal) error {
	handle, err := os.FindProcess(i.PID)
	if err != nil {
		return fmt.Errorf("find process %d: %w", i.PID, err)
	}
	defer func() { _ = handle.Release() }()
	if !i.alive() {
		return os.ErrProcessDone
	}
	return handle.Signal(signal)
}
