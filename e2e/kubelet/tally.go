package kubelet

// tally counts the answers to a probe, as a kubelet does: what a container is said to be
// changes after enough equal answers in a row.
type tally struct {
	success, failure int32 // how many are enough
	last             bool
	run              int32
}

// add counts an answer. Enough is true when the container is to be said to be what the
// answer says.
func (t *tally) add(ok bool) (enough bool) {
	if t.last != ok {
		t.last, t.run = ok, 0
	}
	t.run++
	if ok {
		return t.run >= t.success
	}
	return t.run >= t.failure
}
