package faultproxy

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Match selects requests. A list that is empty selects all.
type Match struct {
	// Verbs are those of RBAC: get, list, watch, create, update, patch, delete,
	// deletecollection. A list that is streamed by a watch is a watch.
	Verbs []string
	// Resources are in the plural, such as "pods", with the subresource, if there
	// is one, such as "pods/status".
	Resources []string
	// Namespaces and Names are those in the path of the request.
	Namespaces, Names []string
}

func (m Match) selects(info *request.RequestInfo) bool {
	return has(m.Verbs, info.Verb) && has(m.Resources, resourceOf(info)) &&
		has(m.Namespaces, info.Namespace) && has(m.Names, info.Name)
}

func has(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

func resourceOf(info *request.RequestInfo) string {
	if info.Subresource == "" {
		return info.Resource
	}
	return info.Resource + "/" + info.Subresource
}

// Loss is what of an exchange is lost.
type Loss int

// The losses.
const (
	// LoseNothing lets the exchange be.
	LoseNothing Loss = iota
	// LoseRequest keeps the request from the API server: it is not carried out.
	LoseRequest
	// LoseAnswer keeps the answer from the client: the request is carried out.
	LoseAnswer
)

// Fault is what happens to requests. The zero Fault hits every request and does
// nothing to it.
type Fault struct {
	// Match selects the requests.
	Match Match
	// Rate is the share of them that is hit; zero is all.
	Rate float64
	// Times is how many are hit; zero is no bound.
	Times int
	// Delay passes before a request is forwarded, DelayAnswer before an answer is.
	Delay, DelayAnswer time.Duration
	// Lose is what of the exchange is lost.
	Lose Loss
	// Silent leaves a client that has lost something waiting until it gives up, or the
	// fault ends. Otherwise it hears at once that the stream was reset.
	Silent bool
	// Status is the HTTP status that the client is answered with instead of
	// forwarding its request; zero forwards it.
	Status int
	// RetryAfter goes with Status, in whole seconds; zero is none.
	RetryAfter time.Duration
	// Truncate breaks off the body of an answer after so many bytes; zero does not.
	Truncate int64

	// over is closed when the fault that loses something has ended.
	over <-chan struct{}
}

// injected is a fault that is in force.
type injected struct {
	Fault

	left int
	end  func() // closes over
}

// Inject puts a fault in force until end is called or Clear is. Of several that hit
// one request the delays add up, and the earliest with a loss, a status or a cut
// decides about those.
func (p *Proxy) Inject(fault Fault) (end func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	over := make(chan struct{})
	fault.over = over
	in := &injected{Fault: fault, left: fault.Times, end: sync.OnceFunc(func() { close(over) })}
	p.faults = append(p.faults, in)
	return func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		in.end()
		p.faults = slices.DeleteFunc(p.faults, func(other *injected) bool { return other == in })
	}
}

// Clear ends all faults and thaws all watches. What a fault delays is not called back.
func (p *Proxy) Clear() {
	p.mutex.Lock()
	for _, in := range p.faults {
		in.end()
	}
	p.faults = nil
	p.mutex.Unlock()
	p.gates.clear()
}

// hits returns the sum of the faults that hit a request.
func (p *Proxy) hits(info *request.RequestInfo) Fault {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	var sum Fault
	for _, in := range p.faults {
		if in.Match.selects(info) && p.strikes(in) {
			sum = sum.and(in.Fault)
		}
	}
	return sum
}

// strikes decides by chance and by what is left. The caller holds the mutex.
func (p *Proxy) strikes(in *injected) bool {
	if in.Times > 0 && in.left == 0 {
		return false
	}
	if in.Rate > 0 && p.random.Float64() >= in.Rate {
		return false
	}
	in.left--
	return true
}

func (f Fault) and(other Fault) Fault {
	f.Delay += other.Delay
	f.DelayAnswer += other.DelayAnswer
	if f.Lose == LoseNothing {
		f.Lose, f.Silent, f.over = other.Lose, other.Silent, other.over
	}
	if f.Status == 0 {
		f.Status, f.RetryAfter = other.Status, other.RetryAfter
	}
	if f.Truncate == 0 {
		f.Truncate = other.Truncate
	}
	return f
}
