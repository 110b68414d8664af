# What the demo says and shows. It is sourced; commands of owners use the kubeconfigs in $keys.

bold='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

# clean prints a line without what a terminal would obey instead of showing it.
clean() { printf '%s\n' "${1//[[:cntrl:]]/}"; }

# typed prints a command as one would type it: words in quotes only where a shell needs them.
typed() {
  local word line=''
  for word in "$@"; do
    if [[ ! $word =~ ^[A-Za-z0-9_@%+=:,./-]+$ ]]; then
      word="'${word//\'/\'\\\'\'}'"
    fi
    line+="${line:+ }$word"
  done
  clean "$line"
}

# show prints a command as one could type it, then runs it.
show() {
  printf '%s$ %s%s\n' "$dim" "$(typed "$@")" "$plain"
  "$@"
}

# at CLUSTER COMMAND…: as its owner would, with his kubeconfig.
at() {
  local cluster=$1
  shift
  printf '%s%s$ %s%s\n' "$dim" "$cluster" "$(typed "$@")" "$plain"
  KUBECONFIG=$keys/$cluster "$@"
}

# key CLUSTER stores its kubeconfig for this user's eyes only: it is an administrator's.
key() { (umask 077 && pelago-sandbox kubeconfig "$1" >"$keys/$1"); }

# past_proxies has programs reach the sandbox as it is: a proxy for the world outside knows no way to it.
past_proxies() {
  local own=${no_proxy:-${NO_PROXY:-}}
  if [ "$own" != '*' ]; then
    export NO_PROXY="${own:+$own,}198.18.0.0/15,fd5a:70e1:a90::/48"
    export no_proxy=$NO_PROXY
  fi
}

# undo ends what a run that was interrupted has left: a link that is cut, a tenant that is drained.
undo() {
  pelago-sandbox link heal rome milan >/dev/null
  if pelago-sandbox kubectl milan -- get tenant rome >/dev/null 2>&1; then
    KUBECONFIG=$keys/milan pelago uncordon tenant rome >/dev/null
  fi
}
