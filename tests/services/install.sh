# shellcheck shell=bash
# Makes sure that the programs of the chosen services are there. Sourced by `up`.

# Debian keeps servers off the PATH of ordinary users, and initdb off everybody's. What the PATH
# already finds goes first.
extend_path() {
  local newest
  newest=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
  PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin${newest:+:$newest}
  # bash remembers where programs were, and where they were not.
  hash -r
}

# programs SERVICE: what it is run with, one word each.
programs() {
  case $1 in
    postgres) echo initdb postgres pg_isready ;;
    pgbouncer) echo pgbouncer psql ;;
    mysql) echo mariadb-install-db mariadbd mariadb-admin ;;
    redis | redis-cluster) echo redis-server redis-cli ;;
  esac
}

# package SERVICE: its name in Debian and Ubuntu.
package() {
  case $1 in
    postgres) echo postgresql ;;
    pgbouncer) echo pgbouncer ;;
    mysql) echo mariadb-server ;;
    redis | redis-cluster) echo redis-server ;;
  esac
}

# product SERVICE: what a person would look for elsewhere.
product() {
  case $1 in
    postgres) echo "PostgreSQL 13 or newer with pg_stat_statements" ;;
    pgbouncer) echo "PgBouncer" ;;
    mysql) echo "MariaDB 10.6 or newer" ;;
    redis | redis-cluster) echo "Redis 7.0 or newer" ;;
  esac
}

# missing_program SERVICE: prints the first program that is not there; fails if all are.
missing_program() {
  local program
  for program in $(programs "$1"); do
    if ! command -v "$program" >/dev/null; then
      echo "$program"
      return 0
    fi
  done
  return 1
}

# install_missing SERVICE…: leaves with every program present, or fails and says what to do.
install_missing() {
  local service absent=() lacking packages=()
  extend_path
  for service in "$@"; do
    if missing_program "$service" >/dev/null; then absent+=("$service"); fi
  done
  if ((${#absent[@]} == 0)); then return 0; fi

  if ((EUID == 0)) && [[ -e /etc/debian_version ]] && command -v apt-get >/dev/null; then
    for service in "${absent[@]}"; do packages+=("$(package "$service")"); done
    apt_install "${packages[@]}"
    extend_path
  fi
  for service in "${absent[@]}"; do
    if lacking=$(missing_program "$service"); then
      fail "$lacking is missing: install $(product "$service") (package $(package "$service") on Debian and Ubuntu), or set $(variable "$service") to a server of your own"
    fi
  done
}

# apt_install PACKAGE…: without questions, and without starting what is installed.
apt_install() {
  local log lock
  say "installing $(printf '%s\n' "$@" | sort -u | paste -sd ' ')"
  # Runs that start together take turns; any file that is always there can carry the lock.
  exec {lock}</etc/debian_version
  flock "$lock"
  log=$(mktemp)
  # Debian's packages start their server on its usual port unless this says no. Containers often
  # have such a file already; then it stays.
  if [[ ! -e /usr/sbin/policy-rc.d ]]; then
    policy_file=/usr/sbin/policy-rc.d
    printf '#!/bin/sh\nexit 101\n' >"$policy_file"
    chmod +x "$policy_file"
  fi
  export DEBIAN_FRONTEND=noninteractive
  if ! {
    apt-get update -qq &&
      apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
  } </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    fail "apt-get could not install $*"
  fi
  rm -f "$log"
  end_apt_policy
  exec {lock}<&-
}

# end_apt_policy: lets packages start their servers again. Also for the EXIT trap.
end_apt_policy() {
  if [[ -n ${policy_file:-} ]]; then
    rm -f "$policy_file"
    policy_file=
  fi
}

# require_version SERVICE FOUND LEAST
require_version() {
  if [[ $(printf '%s\n' "$2" "$3" | sort -V | head -n 1) != "$3" ]]; then
    fail "$(product "$1") is needed, ${2:-one that does not run} is installed; or set $(variable "$1") to a server of your own"
  fi
}
