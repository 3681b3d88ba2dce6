{{- /* tollgate.check fails with what a schema could not say of values that belong together. */ -}}
{{- define "tollgate.check" -}}
{{- include "tollgate.checkPods" . -}}
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

{{- /* tollgate.checkPods fails where values of the pods contradict what the chart itself says. */ -}}
{{- define "tollgate.checkPods" -}}
{{- $ports := include "tollgate.ports" . | fromJson -}}
{{- if ne 3 (list (int $ports.webhook) (int $ports.health) (int $ports.metrics) | uniq | len) -}}
{{- fail (printf "ports: webhook %d, health %d and metrics %d: each needs a port of its own" (int $ports.webhook) (int $ports.health) (int $ports.metrics)) -}}
{{- end -}}
{{- if .Values.hostNetwork -}}
{{- range $name, $port := $ports -}}
{{- if eq 10250 (int $port) -}}
{{- fail (printf "ports.%s: 10250 is the port of the kubelet, which hostNetwork shares with the pods: choose another" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $rollout := include "tollgate.rollout" . | fromJson -}}
{{- if not (or $rollout.maxSurge $rollout.maxUnavailable) -}}
{{- fail "rollingUpdate: maxSurge and maxUnavailable are both 0, so that no pod could be replaced: set one of them to 1" -}}
{{- end -}}
{{- $said := dict "--config" "config" "--components" "components" "--evictor-user" "serviceAccount.name" -}}
{{- $said = merge $said (dict "--log-format" "log.format" "--verbose" "log.level" "-v" "log.level") -}}
{{- range $i, $argument := .Values.extraArgs | default list -}}
{{- $flag := first (splitList "=" $argument) -}}
{{- with get $said $flag }}{{ fail (printf "extraArgs[%d]: %s is set by the chart: write the value %s" $i $flag .) }}{{ end -}}
{{- end -}}
{{- range $i, $variable := .Values.extraEnv | default list -}}
{{- if has $variable.name (list "GOMEMLIMIT" "MEMORY_LIMIT_MI") -}}
{{- fail (printf "extraEnv[%d].name: %s is set by the chart: write the value resources.limits.memory" $i $variable.name) -}}
{{- end -}}
{{- end -}}
{{- /* Not by the schema: Helm names another field for what it says of keys. */ -}}
{{- range $label, $_ := .Values.commonLabels | default dict -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|version|managed-by|component|part-of)|helm\\.sh/chart)$" $label -}}
{{- fail (printf "commonLabels: %s is set by the chart: leave it out" $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
