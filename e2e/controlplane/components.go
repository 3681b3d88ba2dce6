package controlplane

import (
	"path/filepath"
	"strconv"

	"github.com/tollgate-dev/tollgate/e2e/process"
)

// spec says how the named component is run.
func (s *state) spec(dir, name string) process.Spec {
	arguments := map[string]func(string) []string{
		Etcd:              s.etcd,
		APIServer:         s.apiServer,
		ControllerManager: s.controllerManager,
		Scheduler:         s.scheduler,
		Kwok:              s.kwok,
	}
	path, args := s.Program, append([]string{name}, arguments[name](dir)...)
	if name == Scheduler && s.Scheduler.Program != "" {
		path, args = s.Scheduler.Program, args[1:]
	}
	return process.Spec{
		Name: name,
		Path: path,
		Args: append(args, s.ExtraArgs[name]...),
		// What the user keeps in his home directory (kwok reads its own there) is
		// not for this control plane.
		Env:      []string{"HOME=" + dir, "KWOK_WORKDIR=" + filepath.Join(dir, "kwok")},
		Log:      logOf(dir, name),
		Detached: s.Detached,
	}
}

func logOf(dir, name string) string {
	return filepath.Join(dir, "logs", name+".log")
}

func (s *state) etcd(dir string) []string {
	pki := pkiIn(dir)
	client, peer := httpsURL(s.Ports.Etcd), httpsURL(s.Ports.EtcdPeer)
	return []string{
		"--name=e2e",
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=e2e=" + peer,
		"--cert-file=" + pki.cert,
		"--key-file=" + pki.key,
		"--trusted-ca-file=" + pki.ca,
		"--client-cert-auth",
		"--peer-cert-file=" + pki.cert,
		"--peer-key-file=" + pki.key,
		"--peer-trusted-ca-file=" + pki.ca,
		"--peer-client-cert-auth",
		// The data is thrown away with the control plane; only the power
		// failing, not a kill, loses what is not synced.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func (s *state) apiServer(dir string) []string {
	pki := pkiIn(dir)
	args := []string{
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + strconv.Itoa(s.Ports.APIServer),
		// Endpoints on loopback are invalid, so the Service named kubernetes has none.
		"--endpoint-reconciler-type=none",
		"--etcd-servers=" + httpsURL(s.Ports.Etcd),
		"--etcd-cafile=" + pki.ca,
		"--etcd-certfile=" + pki.cert,
		"--etcd-keyfile=" + pki.key,
		"--tls-cert-file=" + pki.cert,
		"--tls-private-key-file=" + pki.key,
		"--client-ca-file=" + pki.ca,
		"--requestheader-client-ca-file=" + pki.proxyCA,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki.serviceAccountKey,
		"--service-account-signing-key-file=" + pki.serviceAccountKey,
		"--service-cluster-ip-range=" + serviceRange,
		"--allow-privileged",
	}
	if s.PodNetwork != "" {
		args = append(args, "--egress-selector-config-file="+egressConfigIn(dir))
	}
	return args
}

func (s *state) controllerManager(dir string) []string {
	pki := pkiIn(dir)
	args := append(s.served(dir, ControllerManager, s.Ports.ControllerManager),
		"--root-ca-file="+pki.ca,
		"--service-account-private-key-file="+pki.serviceAccountKey,
		"--cluster-signing-cert-file="+pki.ca,
		"--cluster-signing-key-file="+pki.caKey,
		// The default is outside the directory, and is created.
		"--flex-volume-plugin-dir="+filepath.Join(dir, "flexvolume"),
		// As clusters are run: each controller is a service account of its own.
		"--use-service-account-credentials",
	)
	if s.Eviction == EvictionTollgate {
		args = append(args, "--controllers=*,-taint-eviction-controller,-device-taint-eviction-controller")
	}
	return args
}

func (s *state) scheduler(dir string) []string {
	args := s.served(dir, Scheduler, s.Ports.Scheduler)
	if s.Scheduler.Configured {
		args = append(args, "--config="+schedulerConfigIn(dir))
	}
	return args
}

// served are the arguments that the two components beside the API server share.
// They are alone, and one that is started again shall not wait for its lease.
func (s *state) served(dir, name string, port int) []string {
	pki, kubeconfig := pkiIn(dir), kubeconfigOf(dir, name)
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + pki.cert,
		"--tls-private-key-file=" + pki.key,
		"--leader-elect=false",
	}
}

func (s *state) kwok(dir string) []string {
	return []string{
		"--kubeconfig=" + kubeconfigOf(dir, Kwok),
		"--config=" + kwokConfigIn(dir),
		"--manage-all-nodes",
		// An address for each pod, and one, of those set aside for documentation,
		// that all nodes share.
		"--cidr=10.128.0.1/12",
		"--node-ip=192.0.2.1",
		// What a kubelet's lease lasts.
		"--node-lease-duration-seconds=40",
	}
}
