{{/* The pod of an engine. `part` is engine.*, `worker` says that it is a further node of a LeaderWorkerSet. */}}
{{- define "octavo.enginePod" -}}
{{- $root := .root -}}
{{- $engine := $root.Values.engine -}}
{{- $combined := eq $root.Values.topology "combined" -}}
{{- $tls := $root.Values.tls.engines.secretName -}}
{{- $several := eq $engine.kind "LeaderWorkerSet" -}}
metadata:
  labels:
    {{- include "octavo.selector" (dict "root" $root "component" .component) | nindent 4 }}
    {{- include "octavo.meshLabels" $root | nindent 4 }}
    {{- with $engine.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    kubectl.kubernetes.io/default-container: engine
    {{- include "octavo.meshAnnotations" (dict "root" $root "part" $engine) | nindent 4 }}
    {{- with $engine.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "octavo.fullname" $root }}-engine
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "octavo.grace" $engine }}
  securityContext: {{- include "octavo.podSecurity" $root | nindent 4 }}
  {{- include "octavo.pullSecrets" $root | nindent 2 }}
  {{- $tolerations := $engine.tolerations }}
  {{- if $engine.gpus }}
  {{- $tolerations = append $tolerations (dict "key" $engine.gpuResource "operator" "Exists" "effect" "NoSchedule") }}
  {{- end }}
  {{- include "octavo.placement" (dict "root" $root "part" $engine "component" .component "tolerations" $tolerations) | nindent 2 }}
  {{- with $engine.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  containers:
    - name: engine
      image: {{ include "octavo.image" (dict "root" $root "name" "engine") | quote }}
      imagePullPolicy: {{ $root.Values.image.engine.pullPolicy }}
      command: [octavo, {{ $combined | ternary "serve" "engine" }}]
      args:
        - {{ include "octavo.model" $root | quote }}
        {{- range default (list $root.Values.model.name) $root.Values.model.servedNames }}
        - {{ printf "--served-model-name=%s" . | quote }}
        {{- end }}
        {{- if gt (int $engine.tensorParallelSize) 1 }}
        - --tensor-parallel-size={{ $engine.tensorParallelSize }}
        {{- end }}
        {{- include "octavo.flags" $engine.flags | nindent 8 }}
        {{- if $combined }}{{ include "octavo.flags" $root.Values.router.flags | nindent 8 }}{{ end }}
      env:
        {{- include "octavo.modelEnv" $root | nindent 8 }}
        {{- include "octavo.offlineEnv" $root | nindent 8 }}
        - {name: OCTAVO_THREADS, value: {{ include "octavo.threads" $engine.cpu | quote }}}
        - {name: OCTAVO_SHUTDOWN_TIMEOUT, value: {{ $engine.shutdownSeconds | quote }}}
        - {name: OCTAVO_PACKED_WEIGHTS_CACHE, value: {{ $root.Values.model.packedWeightsCache | quote }}}
        {{- if $combined }}
        {{- include "octavo.frontEnv" $root | nindent 8 }}
        {{- else }}
        - {name: OCTAVO_LISTEN, value: "0.0.0.0:50061"}
        {{- if $tls }}
        - {name: OCTAVO_SSL_CERTFILE, value: /etc/octavo/engine-tls/tls.crt}
        - {name: OCTAVO_SSL_KEYFILE, value: /etc/octavo/engine-tls/tls.key}
        - {name: OCTAVO_SSL_CA_CERTS, value: /etc/octavo/engine-tls/ca.crt}
        {{- end }}
        {{- end }}
        {{- if $several }}
        # The controller puts the LWS_ variables before these. The group's first pod serves, the others
        # compute for it; all run one command.
        - {name: OCTAVO_MASTER_ADDR, value: $(LWS_LEADER_ADDRESS)}
        - {name: OCTAVO_MASTER_PORT, value: "29500"}
        - {name: OCTAVO_NNODES, value: {{ $engine.groupSize | quote }}}
        - {name: OCTAVO_NODE_RANK, value: $(LWS_WORKER_INDEX)}
        {{- end }}
        {{- include "octavo.tracingEnv" $root | nindent 8 }}
        {{- with $engine.env }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- if not .worker }}
      ports:
        {{- if $combined }}
        {{- include "octavo.frontPorts" $root | nindent 8 }}
        {{- else }}
        - {name: grpc, containerPort: 50061}
        {{- end }}
      {{- if $combined }}
      {{- include "octavo.frontProbes" (dict "root" $root "startPath" "/health" "startSeconds" $engine.startupSeconds) | nindent 6 }}
      {{- else }}
      {{- $probe := include "octavo.engineProbe" $root }}
      {{- $period := ternary 15 5 (ne $tls "") }} {{/* a script starts Python each time */}}
      startupProbe:
        {{- $probe | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 10
        failureThreshold: {{ max 6 (ceil (divf $engine.startupSeconds 5)) }}
      readinessProbe:
        {{- $probe | nindent 8 }}
        periodSeconds: {{ $period }}
        timeoutSeconds: 10
        failureThreshold: 2
      # Health fails for a drain as for a stall (docs/kubernetes.md): an engine that is drained by call
      # gets the time to end what it runs.
      livenessProbe:
        {{- $probe | nindent 8 }}
        periodSeconds: {{ mul 2 $period }}
        timeoutSeconds: 10
        failureThreshold: {{ ceil (divf (add $engine.shutdownSeconds 30) (mul 2 $period)) }}
      {{- end }}
      {{- end }}
      {{- include "octavo.lifecycle" $engine | nindent 6 }}
      resources:
        requests:
          cpu: {{ $engine.cpu | quote }}
          memory: {{ $engine.memory | quote }}
          {{- if $engine.gpus }}
          {{ $engine.gpuResource }}: {{ $engine.gpus }}
          {{- end }}
        limits:
          memory: {{ $engine.memory | quote }}
          {{- if $engine.gpus }}
          {{ $engine.gpuResource }}: {{ $engine.gpus }}
          {{- end }}
      securityContext: {{- include "octavo.containerSecurity" $root | nindent 8 }}
      volumeMounts:
        - {name: models, mountPath: /models, readOnly: {{ not $root.Values.model.packedWeightsCache }}}
        - {name: tmp, mountPath: /tmp}
        - {name: shm, mountPath: /dev/shm}
        {{- if $combined }}
        {{- include "octavo.frontMounts" $root | nindent 8 }}
        {{- else if $tls }}
        - {name: engine-tls, mountPath: /etc/octavo/engine-tls, readOnly: true}
        - {name: probe, mountPath: /etc/octavo/probe, readOnly: true}
        {{- end }}
  volumes:
    - name: models
      persistentVolumeClaim: {claimName: {{ include "octavo.claim" $root }}}
    - name: tmp
      emptyDir: {}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $engine.sharedMemory | quote }}}
    {{- if $combined }}
    {{- include "octavo.frontVolumes" $root | nindent 4 }}
    {{- else if $tls }}
    - name: engine-tls
      secret: {secretName: {{ $tls }}, defaultMode: 0440}
    - name: probe
      configMap: {name: {{ include "octavo.fullname" $root }}-probe}
    {{- end }}
{{- end }}

{{/* The name that engines' certificates are for. */}}
{{- define "octavo.engineName" -}}
{{- printf "%s-engines.%s.svc" (include "octavo.fullname" .) .Release.Namespace -}}
{{- end }}

{{- define "octavo.engineProbe" -}}
{{- if .Values.tls.engines.secretName -}}
exec:
  command: [python, /etc/octavo/probe/probe_engine.py, "127.0.0.1:50061", {{ include "octavo.engineName" . }}, "8"]
{{- else -}}
grpc: {port: 50061}
{{- end -}}
{{- end }}
