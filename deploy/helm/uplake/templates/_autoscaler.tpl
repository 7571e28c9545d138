{{/* By statements that wait for a slot: those that have one take all cores, so CPU says nothing. */}}
{{- define "uplake.autoscaler" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels:
    {{- include "uplake.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: {{ .kind }}, name: {{ .name }} }
  minReplicas: {{ .scaling.min }}
  maxReplicas: {{ .scaling.max }}
  metrics:
    - type: Pods
      pods:
        metric: { name: uplake_queries_waiting }
        target: { type: AverageValue, averageValue: {{ .scaling.waiting | quote }} }
  behavior:
    scaleUp:
      stabilizationWindowSeconds: 60
      policies: [{ type: Pods, value: 2, periodSeconds: 60 }]
    # A cache that is filled is worth keeping through a lull.
    scaleDown:
      stabilizationWindowSeconds: 600
      policies: [{ type: Pods, value: 1, periodSeconds: 120 }]
{{- end -}}
