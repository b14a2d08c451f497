{{- define "octavo.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* A Service's name begins with a letter and has no dots; at most 40 characters, so that names made of it
stay within 63. */}}
{{- define "octavo.fullname" -}}
{{- $name := default (printf "%s-%s" .Release.Name (include "octavo.name" .)) .Values.fullnameOverride -}}
{{- if and (not .Values.fullnameOverride) (contains (include "octavo.name" .) .Release.Name) -}}
{{- $name = .Release.Name -}}
{{- end -}}
{{- $name = replace "." "-" $name -}}
{{- if regexMatch "^[0-9]" $name -}}
{{- $name = printf "octavo-%s" $name -}}
{{- end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "octavo.selector" -}}
app.kubernetes.io/name: {{ include "octavo.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "octavo.labels" -}}
{{ include "octavo.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The component whose pods answer clients. */}}
{{- define "octavo.front" -}}
{{- ternary "engine" "router" (eq .Values.topology "combined") -}}
{{- end }}

{{/* The job label of the engines' metrics; see monitoring.yaml. */}}
{{- define "octavo.engineJob" -}}
{{- ternary (include "octavo.fullname" .) (printf "%s-engines" (include "octavo.fullname" .)) (eq .Values.topology "combined") -}}
{{- end }}

{{- define "octavo.image" -}}
{{- $image := index .root.Values.image .name -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end }}

{{- define "octavo.claim" -}}
{{- default (printf "%s-models" (include "octavo.fullname" .)) .Values.model.volume.existingClaim -}}
{{- end }}

{{/* What the MODEL argument is. */}}
{{- define "octavo.model" -}}
{{- if .Values.model.path -}}
{{- printf "/models/%s" (trimPrefix "/" .Values.model.path) -}}
{{- else -}}
{{- .Values.model.name -}}
{{- end -}}
{{- end }}

{{/* Whole numbers stay whole: YAML's numbers are floats to templates, and 1e+06 is no flag's value. */}}
{{- define "octavo.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end }}

{{/* Arguments for a map of flags; unknown ones stop the process, which names them. */}}
{{- define "octavo.flags" -}}
{{- range $flag, $value := . }}
{{- if kindIs "bool" $value }}
- {{ ternary "--" "--no-" $value }}{{ $flag }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%s" $flag (include "octavo.scalar" .) | quote }}
{{- end }}
{{- else }}
- {{ printf "--%s=%s" $flag (include "octavo.scalar" $value) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whole cores of a CPU quantity, at least one. */}}
{{- define "octavo.threads" -}}
{{- $cpu := toString . -}}
{{- if hasSuffix "m" $cpu -}}
{{- max 1 (ceil (divf (float64 (trimSuffix "m" $cpu)) 1000.0)) -}}
{{- else -}}
{{- max 1 (ceil (float64 $cpu)) -}}
{{- end -}}
{{- end }}

{{/* Seconds before the kubelet's SIGKILL: more than pre-stop and drain together. */}}
{{- define "octavo.grace" -}}
{{- add .preStopSeconds .shutdownSeconds 15 -}}
{{- end }}

{{- define "octavo.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "octavo.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "octavo.meshLabels" -}}
{{- if eq .Values.mesh "istio" }}
sidecar.istio.io/inject: "true"
{{- end }}
{{- end }}

{{/* The proxy outlives what it carries: it starts before and ends after. */}}
{{- define "octavo.meshAnnotations" -}}
{{- $grace := include "octavo.grace" .part -}}
{{- if eq .root.Values.mesh "istio" }}
proxy.istio.io/config: {{ printf "{\"holdApplicationUntilProxyStarts\": true, \"terminationDrainDuration\": \"%ss\"}" $grace | quote }}
{{- else if eq .root.Values.mesh "linkerd" }}
linkerd.io/inject: enabled
config.linkerd.io/proxy-await: enabled
config.alpha.linkerd.io/proxy-wait-before-exit-seconds: {{ $grace | quote }}
{{- end }}
{{- end }}

{{/* A volume that one node at a time may mount brings all its pods to that node. */}}
{{- define "octavo.oneNode" -}}
{{- if not (or (has "ReadWriteMany" .Values.model.volume.accessModes) (has "ReadOnlyMany" .Values.model.volume.accessModes)) -}}
yes
{{- end -}}
{{- end }}

{{- define "octavo.placement" -}}
{{- with .part.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if .part.affinity }}
affinity: {{- toYaml .part.affinity | nindent 2 }}
{{- else if include "octavo.oneNode" .root }}
affinity:
  podAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: {{ include "octavo.name" .root }}
            app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- else }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "octavo.selector" (dict "root" .root "component" .component) | nindent 8 }}
{{- end }}
{{- end }}

{{/* What was fetched is found again there, and nothing is fetched by a pod that serves. */}}
{{- define "octavo.modelEnv" -}}
- {name: HOME, value: /tmp}
- {name: OCTAVO_CACHE, value: /models}
- {name: HF_HOME, value: /models/hub}
{{- end }}

{{- define "octavo.offlineEnv" -}}
- {name: HF_HUB_OFFLINE, value: "1"}
- {name: PIP_NO_INDEX, value: "1"}
{{- end }}

{{/* What routers and engines have in common of it; OTEL_ variables go to their env. */}}
{{- define "octavo.tracingEnv" -}}
{{- with .Values.tracing.endpoint }}
- {name: OCTAVO_OTLP_TRACES_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* Flags of whoever answers clients, as variables. */}}
{{- define "octavo.frontEnv" -}}
- {name: OCTAVO_HOST, value: 0.0.0.0}
- {name: OCTAVO_PORT, value: "8000"}
- {name: OCTAVO_GRPC_PORT, value: "50051"}
- {name: OCTAVO_PAGE, value: {{ .Values.router.page | quote }}}
{{- if include "octavo.keySecret" . }}
- {name: OCTAVO_API_KEY_FILE, value: {{ printf "/etc/octavo/keys/%s" .Values.auth.existingSecret.key }}}
- {name: OCTAVO_METRICS_OPEN, value: {{ .Values.auth.metricsOpen | quote }}}
{{- end }}
{{- if .Values.tls.public.secretName }}
- {name: OCTAVO_SSL_CERTFILE, value: /etc/octavo/tls/tls.crt}
- {name: OCTAVO_SSL_KEYFILE, value: /etc/octavo/tls/tls.key}
{{- end }}
{{- end }}

{{- define "octavo.frontMounts" -}}
{{- if include "octavo.keySecret" . }}
- {name: keys, mountPath: /etc/octavo/keys, readOnly: true}
{{- end }}
{{- if .Values.tls.public.secretName }}
- {name: tls, mountPath: /etc/octavo/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "octavo.frontVolumes" -}}
{{- if include "octavo.keySecret" . }}
- name: keys
  secret: {secretName: {{ include "octavo.keySecret" . }}, defaultMode: 0440}
{{- end }}
{{- if .Values.tls.public.secretName }}
- name: tls
  secret: {secretName: {{ .Values.tls.public.secretName }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "octavo.frontPorts" -}}
- {name: http, containerPort: 8000}
- {name: grpc, containerPort: 50051}
{{- end }}

{{/* Ready is what takes requests away, live what restarts, started what waits for the weights. */}}
{{- define "octavo.frontProbes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne .root.Values.tls.public.secretName "") -}}
startupProbe:
  httpGet: {path: {{ .startPath }}, port: http, scheme: {{ $scheme }}}
  periodSeconds: 5
  failureThreshold: {{ max 6 (ceil (divf .startSeconds 5)) }}
readinessProbe:
  httpGet: {path: /health, port: http, scheme: {{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /live, port: http, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "octavo.keySecret" -}}
{{- if .Values.auth.existingSecret.name -}}
{{- .Values.auth.existingSecret.name -}}
{{- else if .Values.auth.tenants -}}
{{- printf "%s-keys" (include "octavo.fullname" .) -}}
{{- end -}}
{{- end }}

{{- define "octavo.lifecycle" -}}
{{- if gt (int .preStopSeconds) 0 }}
lifecycle:
  preStop:
    sleep: {seconds: {{ .preStopSeconds }}}
{{- end }}
{{- end }}

{{- define "octavo.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "octavo.engineTarget" -}}
apiVersion: {{ eq .Values.engine.kind "LeaderWorkerSet" | ternary "leaderworkerset.x-k8s.io/v1" "apps/v1" }}
kind: {{ .Values.engine.kind }}
name: {{ include "octavo.fullname" . }}-engine
{{- end }}
