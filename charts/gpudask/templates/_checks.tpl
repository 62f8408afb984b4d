{{/* Refusals for which the schema has no words of its own: each says what to write instead. */}}
{{- define "gpudask.checks" -}}
{{- range .Values.watchNamespaces }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .) }}
{{- fail (printf "watchNamespaces: %q is no namespace's name: write lower-case letters, digits and hyphens, one entry for each namespace" .) }}
{{- end }}
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
