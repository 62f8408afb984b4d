{{/* Refusals for which the schema has no words of its own: each says what to write instead. */}}
{{- define "gpudask.checks" -}}
{{- if not .Values.image.repository }}
{{- fail "image.repository is required: write where your cluster finds the operator's image, such as registry.example/gpudask/operator (images/README.md builds it)" }}
{{- end }}
{{- range .Values.watchNamespaces }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .) }}
{{- fail (printf "watchNamespaces: %q is no namespace's name: write lower-case letters, digits and hyphens, one entry for each namespace" .) }}
{{- end }}
{{- end }}
{{- if and .Values.mirror.enabled (include "gpudask.isClusterWide" .) }}
{{- include "gpudask.noStockOperator" . }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled }}
{{- fail "metrics: serviceMonitor and podMonitor would both read every operator: enable one of them" }}
{{- end }}
{{- if and (not .Values.metrics.enabled) (include "gpudask.metricsAreFound" .) }}
{{- fail "metrics: there is nothing to read while metrics.enabled=false: set it, or switch off service, serviceMonitor, podMonitor and annotations" }}
{{- end }}
{{- $labels := dict }}
{{- range .Values.attribution }}
{{- $label := printf "label_%s" (regexReplaceAll "[^A-Za-z0-9_]" . "_") }}
{{- if hasKey $labels $label }}
{{- fail (printf "attribution: %s and %s would both be the metrics' label %s: leave one out, or rename it" (get $labels $label) . $label) }}
{{- end }}
{{- $_ := set $labels $label . }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasPrefix "GPUDASK_" .name }}
{{- fail (printf "extraEnv: %s is the chart's own: set watchNamespaces, log or fullnameOverride instead" .name) }}
{{- end }}
{{- end }}
{{- range $value := list "podLabels" "commonLabels" }}
{{- range $label, $_ := index $.Values $value }}
{{- if regexMatch "^(app\\.kubernetes\\.io|helm\\.sh)/" $label }}
{{- fail (printf "%s: %s is the chart's own: choose a label with a prefix of yours" $value $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $kind, $quantities := .Values.resources }}
{{- range $resource, $quantity := $quantities }}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$" (toString $quantity)) }}
{{- fail (printf "resources.%s.%s: %v is no quantity: write a number with a unit, such as 250m (of a CPU) or 512Mi (of memory)" $kind $resource $quantity) }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
Not empty where the release makes an object without a namespace, so that an administrator installs it. Others may not
look at the whole cluster, and a look-up that is forbidden ends helm's command.
*/}}
{{- define "gpudask.isClusterWide" -}}
{{- $roles := and .Values.rbac.create (or .Values.userRoles (not .Values.watchNamespaces)) }}
{{- $definitions := and .Values.mirror.enabled .Values.mirror.definitions }}
{{- if or $roles $definitions .Values.admissionPolicy.create }}yes{{ end }}
{{- end -}}

{{/*
Two operators would fight over the same objects. Only seen by helm install and upgrade, which ask the cluster. The
operator itself mirrors nothing beside the stock definitions, and leaves alone what the stock operator handles.
*/}}
{{- define "gpudask.noStockOperator" -}}
{{- $way := "set mirror.enabled=false, or remove the stock operator and its definitions (kubectl delete crd, which deletes its clusters) first" }}
{{- range $plural := list "daskclusters" "daskworkergroups" "daskautoscalers" "daskjobs" }}
{{- $name := printf "%s.kubernetes.dask.org" $plural }}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $name }}
{{- if not (has "gpudask" (.spec.names.categories | default list)) }}
{{- fail (printf "mirror.enabled: %s belongs to the stock Dask operator: %s" $name $way) }}
{{- end }}
{{- end }}
{{- end }}
{{- range (lookup "apps/v1" "Deployment" "" "").items }}
{{- if eq (get (.metadata.labels | default dict) "app.kubernetes.io/name") "dask-kubernetes-operator" }}
{{- fail (printf "mirror.enabled: the stock Dask operator runs as Deployment %s in namespace %s: %s" .metadata.name .metadata.namespace $way) }}
{{- end }}
{{- end }}
{{- end -}}
