// Command conformance runs Kubernetes' own end-to-end specs on a control plane with Tollgate in the place of the built-in
// evictors and on one without Tollgate, and compares them, which is what "make conformance" is.
//
// The specs are those of k8s.io/kubernetes/test/e2e, compiled unchanged from the module of the version that the control
// plane is made of. specs.yaml says which of them run, and which are left out for what reason: nodes are played by kwok, so
// a spec that needs what a container does cannot pass.
//
// The command fails if
//
//   - a spec passes without Tollgate and does not pass with it,
//   - a spec that is not left out does not pass without Tollgate, since then it compares nothing,
//   - an entry of specs.yaml matches no spec.
//
// A spec that fails is tried once more; one that passes only then is listed as flaky.
//
// That a fault is found can be tried with an argument for Tollgate that switches its evictor off:
//
//	go run ./cmd/conformance --specs=NoExecuteTaintManager \
//		--tollgate-args=--components=webhook,--evictor-user=system:serviceaccount:tollgate-system:tollgate
package main
