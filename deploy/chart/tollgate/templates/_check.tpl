{{- /* tollgate.check fails with what a schema could not say of values that belong together. */ -}}
{{- define "tollgate.check" -}}
{{- if dig "webhook" "url" "" .Values.config -}}
{{- fail "config.webhook.url: the chart installs a Tollgate that is called by its Service, and its policies let administrators alone write a URL: leave it out; for a Tollgate beside its cluster, apply deploy/overlays/outside in the place of the chart" -}}
{{- end -}}
{{- if and (include "tollgate.managed" .) (ne .Values.certificates.mode "SelfSigned") -}}
{{- fail "webhooks.registration: Managed needs certificates.mode SelfSigned: cert-manager would write the caBundle of a new webhook too late" -}}
{{- end -}}
{{- $certManager := (include "tollgate.certManager" . | fromJson).namespace -}}
{{- if and (eq .Release.Namespace "cert-manager") (ne $certManager "cert-manager") -}}
{{- fail (printf "namespace cert-manager: that is the name of cert-manager's own, which is said to run in %s: install Tollgate in another, such as tollgate-system" $certManager) -}}
{{- end -}}
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
