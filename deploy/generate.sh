#!/usr/bin/env bash
# Makes deploy/generated (the kinds' definitions, and rights from the markers beside the
# code that uses them), what the chart holds of it, and the Go code of api/wire. Argument: the folder to write
# below, the repository's root if none; with another one the outcome can be compared.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-.}
mkdir -p "$out/deploy/generated/crds" "$out/deploy/chart/templates/crds" "$out/api/v1alpha1"

generate() { go tool -modfile=tools.mod controller-gen "$@"; }
generate object "output:object:dir=$out/api/v1alpha1" paths=./api/...
generate crd "output:crd:dir=$out/deploy/generated/crds" paths=./api/...
generate rbac:roleName=pelago-manager,fileName=rbac.yaml "output:rbac:dir=$out/deploy/generated" \
	paths=./peering/... paths=./offloading/... paths=./network/... paths=./internal/... paths=./cmd/...

plugin() { echo "--plugin=$1=$(go tool -modfile=tools.mod -n "$1")"; }
go tool -modfile=tools.mod goprotoc "$(plugin protoc-gen-go)" "$(plugin protoc-gen-go-grpc)" -I . \
	"--go_out=paths=source_relative:$out" "--go-grpc_out=paths=source_relative:$out" api/wire/*.proto

if grep -rlF '{{' "$out/deploy/generated"; then
	echo "generate.sh: these files hold {{, which the chart would take for its own; change the comments they come from" >&2
	exit 1
fi
note='{{- /* Made by: make gen */ -}}'
for file in "$out"/deploy/generated/crds/*.yaml; do
	{
		echo "$note"
		echo '{{- if .Values.crds.install }}'
		sed -e '/^metadata:$/a\  labels:\n    {{- include "pelago.labels" . | nindent 4 }}' \
			-e '/^  annotations:$/a\    helm.sh/resource-policy: keep\n    {{- with .Values.globalAnnotations }}\n    {{- toYaml . | nindent 4 }}\n    {{- end }}' "$file"
		echo '{{- end }}'
	} >"$out/deploy/chart/templates/crds/$(basename "$file")"
done
{
	echo "$note"
	# Rights of the agents, and in their namespace, are there where these are.
	sed -e '/^metadata:$/a\  {{- include "pelago.metadata" . | nindent 2 }}' "$out/deploy/generated/rbac.yaml" | awk '
		function flush() {
			if (doc ~ /\n  (namespace: pelago-network|name: pelago-agent)\n/) doc = "{{- if .Values.network.enabled }}\n" doc "{{- end }}\n"
			printf "%s", doc
			doc = ""
		}
		/^---$/ { flush() }
		{ doc = doc $0 "\n" }
		END { flush() }'
} >"$out/deploy/chart/templates/rbac.yaml"
