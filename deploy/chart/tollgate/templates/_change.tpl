{{- /* tollgate.change changes the object as values say. It prints nothing. */ -}}
{{- define "tollgate.change" -}}
{{- $kind := .object.kind -}}
{{- if eq $kind "Deployment" }}{{ include "tollgate.deployment" . }}
{{- else if eq $kind "Service" }}{{ include "tollgate.service" . }}
{{- else if hasSuffix "Monitor" $kind }}{{ include "tollgate.monitor" . }}
{{- else if eq $kind "PrometheusRule" }}{{ include "tollgate.rules" . }}
{{- else if .monitoring }}{{ if eq $kind "ConfigMap" }}{{ include "tollgate.dashboard" . }}{{ end }}
{{- else if eq $kind "ServiceAccount" }}{{ include "tollgate.serviceaccount" . }}
{{- else if eq $kind "ConfigMap" }}{{ include "tollgate.configmap" . }}
{{- else if eq $kind "PodDisruptionBudget" }}{{ include "tollgate.poddisruptionbudget" . }}
{{- else if eq $kind "ResourceQuota" }}{{ include "tollgate.resourcequota" . }}
{{- else if eq $kind "NetworkPolicy" }}{{ include "tollgate.networkpolicy" . }}
{{- else if hasSuffix "WebhookConfiguration" $kind }}{{ include "tollgate.webhooks" . }}
{{- else if eq $kind "ValidatingAdmissionPolicy" }}{{ include "tollgate.policy" . }}
{{- end }}
{{- end -}}

{{- define "tollgate.deployment" -}}
{{- $values := .root.Values -}}
{{- $evictor := eq .object.metadata.name "tollgate-evictor" -}}
{{- $replicas := $evictor | ternary (include "tollgate.evictors" .root | int) (int $values.replicas) -}}
{{- $_ := set .object.spec "replicas" $replicas -}}
{{- $_ := set .object.spec.strategy "rollingUpdate" (include "tollgate.rollout" .root | fromJson) -}}
{{- $template := .object.spec.template -}}
{{- $pod := $template.spec -}}
{{- $container := first $pod.containers -}}
{{- $ports := include "tollgate.ports" .root | fromJson -}}
{{- $_ := set $pod "serviceAccountName" (replace "tollgate" (include "tollgate.account" .root) $pod.serviceAccountName) -}}
{{- $_ := set $container "image" (include "tollgate.image" .root) -}}
{{- with $values.image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end -}}
{{- with $values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- $_ := set $container "resources" $values.resources -}}
{{- $_ := set $pod "priorityClassName" $values.priorityClassName -}}
{{- $_ := set $pod "nodeSelector" $values.nodeSelector -}}
{{- $_ := set $pod "tolerations" $values.tolerations -}}
{{- $_ := set $pod "affinity" (merge (deepCopy $values.affinity) $pod.affinity) -}}
{{- range $pod.topologySpreadConstraints -}}
{{- $_ := set . "whenUnsatisfiable" $values.spread.nodes -}}
{{- /* Nodes that are missing count as empty ones, so that no other takes two. */ -}}
{{- if eq $values.spread.nodes "DoNotSchedule" }}{{ $_ := set . "minDomains" $replicas }}{{ end -}}
{{- end -}}
{{- range $container.ports }}{{ $_ := set . "containerPort" (get $ports .name | int) }}{{ end -}}
{{- range $pod.volumes -}}
{{- if eq .name "config" }}{{ $_ := set .configMap "name" "tollgate-config" }}{{ end -}}
{{- end -}}
{{- if $values.monitoring.metrics -}}
{{- $_ := set $container "ports" (append $container.ports (dict "name" "metrics" "containerPort" (int $ports.metrics) "protocol" "TCP")) -}}
{{- if $evictor -}}
{{- $secret := include "tollgate.certificate" .root -}}
{{- $items := list (dict "key" "tls.crt" "path" "tls.crt") (dict "key" "tls.key" "path" "tls.key") -}}
{{- $source := dict "secretName" $secret "optional" true "items" $items -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "metrics-certificate" "secret" $source)) -}}
{{- $mount := dict "name" "metrics-certificate" "mountPath" "/etc/tollgate/metrics" "readOnly" true -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
{{- end -}}
{{- end -}}
{{- with $evictor | ternary "" (include "tollgate.callers" .root) -}}
{{- $source := dict "name" . "items" (list (dict "key" "ca.crt" "path" "ca.crt")) -}}
{{- $_ := set $pod "volumes" (append $pod.volumes (dict "name" "callers" "configMap" $source)) -}}
{{- $mount := dict "name" "callers" "mountPath" "/etc/tollgate/callers" "readOnly" true -}}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $mount) -}}
{{- end -}}
{{- /* Pods are replaced when their configuration changes. */ -}}
{{- $files := .root.Files.Get (printf "files/%s/configmap.yaml" (include "tollgate.folder" .root)) -}}
{{- $config := dict "checksum/config" (printf "%s%s" $files (include "tollgate.settings" .root) | sha256sum) -}}
{{- $_ := set $template.metadata "annotations" (merge $config $template.metadata.annotations $values.podAnnotations) -}}
{{- $labels := merge $template.metadata.labels $values.podLabels (include "tollgate.podLabels" .root | fromJson) -}}
{{- $_ := set $template.metadata "labels" $labels -}}
{{- include "tollgate.extra" (dict "pod" $pod "selector" .object.spec.selector "evictor" $evictor "values" $values) -}}
{{- end -}}

{{- /* tollgate.extra adds to a pod what values add. It prints nothing. */ -}}
{{- define "tollgate.extra" -}}
{{- $values := .values -}}
{{- $pod := .pod -}}
{{- $container := first $pod.containers -}}
{{- $hostNetwork := and ($values.hostNetwork | default false) (not .evictor) -}}
{{- if $hostNetwork }}{{ $_ := set $pod "hostNetwork" true }}{{ end -}}
{{- with $values.dnsPolicy | default ($hostNetwork | ternary "ClusterFirstWithHostNet" "") }}{{ $_ := set $pod "dnsPolicy" . }}{{ end -}}
{{- $log := $values.log | default dict -}}
{{- $args := list -}}
{{- if eq (get $log "level") "debug" }}{{ $args = append $args "--verbose" }}{{ end -}}
{{- if eq (get $log "format") "text" }}{{ $args = append $args "--log-format=text" }}{{ end -}}
{{- $_ := set $container "args" (concat $container.args $args ($values.extraArgs | default list)) -}}
{{- with $values.extraEnv }}{{ $_ := set $container "env" (concat $container.env .) }}{{ end -}}
{{- with $values.extraEnvFrom }}{{ $_ := set $container "envFrom" . }}{{ end -}}
{{- range $i, $volume := $values.extraVolumes | default list -}}
{{- range $pod.volumes -}}
{{- if eq .name $volume.name }}{{ fail (printf "extraVolumes[%d].name: %s is the name of another volume of the pod: choose another" $i .name) }}{{ end -}}
{{- end -}}
{{- $_ := set $pod "volumes" (append $pod.volumes $volume) -}}
{{- end -}}
{{- with $values.extraVolumeMounts }}{{ $_ := set $container "volumeMounts" (concat $container.volumeMounts .) }}{{ end -}}
{{- range $values.topologySpreadConstraints | default list -}}
{{- $constraint := deepCopy . -}}
{{- if not .labelSelector }}{{ $_ := set $constraint "labelSelector" $.selector }}{{ end -}}
{{- $_ := set $pod "topologySpreadConstraints" (append $pod.topologySpreadConstraints $constraint) -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.service" -}}
{{- $ports := include "tollgate.ports" .root | fromJson -}}
{{- range .object.spec.ports -}}
{{- $_ := set . "targetPort" (get $ports .name | int) -}}
{{- if eq .name "metrics" }}{{ $_ := set . "port" (int $ports.metrics) }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.serviceaccount" -}}
{{- $_ := set .object.metadata "name" (replace "tollgate" (include "tollgate.account" .root) .object.metadata.name) -}}
{{- with dig "annotations" dict (.root.Values.serviceAccount | default dict) }}{{ $_ := set $.object.metadata "annotations" . }}{{ end -}}
{{- end -}}

{{- define "tollgate.rules" -}}
{{- $_ := set .object.metadata "labels" (merge (.object.metadata.labels | default dict) (.root.Values.monitoring.ruleLabels | default dict)) -}}
{{- end -}}

{{- /* A value goes before the label by which Grafana's chart finds it. */ -}}
{{- define "tollgate.dashboard" -}}
{{- $_ := set .object.metadata "labels" (merge dict (.root.Values.monitoring.dashboardLabels | default dict) .object.metadata.labels) -}}
{{- with .root.Values.monitoring.dashboardAnnotations }}{{ $_ := set $.object.metadata "annotations" . }}{{ end -}}
{{- end -}}

{{- /* tollgate.rollout is how pods are replaced. Not by merge: it takes 0 for a value that is absent. */ -}}
{{- define "tollgate.rollout" -}}
{{- $rollout := .Values.rollingUpdate | default dict -}}
{{- dict "maxSurge" (dig "maxSurge" 1 $rollout | int) "maxUnavailable" (dig "maxUnavailable" 0 $rollout | int) | toJson -}}
{{- end -}}

{{- /* tollgate.folder is where the files are of how certificates come. */ -}}
{{- define "tollgate.folder" -}}
{{- get (dict "SelfSigned" "self-signed" "CertManager" "cert-manager") .Values.certificates.mode -}}
{{- end -}}

{{- /* tollgate.certificate is the Secret that the serving certificate is in. */ -}}
{{- define "tollgate.certificate" -}}
{{- get (dict "SelfSigned" "tollgate-serving-certificate" "CertManager" "tollgate-serving") .Values.certificates.mode -}}
{{- end -}}

{{- /* tollgate.apart says something if the components have a Deployment each. */ -}}
{{- define "tollgate.apart" -}}
{{- if eq (.Values.components | default "Together") "Apart" }}yes{{ end -}}
{{- end -}}

{{- /* tollgate.managed says something if the leader registers the webhooks. */ -}}
{{- define "tollgate.managed" -}}
{{- $default := get (dict "SelfSigned" "Managed" "CertManager" "Manual") .Values.certificates.mode -}}
{{- if eq (.Values.webhooks.registration | default $default) "Managed" }}yes{{ end -}}
{{- end -}}

{{- /* tollgate.openReports says something if the leader writes Reports of OpenReports. */ -}}
{{- define "tollgate.openReports" -}}
{{- if dig "openReports" false (.Values.audit | default dict) }}yes{{ end -}}
{{- end -}}

{{- define "tollgate.evictors" -}}
{{- dig "replicas" 2 (.Values.evictor | default dict) -}}
{{- end -}}

{{- /* helm upgrade --reuse-values has the values of an older chart, without those that are new. */ -}}
{{- define "tollgate.certManager" -}}
{{- $default := dict "namespace" "cert-manager" "cainjector" "cert-manager-cainjector" -}}
{{- merge dict (dig "certManager" dict .Values.certificates) $default | toJson -}}
{{- end -}}

{{- define "tollgate.callers" -}}
{{- dig "clientCA" "configMap" "" (.Values.callers | default dict) -}}
{{- end -}}

{{- define "tollgate.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* tollgate.settings is what values add to the files of the configuration. */ -}}
{{- define "tollgate.settings" -}}
{{- $files := dict -}}
{{- if include "tollgate.managed" . -}}
{{- $_ := set $files "15-registration.yaml" (.Files.Get "files/config/managed.yaml") -}}
{{- $webhook := dict -}}
{{- if ne .Values.webhooks.failurePolicy "Fail" }}{{ $_ := set $webhook "failurePolicy" .Values.webhooks.failurePolicy }}{{ end -}}
{{- with .Values.webhooks.excludedNamespaces }}{{ $_ := set $webhook "excludedNamespaces" . }}{{ end -}}
{{- if $webhook -}}
{{- $head := dict "apiVersion" "config.tollgate.dev/v1alpha1" "kind" "TollgateConfiguration" -}}
{{- $_ := set $files "16-webhooks.yaml" (toYaml (merge $head (dict "webhook" $webhook))) -}}
{{- end -}}
{{- end -}}
{{- if ne .Values.mode "Replace" -}}
{{- $_ := set $files "30-mode.yaml" (.Files.Get (printf "files/config/%s.yaml" (lower .Values.mode))) -}}
{{- end -}}
{{- if include "tollgate.openReports" . }}{{ $_ := set $files "35-open-reports.yaml" (.Files.Get "files/config/open-reports.yaml") }}{{ end -}}
{{- if .Values.monitoring.metrics }}{{ $_ := set $files "40-metrics.yaml" (.Files.Get "files/config/metrics.yaml") }}{{ end -}}
{{- $addresses := include "tollgate.addresses" . | fromJson -}}
{{- if $addresses -}}
{{- $head := dict "apiVersion" "config.tollgate.dev/v1alpha1" "kind" "TollgateConfiguration" -}}
{{- $_ := set $files "45-ports.yaml" (toYaml (merge $head $addresses)) -}}
{{- end -}}
{{- if include "tollgate.callers" . }}{{ $_ := set $files "50-callers.yaml" (.Files.Get "files/config/callers.yaml") }}{{ end -}}
{{- with .Values.config -}}
{{- $head := dict "apiVersion" "config.tollgate.dev/v1alpha1" "kind" "TollgateConfiguration" -}}
{{- $_ := set $files "90-local.yaml" (toYaml (merge $head .)) -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{- define "tollgate.configmap" -}}
{{- $_ := set .object.metadata "name" "tollgate-config" -}}
{{- $_ := set .object "data" (merge (include "tollgate.settings" .root | fromJson) .object.data) -}}
{{- end -}}

{{- define "tollgate.poddisruptionbudget" -}}
{{- $_ := set .object.spec "maxUnavailable" .root.Values.podDisruptionBudget.maxUnavailable -}}
{{- end -}}

{{- define "tollgate.networkpolicy" -}}
{{- $api := .root.Values.networkPolicy.apiServer -}}
{{- $listens := include "tollgate.ports" .root | fromJson -}}
{{- range .object.spec.ingress }}{{ range .ports }}{{ $_ := set . "port" (int $listens.webhook) }}{{ end }}{{ end -}}
{{- $egress := first .object.spec.egress -}}
{{- $ports := list -}}
{{- range $api.ports }}{{ $ports = append $ports (dict "protocol" "TCP" "port" .) }}{{ end -}}
{{- $_ := set $egress "ports" $ports -}}
{{- if $api.cidrs -}}
{{- $peers := list -}}
{{- range $api.cidrs }}{{ $peers = append $peers (dict "ipBlock" (dict "cidr" .)) }}{{ end -}}
{{- $_ := set $egress "to" $peers -}}
{{- range .object.spec.ingress }}{{ $_ := set . "from" $peers }}{{ end -}}
{{- end -}}
{{- if .root.Values.monitoring.metrics -}}
{{- $rule := dict "ports" (list (dict "protocol" "TCP" "port" (int $listens.metrics))) -}}
{{- $_ := set .object.spec "ingress" (append .object.spec.ingress $rule) -}}
{{- end -}}
{{- end -}}

{{- /* The CA is in the Secret of whoever issues the certificate. */ -}}
{{- define "tollgate.monitor" -}}
{{- $secret := include "tollgate.certificate" .root -}}
{{- $interval := .root.Values.monitoring.interval -}}
{{- $_ := set .object.metadata "labels" (merge (.object.metadata.labels | default dict) (.root.Values.monitoring.monitorLabels | default dict)) -}}
{{- range $endpoint := concat (.object.spec.endpoints | default list) (.object.spec.podMetricsEndpoints | default list) -}}
{{- $_ := set .tlsConfig.ca.secret "name" $secret -}}
{{- with $interval }}{{ $_ := set $endpoint "interval" . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* In a rollout one starts while all run, and as many that have ended their work may not be gone. */ -}}
{{- define "tollgate.resourcequota" -}}
{{- $hard := .object.spec.hard -}}
{{- $pods := add1 (mul 2 .root.Values.replicas) -}}
{{- if include "tollgate.apart" .root }}{{ $pods = add $pods 1 (mul 2 (include "tollgate.evictors" .root | int)) }}{{ end -}}
{{- $_ := set $hard "pods" (max (int $hard.pods) $pods | toString) -}}
{{- end -}}

{{- /* The ServiceAccount that may write the caBundle is said in a variable of its own. */ -}}
{{- define "tollgate.policy" -}}
{{- $certManager := include "tollgate.certManager" .root | fromJson -}}
{{- range .object.spec.variables -}}
{{- if eq .name "cainjector" -}}
{{- $_ := set . "expression" (printf "'system:serviceaccount:%s:%s'" $certManager.namespace $certManager.cainjector) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tollgate.webhooks" -}}
{{- $values := .root.Values.webhooks -}}
{{- with $values.annotations -}}
{{- $_ := set $.object.metadata "annotations" (merge ($.object.metadata.annotations | default dict) .) -}}
{{- end -}}
{{- $certManager := (include "tollgate.certManager" .root | fromJson).namespace -}}
{{- range .object.webhooks -}}
{{- if eq .failurePolicy "Fail" }}{{ $_ := set . "failurePolicy" $values.failurePolicy }}{{ end -}}
{{- if .namespaceSelector -}}
{{- $outside := first .namespaceSelector.matchExpressions -}}
{{- $namespaces := list -}}
{{- range $outside.values }}{{ $namespaces = append $namespaces (eq . "cert-manager" | ternary $certManager .) }}{{ end -}}
{{- $_ := set $outside "values" (concat $namespaces $values.excludedNamespaces | uniq) -}}
{{- end -}}
{{- end -}}
{{- end -}}
