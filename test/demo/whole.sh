#!/usr/bin/env bash
# The demo from nothing to its end in a sandbox of its own, which is gone afterwards,
# whatever happens. Nothing of a sandbox that is there is touched. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PELAGO_DEMO_SANDBOX=demo

remove() { bin/pelago-sandbox --name "$PELAGO_DEMO_SANDBOX" down; }
trap remove EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

remove # what one that was killed has left
bash test/demo.sh
