#!/usr/bin/env bash
# Installs a release of Tollgate from what was published of it, in each of the ways that the
# documentation names, and each time writes a policy, quarantines a node, and uninstalls it. It works
# in the folder it is started in, which has to be empty, and leaves the cluster as it was.
#
#   VERSION     the release, such as v0.1.0
#   REGISTRY    the registry of the image and the chart, such as ghcr.io/tollgate-dev
#   DOWNLOADS   the URL of the files of releases, without the version
#   NODE        a node without pods that taints would evict; the script cordons and taints it
#   PUBLIC_KEY  the file of cosign's public key; without it the signatures have to be those of the
#               workflow that releases Tollgate
#
# Arguments are the steps to run. Needed are kubectl, helm, cosign, curl, sha256sum and tar, and
# Kubernetes' own evictors have to be switched off.
set -euo pipefail
: "${VERSION:?}" "${REGISTRY:?}" "${DOWNLOADS:?}" "${NODE:?}"
system=tollgate-system
plain=() http=()
case $REGISTRY in 127.0.0.1:* | localhost:*) plain=(--plain-http) http=(--allow-http-registry) ;; esac
if test -n "${PUBLIC_KEY:-}"; then
  signer=(--key "$PUBLIC_KEY" --insecure-ignore-tlog=true)
else
  signer=(--certificate-oidc-issuer https://token.actions.githubusercontent.com --certificate-identity
    "https://github.com/tollgate-dev/tollgate/.github/workflows/release.yaml@refs/tags/$VERSION")
fi
export PATH=$PWD/plugins:$PATH

say() { printf '==> %s (after %d s)\n' "$*" "$SECONDS"; }

# eventually FUNCTION runs a function until it succeeds, for two minutes.
eventually() {
  local deadline=$((SECONDS + 120))
  until "$@"; do
    if ((SECONDS > deadline)); then
      echo "not within two minutes: $*" >&2
      return 1
    fi
    sleep 0.5
  done
}

# prints TEXT COMMAND... runs a command, which has to print the text.
prints() {
  local text=$1 out
  shift
  out=$("$@" 2>&1) || true
  if [[ $out != *"$text"* ]]; then
    echo "$out" >last-output
    return 1
  fi
}

verify() {
  say "downloading and verifying the files of $VERSION"
  curl -fsSO "$DOWNLOADS/$VERSION/checksums.txt" -O "$DOWNLOADS/$VERSION/checksums.txt.sigstore.json"
  cosign verify-blob "${signer[@]}" --bundle checksums.txt.sigstore.json checksums.txt
  local file
  while read -r _ file; do curl -fsSO "$DOWNLOADS/$VERSION/$file"; done <checksums.txt
  sha256sum --check --strict --quiet checksums.txt
  say "verifying the signatures of the image and the chart"
  cosign verify "${signer[@]}" "${http[@]}" "$REGISTRY/tollgate:$VERSION" >image-signature.json
  cosign verify "${signer[@]}" "${http[@]}" "$REGISTRY/charts/tollgate:${VERSION#v}" >chart-signature.json
}

# plugin installs the plugin as krew does: the archive that the manifest names for this platform, if it has the
# checksum that the manifest says.
plugin() {
  say "installing the plugin of kubectl"
  local os arch uri sum
  os=$(uname -s | tr '[:upper:]' '[:lower:]')
  arch=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
  uri=$(sed -n "s|^ *uri: \(.*-$os-$arch\.tar\.gz\)$|\1|p" krew.yaml)
  sum=$(grep -B9 -F "uri: $uri" krew.yaml | sed -n 's/^ *sha256: //p' | tail -n 1)
  mkdir -p plugins
  curl -fsS -o plugin.tar.gz "$uri"
  echo "$sum  plugin.tar.gz" | sha256sum --check --strict --quiet
  tar -xzf plugin.tar.gz -C plugins kubectl-tollgate
  prints "$VERSION" kubectl tollgate --version
}

# tolerating creates a pod that Tollgate would be asked about, and does not keep it.
tolerating() {
  kubectl run thief --image=registry.k8s.io/pause:3.10 --dry-run=server \
    --overrides='{"spec":{"tolerations":[{"key":"from-artifacts.example.com/a","operator":"Exists"}]}}'
}

refused() {
  prints "TolerationPolicy/from-artifacts" tolerating
}

write_policy() {
  kubectl apply -f - 2>last-output <<'POLICY'
apiVersion: tollgate.dev/v1alpha1
kind: TolerationPolicy
metadata: {name: from-artifacts}
spec:
  taints: [{key: from-artifacts.example.com/*}]
  validationActions: [Deny]
POLICY
}

first_policy() {
  say "a first policy"
  eventually write_policy
  eventually refused
}

gone() { ! kubectl get pod patient >last-output 2>&1; }

first_quarantine() {
  say "a first quarantine"
  kubectl run patient --image=registry.k8s.io/pause:3.10 --overrides="{\"spec\":{\"nodeName\":\"$NODE\"}}"
  kubectl wait --for=condition=Ready pod/patient --timeout=2m
  eventually prints "evicts 1 pod in 1 namespace" kubectl tollgate preview node "$NODE" from-artifacts.example.com/broken=:NoExecute
  eventually prints "evicts 1 pod in 1 namespace" kubectl taint node "$NODE" from-artifacts.example.com/broken=:NoExecute --dry-run=server
  kubectl taint node "$NODE" from-artifacts.example.com/broken=:NoExecute
  eventually gone
  prints "no pod has to leave" kubectl tollgate evictions
  kubectl taint node "$NODE" from-artifacts.example.com/broken-
}

# ready waits until Tollgate runs, and checks that it is the release.
ready() {
  kubectl -n $system rollout status deployment/tollgate --timeout=2m
  prints "$REGISTRY/tollgate" kubectl -n $system get deployment tollgate -o 'jsonpath={.spec.template.spec.containers[*].image}'
}

nothing_left() {
  test -z "$(kubectl get customresourcedefinitions,clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,flowschemas \
    -l app.kubernetes.io/name=tollgate -o name)" && ! kubectl get namespace $system >last-output 2>&1
}

# not_pulled installs an image that is not in the registry. Nothing in the cluster changes by that.
not_pulled() {
  say "installing an image that cannot be pulled"
  sed "s|image: $REGISTRY/tollgate:.*|image: $REGISTRY/missing:$VERSION|" install.yaml >missing.yaml
  kubectl apply -f missing.yaml
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    tolerating
    sleep 0.5
  done
  test "$(kubectl -n $system get deployment tollgate -o 'jsonpath={.status.readyReplicas}')" = ""
  test -z "$(kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -l app.kubernetes.io/name=tollgate -o 'jsonpath={.items[*].webhooks[*].name}')"
  kubectl delete -f missing.yaml --ignore-not-found
  eventually nothing_left
}

by_helm() {
  say "installing by Helm"
  helm install tollgate "oci://$REGISTRY/charts/tollgate" --version "${VERSION#v}" "${plain[@]}" -n $system --create-namespace --wait --timeout 2m \
    --set "image.repository=$REGISTRY/tollgate"
  ready
  first_policy
  first_quarantine
  say "uninstalling by Helm"
  helm uninstall tollgate -n $system --wait
  kubectl delete customresourcedefinitions -l app.kubernetes.io/name=tollgate
  kubectl delete namespace $system
  eventually nothing_left
}

by_kustomize() {
  say "installing by kustomize"
  tar -xzf "tollgate-$VERSION-manifests.tar.gz"
  mkdir -p site
  cat >site/kustomization.yaml <<SITE
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../tollgate-$VERSION/deploy/overlays/self-signed]
images:
  - {name: ghcr.io/tollgate-dev/tollgate, newName: $REGISTRY/tollgate, newTag: $VERSION}
SITE
  kubectl apply -k site
  ready
  first_policy
  first_quarantine
  say "uninstalling by kustomize"
  kubectl delete -k site -l app.kubernetes.io/component=webhooks
  kubectl delete -k site --ignore-not-found
  eventually nothing_left
}

by_manifest() {
  say "installing by install.yaml"
  kubectl apply -f install.yaml
  ready
  first_policy
  first_quarantine
  say "uninstalling by install.yaml"
  kubectl delete -f install.yaml -l app.kubernetes.io/component=webhooks
  kubectl delete -f install.yaml --ignore-not-found
  eventually nothing_left
}

for step in "${@:-all}"; do
  if test "$step" = all; then
    kubectl cordon "$NODE"
    verify
    plugin
    not_pulled
    by_helm
    by_kustomize
    by_manifest
    kubectl uncordon "$NODE"
  else
    "$step"
  fi
done
say "done"
