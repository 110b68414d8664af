#!/usr/bin/env bash
# Installs what testing this repository needs beside Go, if it is not there: git, a C
# compiler with the C library's headers for the race detector, and what tests run.
set -euo pipefail

missing=()
command -v git >/dev/null || missing+=(git)
command -v gcc >/dev/null || missing+=(gcc)
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
command -v busybox >/dev/null || missing+=(busybox-static)
command -v ip >/dev/null || missing+=(iproute2)
command -v nft >/dev/null || [ -e /usr/sbin/nft ] || missing+=(nftables)
command -v wget >/dev/null || missing+=(wget)
if [ ${#missing[@]} -eq 0 ]; then
  echo "everything is there"
  exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]}. Install them, or run this as root on Debian." >&2
  exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
