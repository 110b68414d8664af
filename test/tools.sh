#!/usr/bin/env bash
# Installs what Go needs beside itself to test this repository, if it is not there:
# git, and a C compiler with the C library's headers for the race detector.
set -euo pipefail

missing=()
command -v git >/dev/null || missing+=(git)
command -v gcc >/dev/null || missing+=(gcc)
[ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
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
