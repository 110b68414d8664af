#!/usr/bin/env bash
# The demo: from nothing to two Kubernetes clusters with a real web server in each,
# fetched through a Service. It shows every command it runs, and ends with what is
# running and what to try. Run it again at any time. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

sandbox=bin/pelago-sandbox
image=pelago.local/nginx:demo
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

# kubectl CLUSTER ARGS, shown.
kubectl() {
  local cluster=$1
  shift
  show "$sandbox" kubectl "$cluster" -- "$@"
}

# page CLUSTER FROM: fetches the page of the web server of CLUSTER from a node of FROM,
# through the node port of the Service. The new rules take a moment to reach every node.
page() {
  local address port url
  address=$("$sandbox" kubectl "$1" -- get node "$1-1" -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}')
  port=$("$sandbox" kubectl "$1" -- get service web -o 'jsonpath={.spec.ports[0].nodePort}')
  url="http://$address:$port/"
  for _ in $(seq 30); do
    if "$sandbox" run "$2" -- wget -q -t 1 -T 2 -O /dev/null "$url" 2>/dev/null; then
      break
    fi
    sleep 1
  done
  show "$sandbox" run "$2" -- wget -q -t 1 -T 5 -O - "$url"
}

if [ "$(id -u)" -ne 0 ]; then
  echo "The demo starts Kubernetes nodes, which needs root: sudo make demo" >&2
  exit 1
fi
command -v wget >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends wget; }

say "Two complete Kubernetes clusters on this machine. The first time, Kubernetes is compiled: some minutes."
show "$sandbox" up --clusters rome,milan --nodes 2

say "An image of a real web server, from Debian packages, on every node. There is no registry."
show "$sandbox" image build "$image" --from-packages nginx-light --entrypoint nginx,-g,'daemon off;'
show "$sandbox" image load "$image" rome milan

for cluster in rome milan; do
  say "A web server in $cluster."
  "$sandbox" kubectl "$cluster" -- apply -f - <<YAML
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data:
  index.html: |
    Hello from $cluster.
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: nginx
        image: $image
        imagePullPolicy: Never
        ports: [{containerPort: 80}]
        readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
        volumeMounts: [{name: page, mountPath: /var/www/html}]
      volumes: [{name: page, configMap: {name: web}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80}]
YAML
  kubectl "$cluster" rollout status deployment/web --timeout=120s
  kubectl "$cluster" get pods -o wide
done

say "Each is reached through its Service, from its own cluster and from the other one."
page rome rome
page milan milan
page milan rome

say "Running now"
show "$sandbox" status
cat <<EOF

${bold}Try${plain}
  $sandbox kubectl rome -- get pods -A              any kubectl command, on rome or milan
  $sandbox link cut rome milan                      a partition; heal ends it
  $sandbox link set rome milan --delay 50ms         a link that is far
  $sandbox node stop rome rome-2                    pull the plug of a node; start plugs it in
  $sandbox kubeconfig rome > rome.kubeconfig        for your own tools
  $sandbox down                                     remove everything
EOF
