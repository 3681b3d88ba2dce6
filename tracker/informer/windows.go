package informer

import (
	"encoding/binary"
	"sync"

	"github.com/tollgate-dev/tollgate/tracker"
)

// windows keeps one copy of equal windows, of which there are about as many as there are
// policies with one.
type windows struct {
	mu    sync.Mutex
	known map[string]*tracker.Window
	key   []byte
}

func newWindows() *windows { return &windows{known: map[string]*tracker.Window{}} }

// one returns the copy that is kept of window, which may be nil.
func (w *windows) one(window *tracker.Window) *tracker.Window {
	if window == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.key = w.key[:0]
	for _, t := range *window {
		w.key = binary.AppendVarint(appendText(w.key, t.Key), t.Seconds)
		if len(w.key) > longList {
			return window
		}
	}
	if known, ok := w.known[string(w.key)]; ok {
		return known
	}
	if len(w.known) >= mostLists {
		clear(w.known)
	}
	w.known[string(w.key)] = window
	return window
}
