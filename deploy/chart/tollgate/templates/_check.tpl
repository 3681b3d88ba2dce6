{{- /* tollgate.check fails with what a schema could not say of values that belong together. */ -}}
{{- define "tollgate.check" -}}
{{- if include "tollgate.callers" . -}}
{{- $authentication := dig "webhook" "authentication" dict .Values.config -}}
{{- $clientCA := dig "clientCA" dict $authentication -}}
{{- if hasKey $clientCA "file" -}}
{{- fail "config.webhook.authentication.clientCA.file: callers.clientCA.configMap says where the file comes from: leave out one of the two" -}}
{{- end -}}
{{- if not (or $clientCA.commonNames $clientCA.organizations) -}}
{{- fail "callers.clientCA.configMap: needs config.webhook.authentication.clientCA.commonNames or organizations, the names that are accepted" -}}
{{- end -}}
{{- end -}}
{{- end -}}
