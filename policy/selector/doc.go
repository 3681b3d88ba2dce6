// Package selector compiles the taint selectors of policies and holds taints and
// tolerations against them.
//
// A taint is there and a selector selects it or not (Selects). A toleration is about
// taints that may come: it comes under a selector when some taint exists that the
// selector selects and that the toleration tolerates (Could). Where this version
// cannot tell it says yes, so that nothing that a later Kubernetes understands slips
// by.
package selector
