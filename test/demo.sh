#!/usr/bin/env bash
# The demo: from nothing to two Kubernetes clusters that have agreed that one may use
# what the other has free. It shows every command it runs, both sides of the result,
# and ends with what is running and what to try. Run it again at any time. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/bin:$PATH"

bold='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

# show prints a command as one could type it, then runs it.
show() {
  printf '%s$ %s%s\n' "$dim" "$(printf '%q ' "$@")" "$plain"
  "$@"
}

# at CLUSTER COMMAND…: as its owner would, with his kubeconfig.
at() {
  local cluster=$1
  shift
  printf '%s%s$ %s%s\n' "$dim" "$cluster" "$(printf '%q ' "$@")" "$plain"
  KUBECONFIG=$keys/$cluster "$@"
}

if [ "$(id -u)" -ne 0 ]; then
  echo "The demo starts Kubernetes nodes, which needs root: sudo make demo" >&2
  exit 1
fi
keys=$(mktemp -d)
trap 'rm -rf "$keys"' EXIT

say "Two complete Kubernetes clusters on this machine, with Pelago in both. The first time, Kubernetes is compiled: some minutes."
show pelago-sandbox up --clusters rome,milan --nodes 2 --pelago
for cluster in rome milan; do
  pelago-sandbox kubeconfig "$cluster" >"$keys/$cluster" # mktemp made the folder ours alone
done

say "They belong to different people and know nothing of each other. Both use the same addresses for their pods."
at rome pelago status
at milan pelago status

if KUBECONFIG=$keys/rome pelago status milan >/dev/null 2>&1; then
  say "They have peered already, in an earlier run."
else
  say "Milan's owner invites a consumer: one line, good for one cluster, once, for an hour."
  printf '%smilan$ pelago generate peer-command --ttl 1h%s\n' "$dim" "$plain"
  line=$(KUBECONFIG=$keys/milan pelago generate peer-command --ttl 1h)
  echo "$line"
  say "Rome's owner runs that line, nothing else."
  KUBECONFIG=$keys/rome sh -c "$line"
fi

say "What rome sees: a provider, and what it offers. It follows what milan has free, live."
at rome pelago status
at rome pelago-sandbox kubectl rome -- get resourceoffers -A

say "What milan sees: a tenant with its own namespace and no other right."
pelago-sandbox kubectl milan -- wait -n pelago-tenant-rome resourcerequest/default --for=condition=Accepted --timeout=30s >/dev/null
at milan pelago status
at milan pelago-sandbox kubectl milan -- get tenants,identities,resourcerequests -A

say "Why it works, link by link."
at rome pelago explain peering milan

cat <<TEXT

${bold}Try${plain}   (export PATH=$PWD/bin:\$PATH; pelago-sandbox kubeconfig rome > rome.kubeconfig; the same for milan)
  KUBECONFIG=milan.kubeconfig pelago cordon tenant rome        nothing new for rome; uncordon ends it
  pelago-sandbox link cut rome milan                           rome notices in seconds; heal ends it
  KUBECONFIG=rome.kubeconfig pelago unpeer milan               both sides as they were before
  pelago-sandbox down                                          remove everything
TEXT
