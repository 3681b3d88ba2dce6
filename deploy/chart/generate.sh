#!/usr/bin/env bash
# Renders what the chart is made of from the manifests. $KUSTOMIZE is the command.
set -euo pipefail
cd "$(dirname "$0")/.."
files=chart/tollgate/files
rm -rf "$files"
mkdir -p "$files/self-signed" "$files/cert-manager" "$files/monitoring" "$files/crds" "$files/config"

$KUSTOMIZE build overlays/self-signed -o "$files/self-signed"
$KUSTOMIZE build overlays/issued-by-cert-manager -o "$files/cert-manager"
# What monitoring adds. What it changes is for the templates.
all=$(mktemp -d -p .)
trap 'rm -r "$all"' EXIT
cat > "$all/kustomization.yaml" <<END
kind: Kustomization
resources: [../base]
components: [../monitoring, ../monitoring/podmonitor]
END
$KUSTOMIZE build "$all" -o "$files/monitoring"
rm "$files"/monitoring/*_configmap_tollgate-config-*
for file in "$files"/self-signed/*; do rm -f "$files/monitoring/$(basename "$file")"; done

mv "$files"/self-signed/*_customresourcedefinition_* "$files/crds/"
rm "$files"/cert-manager/*_customresourcedefinition_*
for folder in self-signed cert-manager; do
  # The namespace is the release's. The hash in the name of the ConfigMap is of no use.
  rm "$files/$folder"/*_namespace_*
  mv "$files/$folder"/*_configmap_tollgate-config-*.yaml "$files/$folder/configmap.yaml"
  sed -i 's/\btollgate-config-[0-9a-z]*\b/tollgate-config/' "$files/$folder/configmap.yaml" "$files/$folder"/*_deployment_tollgate.yaml
done
for mode in window observe; do cp "components/$mode/mode.yaml" "$files/config/$mode.yaml"; done
cp monitoring/endpoint/metrics.yaml "$files/config/metrics.yaml"
cp components/callers/callers.yaml "$files/config/callers.yaml"
