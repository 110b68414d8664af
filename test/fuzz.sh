#!/usr/bin/env bash
# Fuzzes everything of the product that reads what a peer sends: every fuzz test of
# every package, each for the given time (20s). A crash is printed with its input, which
# go test keeps in the package's testdata/fuzz. A server, where a package's tests want
# one, is not needed: fuzz tests are pure. What else it finds interesting goes to Go's
# cache; go run ./test/corpora keeps a part of that in the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-20s}
count=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# fuzz fuzzes one. Before Go 1.27 go test may say on a busy machine that the end of the time was a
# failure, with nothing but this and no input: go.dev/issue/75804.
fuzz() {
  go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" 2>&1 | tee "$out" && return
  grep -q '^    context deadline exceeded$' "$out" && ! grep -q 'Failing input written\|panic' "$out"
}

for package in $(grep -rl --include='*_test.go' '^func Fuzz' --exclude-dir=sandbox . | xargs -r -n1 dirname | sort -u); do
  for name in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$package"/*_test.go | cut -d' ' -f2); do
    echo "== $package $name"
    fuzz "$package" "$name"
    count=$((count + 1))
  done
done
[ "$count" -gt 0 ] || { echo "no fuzz tests found" >&2; exit 1; }
echo "$count fuzz tests, $time each"
