#!/usr/bin/env bash
# Renders what the chart is made of from the manifests. $KUSTOMIZE is the command.
set -euo pipefail
cd "$(dirname "$0")/.."
files=chart/tollgate/files
rm -rf "$files"
mkdir -p "$files/crds" "$files/config"
all=$(mktemp -d -p .)
trap 'rm -r "$all"' EXIT

# render FOLDER KUSTOMIZATION renders a kustomization of this folder into a folder of files.
# The namespace is the release's. The hash in the name of the ConfigMap is of no use.
render() {
  local folder=$files/$1
  mkdir -p "$folder"
  echo "$2" > "$all/kustomization.yaml"
  $KUSTOMIZE build "$all" -o "$folder"
  rm "$folder"/*_namespace_*
  mv "$folder"/*_configmap_tollgate-config-*.yaml "$folder/configmap.yaml"
  sed -i 's/\btollgate-config-[0-9a-z]*\b/tollgate-config/' "$folder/configmap.yaml" "$folder"/*_deployment_*
}

render self-signed '{resources: [../overlays/self-signed]}'
render cert-manager '{resources: [../overlays/issued-by-cert-manager]}'
render monitoring '{resources: [../base], components: [../monitoring, ../monitoring/podmonitor]}'
# What differs where the components run apart.
render apart/self-signed '{resources: [../overlays/self-signed], components: [../components/apart]}'
render apart/cert-manager '{resources: [../overlays/issued-by-cert-manager], components: [../components/apart]}'

# What monitoring adds. What it changes is for the templates.
for file in "$files"/self-signed/*; do rm -f "$files/monitoring/$(basename "$file")"; done
mv "$files"/self-signed/*_customresourcedefinition_* "$files/crds/"
rm "$files"/{cert-manager,apart/self-signed,apart/cert-manager}/*_customresourcedefinition_*
for folder in self-signed cert-manager; do
  for file in "$files/apart/$folder"/*; do
    if cmp -s "$file" "$files/$folder/$(basename "$file")"; then rm "$file"; fi
  done
done

for mode in window observe; do cp "components/$mode/mode.yaml" "$files/config/$mode.yaml"; done
cp monitoring/endpoint/metrics.yaml "$files/config/metrics.yaml"
cp components/callers/callers.yaml "$files/config/callers.yaml"
