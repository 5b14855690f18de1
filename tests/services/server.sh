# shellcheck shell=bash
# What every throwaway server shares: its folder, its port, its start and its end. Sourced by `up`.
#
# A server NAME lives in $services_dir/NAME:
#   data/    its files; the working directory of all its processes, by which they are known
#   run      starts it in the foreground, again after a kill too; a test may execute it
#   ready    succeeds when it answers
#   pid      the process that `run` became
#   port     where it listens
#   log      what it says
#   env      the variables that the tests are given

# PostgreSQL and MariaDB refuse to run as root.
service_user=nobody

# as_service_user COMMAND…: drops root's rights; replaces no process, so that a pid stays the pid.
as_service_user() {
  if ((EUID == 0)); then
    setpriv --reuid="$service_user" --regid="$(id -g "$service_user")" --clear-groups -- "$@"
  else
    "$@"
  fi
}

# make_services_dir: a new private folder that the servers can use.
make_services_dir() {
  local parent
  parent=$(cd "${TMPDIR:-/tmp}" && pwd -P)
  services_dir=$(mktemp -d "$parent/idem-services.XXXXXX")
  chmod 755 "$services_dir"
  # Unix sockets, by which a server is told from a stranger on the same port, have short paths.
  if ((${#services_dir} > 70)) || ! as_service_user test -x "$services_dir"; then
    rmdir "$services_dir"
    fail "$parent has too long a path or is closed to the user $service_user: set TMPDIR to another folder, such as /tmp"
  fi
}

# make_server_dir NAME: an empty folder for the server.
make_server_dir() {
  local home=$services_dir/$1
  mkdir -p "$home/data"
  rm -rf "${home:?}/data/"*
  : >"$home/log"
  if ((EUID == 0)); then chown -R "$service_user" "$home"; fi
}

# free_port: prints a port that nobody listens on. Below 32768, where Linux starts to hand out
# ports to clients, so that no outgoing connection takes it. Somebody may be quicker all the same:
# whoever starts a server tries again with another port.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return 0
    fi
  done
}

# write_run NAME PORT COMMAND…: the script that starts the server.
write_run() {
  local home=$services_dir/$1 user=()
  echo "$2" >"$home/port"
  shift 2
  if ((EUID == 0)); then
    user=(setpriv "--reuid=$service_user" "--regid=$(id -g "$service_user")" --clear-groups --)
  fi
  {
    echo '#!/usr/bin/env bash'
    echo 'set -eu'
    printf 'PATH=%q\n' "$PATH"
    printf 'cd %q\n' "$home/data"
    printf 'echo $$ >%q\n' "$home/pid"
    printf 'exec'
    printf ' %q' "${user[@]}" "$@"
    printf ' </dev/null >>%q 2>&1\n' "$home/log"
  } >"$home/run"
  chmod +x "$home/run"
}

# start_server NAME READY…: starts it and waits until the command READY succeeds. Fails if the
# server ends first, as it does when its port has been taken.
start_server() {
  local home=$services_dir/$1 name=$1 pid deadline=$((SECONDS + 60))
  shift
  {
    echo '#!/usr/bin/env bash'
    printf 'PATH=%q\n' "$PATH"
    # A stranger on the port may take the question and never answer.
    printf 'exec timeout --foreground 3'
    printf ' %q' "$@"
    printf ' </dev/null >/dev/null 2>&1\n'
  } >"$home/ready"
  chmod +x "$home/ready"
  "$home/run" &
  pid=$!
  until "$home/ready"; do
    if ! kill -0 "$pid" 2>/dev/null; then return 1; fi
    if ((SECONDS >= deadline)); then
      show_log "$name"
      fail "$name did not answer within a minute"
    fi
    sleep 0.05
  done
}

# try_ports NAME START: calls START, which picks ports and starts the server, until it succeeds.
try_ports() {
  local name=$1 try
  for try in 1 2 3 4 5; do
    if "$2"; then return 0; fi
  done
  show_log "$name"
  fail "$name did not start ($try tries, each on another port)"
}

show_log() {
  echo "--- the end of $1's log" >&2
  tail -n 20 "$services_dir/$1/log" >&2
  echo "---" >&2
}

# publish NAME VARIABLE VALUE: what the tests are told.
publish() {
  printf '%s=%s\n' "$2" "$3" >>"$services_dir/$1/env"
}

# server_processes: prints the processes whose working directory is a server's data folder.
server_processes() {
  local find=(find /proc/[0-9]*/cwd -maxdepth 0 -lname "$services_dir/*/data*")
  if [[ -d /proc/self/cwd ]]; then
    # Processes end while find looks at them, which it takes for a failure.
    {
      "${find[@]}" || true
      # In a container root may be forbidden to look at other users' processes.
      if ((EUID == 0)); then as_service_user "${find[@]}" || true; fi
    } 2>/dev/null | cut -d / -f 3 | sort -u
  else
    cat "$services_dir"/*/pid 2>/dev/null || true
  fi
}

# remove_services: ends every server and removes the folder. Quick rather than polite, since the
# data goes too; only PostgreSQL is asked first, because it must give shared memory back.
remove_services() {
  local pids pid deadline=$((SECONDS + 3))
  if pid=$(head -n 1 "$services_dir/postgres/data/postmaster.pid" 2>/dev/null); then
    kill -QUIT "$pid" 2>/dev/null || true
    kill -CONT "$pid" 2>/dev/null || true
    while [[ $'\n'$(server_processes)$'\n' == *$'\n'"$pid"$'\n'* ]] && ((SECONDS < deadline)); do
      sleep 0.02
    done
  fi
  deadline=$((SECONDS + 10))
  while pids=$(server_processes) && [[ -n $pids ]] && ((SECONDS < deadline)); do
    # shellcheck disable=SC2086 # one word for each process
    kill -KILL $pids 2>/dev/null || true
    sleep 0.02
  done
  rm -rf "$services_dir"
}

# guard_services: removes everything also when this script is killed with SIGKILL. The guard sleeps
# on a pipe that only this script holds open for writing ($life); its end is the guard's signal.
guard_services() {
  mkfifo "$services_dir/life"
  set -m
  (
    set +m
    trap '' INT TERM HUP
    cat >/dev/null
    remove_services
  ) <"$services_dir/life" >/dev/null &
  set +m
  # Not one of the jobs that a signal ends.
  disown
  exec {life}>"$services_dir/life"
}

# end_services: for the EXIT trap.
end_services() {
  local deadline=$((SECONDS + 20))
  if [[ -z ${services_dir:-} || ! -e $services_dir ]]; then return 0; fi
  if [[ -n ${life:-} ]]; then
    exec {life}>&-
    while [[ -e $services_dir ]] && ((SECONDS < deadline)); do sleep 0.02; done
  fi
  if [[ -e $services_dir ]]; then remove_services; fi
}
