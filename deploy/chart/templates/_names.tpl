{{/* Labels of an object: pass the root. */}}
{{- define "pelago.labels" -}}
app.kubernetes.io/part-of: pelago
app.kubernetes.io/managed-by: {{ .Release.Service }}
pelago.dev/managed-by: install
{{- with .Values.globalLabels }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* What follows "metadata:" and the name of most objects: labels, and annotations if there are any. */}}
{{- define "pelago.metadata" -}}
labels:
  {{- include "pelago.labels" . | nindent 2 }}
{{- with .Values.globalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Pelago has one namespace per cluster, and others rely on its name. */}}
{{- define "pelago.namespace" -}}
{{- if eq .Release.Namespace "pelago-system" -}}
pelago-system
{{- else -}}
{{- required "the namespace must be pelago-system: add --namespace pelago-system" "" -}}
{{- end -}}
{{- end }}

{{- define "pelago.image" -}}
{{- .Values.image.ref | default (printf "pelago.dev/pelago:%s" .Chart.AppVersion) }}
{{- end }}
