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

render self-signed '{resources: [../overlays/manual]}'
render cert-manager '{resources: [../overlays/issued-by-cert-manager]}'
render monitoring '{resources: [../base], components: [../monitoring, ../monitoring/podmonitor]}'
# What differs where the components run apart.
render apart/self-signed '{resources: [../overlays/manual], components: [../components/apart]}'
render apart/cert-manager '{resources: [../overlays/issued-by-cert-manager], components: [../components/apart]}'

# What differs where the leader registers the webhooks, together and apart.
render managed '{resources: [../overlays/manual], components: [../components/managed]}'
render apart/managed '{resources: [../overlays/manual], components: [../components/apart, ../components/managed]}'

# What Reports of OpenReports need.
render open-reports '{resources: [../overlays/manual], components: [../components/open-reports]}'

# What monitoring adds. What it changes is for the templates.
for file in "$files"/self-signed/*; do rm -f "$files/monitoring/$(basename "$file")"; done
mv "$files"/self-signed/*_customresourcedefinition_* "$files/crds/"
rm "$files"/{cert-manager,managed,open-reports,apart/self-signed,apart/cert-manager,apart/managed}/*_customresourcedefinition_*
rm "$files"/{managed,open-reports,apart/managed}/configmap.yaml # the templates add to that of the folder
for folder in self-signed cert-manager; do
  for file in "$files/apart/$folder"/*; do
    if cmp -s "$file" "$files/$folder/$(basename "$file")"; then rm "$file"; fi
  done
done
for file in "$files"/managed/* "$files"/open-reports/*; do
  if cmp -s "$file" "$files/self-signed/$(basename "$file")"; then rm "$file"; fi
done
# The last of the folders that has a file counts.
for file in "$files"/apart/managed/*; do
  for folder in managed apart/self-signed self-signed; do
    before=$files/$folder/$(basename "$file")
    if test -e "$before"; then
      if cmp -s "$file" "$before"; then rm "$file"; fi
      break
    fi
  done
done

for mode in window observe; do cp "components/$mode/mode.yaml" "$files/config/$mode.yaml"; done
cp monitoring/endpoint/metrics.yaml "$files/config/metrics.yaml"
cp components/managed/registration.yaml "$files/config/managed.yaml"
cp components/open-reports/open-reports.yaml "$files/config/open-reports.yaml"
cp components/callers/callers.yaml "$files/config/callers.yaml"
