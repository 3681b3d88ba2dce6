{{- /* tollgate.wanted says something if the object is to be installed. */ -}}
{{- define "tollgate.wanted" -}}
{{- $kind := .object.kind -}}
{{- $values := .root.Values -}}
{{- if .monitoring -}}
{{- $monitoring := $values.monitoring -}}
{{- if hasSuffix "Monitor" $kind -}}
{{- if eq $monitoring.monitor $kind }}yes{{ end -}}
{{- else if eq $kind "PrometheusRule" -}}
{{- if $monitoring.rules }}yes{{ end -}}
{{- else if eq $kind "ConfigMap" -}}
{{- if $monitoring.dashboard }}yes{{ end -}}
{{- else if $monitoring.metrics -}}
yes
{{- end -}}
{{- else if hasSuffix "WebhookConfiguration" $kind -}}
{{- if $values.webhooks.install }}yes{{ end -}}
{{- else if or (hasPrefix "ValidatingAdmissionPolicy" $kind) (eq .object.metadata.name "tollgate-administrator") -}}
{{- if $values.protection.install }}yes{{ end -}}
{{- else if eq $kind "ServiceAccount" -}}
{{- if dig "create" true ($values.serviceAccount | default dict) }}yes{{ end -}}
{{- else if eq $kind "NetworkPolicy" -}}
{{- if $values.networkPolicy.install }}yes{{ end -}}
{{- else if eq $kind "ResourceQuota" -}}
{{- if $values.resourceQuota.install }}yes{{ end -}}
{{- else -}}
yes
{{- end -}}
{{- end -}}
