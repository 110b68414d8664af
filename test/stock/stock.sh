#!/usr/bin/env bash
# Runs tests on Debian as it is installed, in a virtual machine without acceleration: with
# the kernel that Debian has, its WireGuard, control groups of version 2 alone, and modules
# that nobody has loaded. Prints what go test -json would. Needs root, and Debian on amd64.
# out/stock keeps the installation; what is run is put into a new disk each time.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "$(id -u)" -ne 0 ] || [ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ]; then
  echo "stock.sh needs root, and Debian on amd64" >&2
  exit 1
fi
declare -A packages=([debootstrap]=debootstrap [qemu-system-x86_64]=qemu-system-x86 [mke2fs]=e2fsprogs)
missing=()
for program in "${!packages[@]}"; do
  PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || missing+=("${packages[$program]}")
done
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "${missing[@]}" >&2
fi
export PATH=$PATH:/usr/sbin:/sbin

. /etc/os-release
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Component: main" "Codename: $VERSION_CODENAME" | head -n 1)
out=$PWD/out/stock
debian=$out/$VERSION_CODENAME
mkdir -p "$out"
if [ ! -e "$debian/etc/hostname" ]; then
  rm -rf "$debian" "$debian.new"
  debootstrap --variant=minbase --include=linux-image-cloud-amd64,systemd-sysv,iproute2,nftables,busybox-static,kmod \
    "$VERSION_CODENAME" "$debian.new" "$mirror" >&2
  echo stock >"$debian.new/etc/hostname"
  mv "$debian.new" "$debian"
fi

# What runs: a package, where it is, and which of its tests.
work=$(mktemp -d "$out/run.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
cp -a "$debian" "$root"
mkdir -p "$root/stock"
number=0
while read -r module package pattern; do
  number=$((number + 1))
  (cd "$module" && CGO_ENABLED=0 go test -c -trimpath -ldflags=-w -o "$root/stock/$number.test" "./$package") >&2
  mkdir -p "$root/stock/tree/$module/$package"
  if [ -d "$module/$package/testdata" ]; then cp -r "$module/$package/testdata" "$root/stock/tree/$module/$package/"; fi
  folder=$module/$package
  echo "$number ${folder#./} $pattern" >>"$root/stock/list"
done <test/stock/list

cat >"$root/stock/run.sh" <<'EOF'
while read -r number folder pattern; do
  echo "stock: $folder"
  cd "/stock/tree/$folder" && "/stock/$number.test" -test.v=test2json -test.timeout 15m -test.run "$pattern"
  echo "stock: ended with $?"
done </stock/list
echo "stock: all"
EOF
cat >"$root/etc/systemd/system/stock.service" <<'EOF'
[Unit]
Description=tests
After=network.target systemd-modules-load.service
[Service]
Type=oneshot
ExecStart=/bin/bash /stock/run.sh
StandardOutput=file:/dev/ttyS1
StandardError=file:/dev/ttyS1
ExecStopPost=/sbin/poweroff -f
TimeoutStartSec=infinity
EOF
ln -s ../stock.service "$root/etc/systemd/system/multi-user.target.wants/stock.service"
mke2fs -q -t ext4 -d "$root" "$work/disk" 4G >&2

said=$work/said
code=0
timeout "${STOCK_TIMEOUT:-900}" qemu-system-x86_64 -M pc -accel tcg,thread=multi -cpu max -smp 2 -m 3072 -display none -monitor none \
  -no-reboot -nic none -serial "file:$work/console" -serial "file:$said" \
  -drive "file=$work/disk,if=virtio,format=raw,cache=unsafe" -kernel "$root"/boot/vmlinuz-* -initrd "$root"/boot/initrd.img-* \
  -append "console=ttyS0 root=/dev/vda rw panic=-1 quiet" >&2 || code=$?
if [ $code -ne 0 ] || ! grep -aq '^stock: all' "$said"; then
  echo "the machine ended with $code; its console said:" >&2
  tail -n 40 "$work/console" >&2
  code=1
fi
# Each package by itself, as go test would have it.
folder=
flush() { if [ -n "$folder" ]; then go tool test2json -t -p "$folder" <"$work/part"; fi; : >"$work/part"; }
while IFS= read -r line; do
  case $line in
  "stock: all"*) ;;
  "stock: ended with 0"*) ;;
  "stock: ended with "*) code=1 ;;
  "stock: "*) flush; folder=$(tr -d '\r' <<<"${line#stock: }") ;;
  *) printf '%s\n' "${line%$'\r'}" >>"$work/part" ;;
  esac
done <"$said"
flush
exit $code
