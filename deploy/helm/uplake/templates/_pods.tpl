{{/* Names, labels, and what all pods have. Of the 52 characters of a StatefulSet's name a warehouse may have 20. */}}

{{- define "uplake.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 22 | trimSuffix "-" -}}
{{- end -}}

{{- define "uplake.serviceAccount" -}}
{{- default (.Values.serviceAccount.create | ternary (include "uplake.name" .) "default") .Values.serviceAccount.name -}}
{{- end -}}

{{- define "uplake.selector" -}}
app.kubernetes.io/name: uplake
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "uplake.labels" -}}
{{ include "uplake.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* A warehouse's settings over the defaults, as JSON. */}}
{{- define "uplake.warehouse" -}}
{{- mustMergeOverwrite (deepCopy .root.Values.defaults) (deepCopy (default (dict) .own)) | toJson -}}
{{- end -}}

{{/* Does a warehouse have workers? */}}
{{- define "uplake.hasWorkers" -}}
{{- if or .workers.autoscaling.enabled (gt (int .workers.replicas) 0) }}yes{{ end -}}
{{- end -}}

{{/* The name of a warehouse's workers, which their certificate has to have. */}}
{{- define "uplake.members" -}}
{{ include "uplake.name" .root }}-{{ .warehouse }}-workers.{{ .root.Release.Namespace }}.svc
{{- end -}}

{{- define "uplake.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "uplake.env" -}}
- name: UPLAKE_LAKE
  value: {{ required "lake.url: s3://bucket/path, gs://bucket/path or az://container/path" .root.Values.lake.url | quote }}
- name: UPLAKE_CACHE
  value: /cache
- name: TMPDIR
  value: /spill
{{- with .cache.diskCache }}
- name: UPLAKE_STORAGE_DISK_CACHE
  value: {{ . | quote }}
{{- end }}
{{- range $name, $value := .root.Values.lake.storage }}
- name: UPLAKE_STORAGE_{{ upper $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- with .root.Values.lake.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Nothing is root, and nothing but these folders can be written. */}}
{{- define "uplake.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
serviceAccountName: {{ include "uplake.serviceAccount" . }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "uplake.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{/* The pod of a node: root, warehouse, component, settings (the warehouse's), own (coordinators or workers of it). */}}
{{- define "uplake.pod" -}}
{{- $root := .root -}}
{{- $has := include "uplake.hasWorkers" .settings -}}
{{- $works := eq .component "worker" -}}
metadata:
  labels:
    {{- include "uplake.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    uplake/warehouse: {{ .warehouse }}
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $root.Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "uplake.podSecurity" $root | nindent 2 }}
  # The sleep below, the time that statements have, and a second to end.
  terminationGracePeriodSeconds: {{ add .settings.drainSeconds 20 }}
  containers:
    - name: uplake
      image: {{ include "uplake.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args:
        - serve
        {{- if not $works }}
        - --pg=0.0.0.0:{{ $root.Values.ports.postgres }}
        {{- end }}
        - --http=0.0.0.0:{{ $root.Values.ports.http }}
        - --tls-cert=/tls/tls.crt
        - --tls-key=/tls/tls.key
        - --drain={{ .settings.drainSeconds }}s
        - --timeout={{ .settings.timeout }}
        {{- if $has }}
        - --warehouse={{ .warehouse }}
        {{- if $works }}
        - --roles=work
        - --node=$(POD_IP):{{ $root.Values.ports.node }}
        {{- else }}
        - --roles=coordinate
        - --members=dns:{{ include "uplake.members" . }}:{{ $root.Values.ports.node }}
        {{- end }}
        - --node-tls-cert=/node-tls/tls.crt
        - --node-tls-key=/node-tls/tls.key
        - --node-tls-ca=/node-tls/ca.crt
        - --node-secret=/node-secret/{{ $root.Values.nodes.secret.key }}
        {{- end }}
        {{- range .settings.options }}
        - {{ . | quote }}
        {{- end }}
      env:
        - name: POD_IP
          valueFrom: { fieldRef: { fieldPath: status.podIP } }
        {{- include "uplake.env" (dict "root" $root "cache" .own.cache) | nindent 8 }}
      {{- with $root.Values.lake.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- if not $works }}
        - { name: postgres, containerPort: {{ $root.Values.ports.postgres }} }
        {{- end }}
        - { name: http, containerPort: {{ $root.Values.ports.http }} }
        {{- if $works }}
        - { name: node, containerPort: {{ $root.Values.ports.node }} }
        {{- end }}
      # Dictionaries of ids are read before it listens: up to ten minutes of them.
      startupProbe:
        httpGet: { path: /health, port: http, scheme: HTTPS }
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 120
      # /health never asks the bucket: one that is gone must not restart anybody.
      livenessProbe:
        httpGet: { path: /health, port: http, scheme: HTTPS }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      # /ready gives the lake five seconds.
      readinessProbe:
        httpGet: { path: /ready, port: http, scheme: HTTPS }
        periodSeconds: 5
        timeoutSeconds: 6
        failureThreshold: 2
      {{- if not $works }}
      # Until everybody knows that this pod goes, it still takes clients.
      lifecycle:
        preStop: { sleep: { seconds: 10 } }
      {{- end }}
      securityContext:
        {{- include "uplake.containerSecurity" . | nindent 8 }}
      resources:
        {{- toYaml .own.resources | nindent 8 }}
      volumeMounts:
        - { name: cache, mountPath: /cache }
        - { name: spill, mountPath: /spill }
        - { name: tls, mountPath: /tls, readOnly: true }
        {{- if $has }}
        - { name: node-tls, mountPath: /node-tls, readOnly: true }
        - { name: node-secret, mountPath: /node-secret, readOnly: true }
        {{- end }}
        {{- with $root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- if or (not $works) .own.cache.ephemeral }}
    - { name: cache, emptyDir: { sizeLimit: {{ .own.cache.size }} } }
    {{- end }}
    - { name: spill, emptyDir: { sizeLimit: {{ .own.spill.size }} } }
    - name: tls
      secret: { secretName: {{ required "tls.existingSecret: a secret with tls.crt and tls.key" $root.Values.tls.existingSecret }}, defaultMode: 0440 }
    {{- if $has }}
    - name: node-tls
      secret: { secretName: {{ required "nodes.tls.existingSecret: a secret with tls.crt, tls.key and ca.crt" $root.Values.nodes.tls.existingSecret }}, defaultMode: 0440 }
    - name: node-secret
      secret: { secretName: {{ required "nodes.secret.existingSecret: a secret of 32 bytes or more" $root.Values.nodes.secret.existingSecret }}, defaultMode: 0440 }
    {{- end }}
    {{- with $root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  topologySpreadConstraints:
    {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "uplake.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $.component }}
          uplake/warehouse: {{ $.warehouse }}
    {{- end }}
  {{- with .own.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .own.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end -}}

{{/* The pod of one command: root, args, own (resources, spill, deadlineSeconds), mounts and volumes of its own. */}}
{{- define "uplake.commandPod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "uplake.labels" $root | nindent 4 }}
    app.kubernetes.io/component: job
    {{- with $root.Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "uplake.podSecurity" $root | nindent 2 }}
  restartPolicy: Never
  containers:
    - name: uplake
      image: {{ include "uplake.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      env:
        {{- include "uplake.env" (dict "root" $root "cache" (dict)) | nindent 8 }}
      {{- with $root.Values.lake.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "uplake.containerSecurity" . | nindent 8 }}
      resources:
        {{- toYaml .own.resources | nindent 8 }}
      volumeMounts:
        - { name: cache, mountPath: /cache }
        - { name: spill, mountPath: /spill }
        {{- with .mount }}
        - { name: {{ .name }}, mountPath: {{ .path }}, readOnly: true }
        {{- end }}
        {{- with $root.Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - { name: cache, emptyDir: { sizeLimit: {{ .own.spill.size }} } }
    - { name: spill, emptyDir: { sizeLimit: {{ .own.spill.size }} } }
    {{- with .mount }}
    - name: {{ .name }}
      secret: { secretName: {{ .secret }}, defaultMode: 0440 }
    {{- end }}
    {{- with $root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
