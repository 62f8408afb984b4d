{{/* The name of all objects: the release's, with the chart's where the release's does not contain it. */}}
{{- define "gpudask.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "gpudask.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "gpudask.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The Secret that the operator makes at its first start: the key from which clusters' tokens are derived. */}}
{{- define "gpudask.keySecretName" -}}
{{ include "gpudask.fullname" . }}-key
{{- end -}}

{{/* What the Deployment selects by: it can never change, so it holds nothing that a user sets. */}}
{{- define "gpudask.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "gpudask.ownLabels" -}}
{{ include "gpudask.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of an object. */}}
{{- define "gpudask.labels" -}}
{{ include "gpudask.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of the pod: its own win over those of all objects. */}}
{{- define "gpudask.podLabels" -}}
{{ include "gpudask.ownLabels" . }}
{{- with merge dict .Values.podLabels .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The metrics' labels for the names in `attribution`, as rules and dashboards list them, with a comma before each. */}}
{{- define "gpudask.attributionLabels" -}}
{{- range .Values.attribution }}, label_{{ regexReplaceAll "[^A-Za-z0-9_]" . "_" }}{{ end }}
{{- end -}}

{{- define "gpudask.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The chosen affinity; unless it says something of other pods, two operators prefer two nodes. */}}
{{- define "gpudask.affinity" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) }}
{{- if not (hasKey $affinity "podAntiAffinity") }}
{{- $selector := dict "matchLabels" (include "gpudask.selectorLabels" . | fromYaml) }}
{{- $apart := dict "labelSelector" $selector "topologyKey" "kubernetes.io/hostname" }}
{{- $preferred := list (dict "weight" 100 "podAffinityTerm" $apart) }}
{{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $preferred) }}
{{- end }}
{{- $chosen := dict }}
{{- range $kind, $rules := $affinity }}
{{- if $rules }}
{{- $_ := set $chosen $kind $rules }}
{{- end }}
{{- end }}
{{- with $chosen }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{/* What running clusters takes, in each watched namespace or everywhere. */}}
{{- define "gpudask.clusterRules" -}}
# The resource itself belongs to its users: the operator reads it and writes its status.
- apiGroups: [gpudask.dev]
  resources: [gpudaskclusters]
  verbs: [get, list, watch]
- apiGroups: [gpudask.dev]
  resources: [gpudaskclusters/status]
  verbs: [patch]
# Jobs: their runners' pods, and clusters of their own, which are kept without workers where the job asks for it. A job
# is deleted once its ttlAfterFinished is over; the last lines of a program are part of its job's status.
- apiGroups: [gpudask.dev]
  resources: [gpudaskjobs]
  verbs: [get, list, watch, delete]
# Cron jobs: they make jobs, and delete those of their own that are replaced, or too many.
- apiGroups: [gpudask.dev]
  resources: [gpudaskcronjobs]
  verbs: [get, list, watch]
- apiGroups: [gpudask.dev]
  resources: [gpudaskcronjobs/status]
  verbs: [patch]
- apiGroups: [gpudask.dev]
  resources: [gpudaskjobs]
  verbs: [create]
- apiGroups: [gpudask.dev]
  resources: [gpudaskjobs/status]
  verbs: [patch]
- apiGroups: [gpudask.dev]
  resources: [gpudaskclusters]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
# Applied, never deleted: what is owned goes with its owner.
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch]
# Deleted once no scheduler needs it: the code that runs there, which a namespace's clusters share.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
# Deleted once networkPolicies is switched off.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.history.enabled }}
# What stays of clusters, with the last lines of the logs of pods that ended; removed when it is old.
- apiGroups: [gpudask.dev]
  resources: [gpudaskrecords]
  verbs: [get, list, create, update, delete]
{{- end }}
{{- if .Values.mirror.enabled }}
# What the stock Dask client reads, and what people make and change there. Deleted with the cluster, the pool or the
# limits that they show.
- apiGroups: [kubernetes.dask.org]
  resources: [daskclusters, daskworkergroups, daskautoscalers]
  verbs: [list, watch, create, patch, delete]
# Made by people. Its owner and its status are written; it is deleted with the GpuDaskJob that serves it.
- apiGroups: [kubernetes.dask.org]
  resources: [daskjobs]
  verbs: [list, watch, patch, delete]
# Made for a DaskCluster, whose spec it follows. A size set there becomes spec.overrides.
- apiGroups: [gpudask.dev]
  resources: [gpudaskclusters]
  verbs: [create, patch]
# Made for a DaskJob.
- apiGroups: [gpudask.dev]
  resources: [gpudaskjobs]
  verbs: [create]
# What the stock operator made for a DaskCluster is deleted once that is taken over.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [delete]
{{- end }}
{{- end -}}

{{- define "gpudask.metricsScheme" -}}
{{ empty .Values.metrics.tls.secretName | ternary "http" "https" }}
{{- end -}}

{{/* Not empty where something tells Prometheus of the metrics' port. */}}
{{- define "gpudask.metricsAreFound" -}}
{{- with .Values.metrics }}
{{- if or .annotations .service .serviceMonitor.enabled .podMonitor.enabled }}yes{{ end }}
{{- end }}
{{- end -}}

{{/* Not empty where somebody may connect to the metrics' port. */}}
{{- define "gpudask.metricsAreRead" -}}
{{- if and .Values.metrics.enabled (or (include "gpudask.metricsAreFound" .) .Values.metrics.allowFrom) }}yes{{ end }}
{{- end -}}

{{/* An endpoint of a ServiceMonitor or a PodMonitor; the argument: a list of the chart's context and the monitor. */}}
{{- define "gpudask.metricsEndpoint" -}}
{{- $context := index . 0 }}
{{- $monitor := index . 1 }}
{{- $metrics := $context.Values.metrics -}}
port: metrics
path: /metrics
interval: {{ $monitor.interval }}
scheme: {{ include "gpudask.metricsScheme" $context }}
# The labels namespace and pod of the series are the clusters'; the operator's own would take their names.
honorLabels: true
{{- with $metrics.tokenSecret.name }}
authorization:
  type: Bearer
  credentials:
    name: {{ . }}
    key: {{ $metrics.tokenSecret.key }}
{{- end }}
{{- with $metrics.tls.secretName }}
tlsConfig:
  {{- if $monitor.tlsConfig }}
  {{- toYaml $monitor.tlsConfig | nindent 2 }}
  {{- else }}
  serverName: {{ include "gpudask.fullname" $context }}-metrics.{{ $context.Release.Namespace }}.svc
  ca:
    secret:
      name: {{ . }}
      key: ca.crt
  {{- end }}
{{- end }}
{{- end -}}
