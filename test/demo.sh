#!/usr/bin/env bash
# The demo: from nothing to a small Kubernetes cluster whose pods also run in another
# one that has room. It shows every command it runs, both sides of the result, and ends
# with what is running and what to try. Run it again at any time. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/bin:$PATH"

. test/demo/words.sh
past_proxies

if [ -n "${PELAGO_DEMO_SANDBOX:-}" ]; then # one beside whatever is there, as whole.sh has it
  pelago-sandbox() { command pelago-sandbox --name "$PELAGO_DEMO_SANDBOX" "$@"; }
fi

if [ "$(id -u)" -ne 0 ]; then
  echo "The demo starts Kubernetes nodes, which needs root: sudo make demo" >&2
  exit 1
fi
if ! command -v curl >/dev/null; then # what else is run here every Debian has
  if ! command -v apt-get >/dev/null; then
    echo "The demo needs curl; install it." >&2
    exit 1
  fi
  say "A page will be read with curl, which is not here."
  show apt-get update -qq
  DEBIAN_FRONTEND=noninteractive show apt-get install -y -qq --no-install-recommends --no-remove curl
fi
keys=$(mktemp -d)
trap 'rm -rf "$keys"' EXIT

say "Two complete Kubernetes clusters on this machine, with Pelago in both. The first time, Kubernetes is compiled: some minutes."
show pelago-sandbox up --file test/demo/sandbox.yaml --pelago
for cluster in rome milan; do
  key "$cluster"
done
undo

say "They belong to different people and know nothing of each other. Both use the same addresses for their pods."
at rome pelago status
at milan pelago status

if KUBECONFIG=$keys/rome pelago status milan >/dev/null 2>&1; then
  say "They have peered already, in an earlier run."
else
  say "Milan's owner invites a consumer: one line, good for one cluster, once, for an hour."
  printf '%smilan$ pelago generate peer-command --ttl 1h%s\n' "$dim" "$plain"
  line=$(KUBECONFIG=$keys/milan pelago generate peer-command --ttl 1h)
  clean "$line"
  say "Rome's owner runs that line, nothing else."
  KUBECONFIG=$keys/rome sh -c "$line"
fi

say "What rome sees: a provider, and what it offers. It follows what milan has free, live."
at rome pelago status
at rome pelago-sandbox kubectl rome -- get resourceoffers -A

say "What milan sees: a tenant with a namespace of its own, and its credential good for no other."
pelago-sandbox kubectl milan -- wait -n pelago-tenant-rome resourcerequest/default --for=condition=Accepted --timeout=30s >/dev/null
at milan pelago status
at milan pelago-sandbox kubectl milan -- get tenants,identities,resourcerequests -A

say "Rome has one small node; milan appears as one more. A namespace is offloaded, and everything in it may run on either."
pelago-sandbox image build pelago.demo/box:1 --from-packages busybox-static >/dev/null
pelago-sandbox image load pelago.demo/box:1 rome milan >/dev/null
pelago-sandbox kubectl rome -- wait node/milan --for=condition=Ready --timeout=60s >/dev/null
at rome pelago-sandbox kubectl rome -- get nodes -L region
pelago-sandbox kubectl rome -- get namespace shop >/dev/null 2>&1 || at rome pelago-sandbox kubectl rome -- create namespace shop
at rome pelago offload namespace shop

say "A plain Deployment that is larger than rome. The scheduler is Kubernetes' own; the pods that rome has no room for run in milan."
at rome pelago-sandbox kubectl rome -- apply -n shop -f test/demo/web.yaml
at rome pelago-sandbox kubectl rome -- rollout status -n shop deployment/web --timeout=120s
at rome pelago-sandbox kubectl rome -- get pods -n shop -o wide
at milan pelago-sandbox kubectl milan -- get pods -n shop-rome -o wide

say "From home they are like any other: logs, exec, and why a pod is where it is."
away=$(pelago-sandbox kubectl rome -- get pods -n shop -l app=web --field-selector spec.nodeName=milan -o 'jsonpath={.items[0].metadata.name}')
at rome pelago-sandbox kubectl rome -- logs -n shop "$away"
at rome pelago-sandbox kubectl rome -- exec -n shop "$away" -- sh -c 'echo I am $(hostname)'
at rome pelago explain pod "$away" -n shop

say "Labels of clusters are labels of nodes: a pod that wants the region north runs in milan."
at rome pelago-sandbox kubectl rome -- apply -n shop -f test/demo/north.yaml
at rome pelago-sandbox kubectl rome -- wait -n shop pod/north --for=condition=Ready --timeout=60s
at rome pelago-sandbox kubectl rome -- get pod north -n shop -o wide

say "One network: a shop whose page and counter are at home and whose API is in milan. They call each other by the names of their Services, though both clusters use the same addresses."
pelago-sandbox image build pelago.demo/nginx:1 --from-packages nginx >/dev/null
pelago-sandbox image build pelago.demo/redis:1 --from-packages redis-server >/dev/null
pelago-sandbox image build pelago.demo/shop:1 --go ./test/shop >/dev/null
pelago-sandbox image load pelago.demo/nginx:1 rome >/dev/null
pelago-sandbox image load pelago.demo/redis:1 rome >/dev/null
pelago-sandbox image load pelago.demo/shop:1 rome milan >/dev/null
pelago-sandbox kubectl rome -- get namespace store >/dev/null 2>&1 || at rome pelago-sandbox kubectl rome -- create namespace store
pelago-sandbox kubectl rome -- label nodes -l 'pelago.dev/type!=virtual-node' region=south --overwrite >/dev/null
at rome pelago offload namespace store
at rome pelago-sandbox kubectl rome -- apply -n store -f test/demo/shop.yaml
for part in redis api web; do
  pelago-sandbox kubectl rome -- rollout status -n store "deployment/$part" --timeout=120s >/dev/null
done
at rome pelago-sandbox kubectl rome -- get pods -n store -o wide
page=$(pelago-sandbox kubectl rome -- get service web -n store -o 'jsonpath={.status.loadBalancer.ingress[0].ip}')
# A Service has a new pod behind it a moment after that is ready.
quietly() { pelago-sandbox run rome -- curl -sf --max-time 5 --retry 30 --retry-all-errors --retry-delay 1 -o /dev/null "http://$page/visit" 2>/dev/null || true; }
quietly
visit() { show pelago-sandbox run rome -- curl -sS --max-time 5 --retry 10 --retry-all-errors --retry-delay 1 "http://$page/visit"; printf '\n'; }
visit
at rome pelago status milan
at rome pelago explain connection "$(pelago-sandbox kubectl rome -- get pods -n store -l app=web -o 'jsonpath={.items[0].metadata.name}')" \
  "$(pelago-sandbox kubectl rome -- get pods -n store -l app=api -o 'jsonpath={.items[0].metadata.name}')" -n store

say "The link breaks: milan's pods run on, and rome's page says that it cannot reach them. It heals: so does the shop."
show pelago-sandbox link cut rome milan
show pelago-sandbox run rome -- curl -sS --max-time 5 -o /dev/null -w 'HTTP %{http_code}\n' "http://$page/visit" || true
at milan pelago-sandbox kubectl milan -- get pods -n store-rome
show pelago-sandbox link heal rome milan
quietly
visit

say "Milan's owner stays master in his house: he drains the tenant, and its pods leave. What rome has no room for waits, and goes to milan again some seconds after that is lifted."
at milan pelago drain tenant rome
at rome pelago-sandbox kubectl rome -- get pods -n shop -o wide
at milan pelago uncordon tenant rome
at rome pelago-sandbox kubectl rome -- rollout status -n shop deployment/web --timeout=120s

say "They part: pods come home, and both clusters are as they were. Then they peer again, for you to play."
at rome pelago unpeer milan
pelago-sandbox kubectl milan -- wait --for=delete namespace/shop-rome namespace/pelago-tenant-rome --timeout=60s >/dev/null 2>&1 || true # Kubernetes takes some seconds for each
at rome pelago-sandbox kubectl rome -- get nodes
at milan pelago-sandbox kubectl milan -- get namespaces
printf '%smilan$ pelago generate peer-command --ttl 1h%s\n' "$dim" "$plain"
KUBECONFIG=$keys/rome sh -c "$(KUBECONFIG=$keys/milan pelago generate peer-command --ttl 1h)"
at rome pelago-sandbox kubectl rome -- rollout status -n shop deployment/web --timeout=120s
at rome pelago status

cat <<TEXT

${bold}Try${plain}   (export PATH=$PWD/bin:\$PATH; umask 077; pelago-sandbox kubeconfig rome > rome.kubeconfig; the same for milan)
  pelago-sandbox run rome -- curl -s http://$page/visit            the shop, through both clusters
  KUBECONFIG=rome.kubeconfig pelago test network                every way between pods here and in milan
  pelago-sandbox kubectl rome -- scale -n shop deployment/web --replicas=10
  pelago-sandbox link cut rome milan                           rome notices in seconds, the pods run on; heal ends it
  KUBECONFIG=rome.kubeconfig pelago unoffload namespace shop   the pods come home
  KUBECONFIG=rome.kubeconfig pelago unpeer milan               both sides as they were before
  pelago-sandbox down                                          remove everything
TEXT
