{{- /* helm upgrade --reuse-values has the values of an older chart: what is new may be absent everywhere here. */ -}}

{{- /* tollgate.labels are the standard labels of an object, and those that values add. */ -}}
{{- define "tollgate.labels" -}}
{{- $labels := dict "app.kubernetes.io/name" "tollgate" -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- merge $labels (include "tollgate.podLabels" . | fromJson) | toJson -}}
{{- end -}}

{{- /* tollgate.podLabels has no version of the chart: it alone replaces no pod. */ -}}
{{- define "tollgate.podLabels" -}}
{{- $labels := dict "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/version" .Chart.AppVersion -}}
{{- merge $labels (.Values.commonLabels | default dict) | toJson -}}
{{- end -}}

{{- /* tollgate.label adds the labels to an object. It prints nothing. */ -}}
{{- define "tollgate.label" -}}
{{- $labels := .object.metadata.labels | default dict -}}
{{- $_ := set .object.metadata "labels" (merge $labels (include "tollgate.labels" .root | fromJson)) -}}
{{- end -}}

{{- /* tollgate.account is the ServiceAccount of Tollgate, and of the evictor where it is apart. */ -}}
{{- define "tollgate.account" -}}
{{- dig "name" "" (.Values.serviceAccount | default dict) | default "tollgate" -}}
{{- end -}}

{{- /* tollgate.accounts puts the names of the ServiceAccounts into the subjects of an object. It prints nothing. */ -}}
{{- define "tollgate.accounts" -}}
{{- $account := include "tollgate.account" .root -}}
{{- $subjects := .object.subjects | default list -}}
{{- if eq .object.kind "FlowSchema" -}}
{{- range .object.spec.rules -}}
{{- range .subjects -}}
{{- with .serviceAccount }}{{ $subjects = append $subjects . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $subjects -}}
{{- if has .name (list "tollgate" "tollgate-webhook") -}}
{{- if or (not .kind) (eq .kind "ServiceAccount") }}{{ $_ := set . "name" (replace "tollgate" $account .name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* tollgate.ports are the ports that pods listen on. */ -}}
{{- define "tollgate.ports" -}}
{{- $ports := merge dict (.Values.ports | default dict) (dict "webhook" 9443 "health" 8081 "metrics" 8080) -}}
{{- dict "webhook" (int $ports.webhook) "health" (int $ports.health) "metrics" (int $ports.metrics) | toJson -}}
{{- end -}}

{{- /* tollgate.addresses are the settings of ports that are not those of the manifests. */ -}}
{{- define "tollgate.addresses" -}}
{{- $ports := include "tollgate.ports" . | fromJson -}}
{{- $addresses := dict -}}
{{- if ne (int $ports.webhook) 9443 -}}
{{- $_ := set $addresses "webhook" (dict "bindAddress" (printf ":%d" (int $ports.webhook))) -}}
{{- end -}}
{{- if ne (int $ports.health) 8081 -}}
{{- $_ := set $addresses "health" (dict "bindAddress" (printf ":%d" (int $ports.health))) -}}
{{- end -}}
{{- if ne (int $ports.metrics) 8080 -}}
{{- $host := .Values.monitoring.metrics | ternary "" "127.0.0.1" -}}
{{- $_ := set $addresses "metrics" (dict "bindAddress" (printf "%s:%d" $host (int $ports.metrics))) -}}
{{- end -}}
{{- toJson $addresses -}}
{{- end -}}
