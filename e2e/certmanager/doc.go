// Package certmanager tests Tollgate with certificates of the real cert-manager.
//
// deploy/components/cert-manager is applied, cert-manager's controllers and its cainjector
// run beside the cluster under ServiceAccounts of their own, and the Secret is put into
// files by the code by which a kubelet does that. cert-manager's webhook, which judges
// its own objects, is not there.
//
// Its control plane is its own: the certificate of the webhooks is of cert-manager.
package certmanager
