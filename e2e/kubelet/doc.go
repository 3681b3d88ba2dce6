// Package kubelet runs pods as processes of this machine, where there is no container
// engine.
//
// It plays the kubelets of all nodes, for the pods that a label selects; kwok, which plays
// them for all other pods, leaves these alone (KwokArgs). As a kubelet it resolves the
// environment, projects ConfigMaps, Secrets and tokens of ServiceAccounts into folders,
// carries out probes, restarts what ends, writes the status of pods, and ends them within
// their grace. Everything else is Kubernetes' own: the controllers make the pods, the
// scheduler places them, and the EndpointSlices follow their readiness.
//
// A pod has an address in 10.0.0.0/8, for which podnetwork.Local says what its processes
// really listen on. What a process would find in its container is rewritten: paths of
// mounts, in arguments and in configuration, and addresses to listen on. What listens on
// loopback in its pod is not found at the address of the pod here either.
//
// What it leaves out is what needs privileges or a container: limits of resources, the
// security context, a file system of its own, NetworkPolicies. Init containers and
// lifecycle hooks other than a sleep are not carried out, and the pod says so.
//
// Its tests have a control plane of their own: kwok leaves the pods of the tests alone, and
// the API server reaches pods through a network of theirs.
package kubelet
