#!/usr/bin/env bash
# Installs what testing this repository needs beside Go, if it is not there: git, a C
# compiler with the C library's headers for the race detector, and what tests run.
# Prometheus and promtool are unpacked into out/tools; nothing of them is installed.
set -euo pipefail

missing=()
command -v git >/dev/null || missing+=(git)
command -v gcc >/dev/null || missing+=(gcc)
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
command -v busybox >/dev/null || missing+=(busybox-static)
command -v ip >/dev/null || missing+=(iproute2)
command -v nft >/dev/null || [ -e /usr/sbin/nft ] || missing+=(nftables)
command -v wget >/dev/null || missing+=(wget)
command -v openssl >/dev/null || missing+=(openssl)
prometheus=out/tools/prometheus
[ -x $prometheus ] && [ -x out/tools/promtool ] && prometheus=
if [ ${#missing[@]} -eq 0 ] && [ -z "$prometheus" ]; then
  echo "everything is there"
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]} $prometheus. Install them, or run this as root on Debian." >&2
  exit 1
fi
apt-get update -qq
if [ ${#missing[@]} -gt 0 ]; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
if [ -n "$prometheus" ]; then
  unpacked=$(mktemp -d)
  trap 'rm -rf "$unpacked"' EXIT
  (cd "$unpacked" && apt-get download -qq -o APT::Sandbox::User=root prometheus && dpkg-deb -x prometheus_*.deb .)
  mkdir -p out/tools
  cp "$unpacked"/usr/bin/prometheus "$unpacked"/usr/bin/promtool out/tools/
fi
