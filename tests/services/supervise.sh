# shellcheck shell=bash
# Runs a command so that ending this script ends everything the command started. Sourced.
#
# cargo does not hand a SIGTERM on to the test binaries, nor do those to the programs that they
# start; so a command gets a process group of its own, and it is the group that is ended.

# supervise COMMAND…: runs it in a process group of its own and returns its status.
supervise() {
  local status=0
  # Job control is on for this one command only: it is what makes bash give a process group, but for
  # foreground commands it would also hand them the terminal, and Ctrl-C would pass this script by.
  set -m
  (
    # See guard_services: nobody but the script itself may hold this open.
    if [[ -n ${life:-} ]]; then exec {life}>&-; fi
    exec "$@"
  ) &
  set +m
  wait "$!" || status=$?
  return "$status"
}

# group_lives GROUP: is a process of the group still running? One that has ended, but that nobody has
# taken note of yet, is not: in a container without an init that may be for ever.
group_lives() {
  local file line fields
  kill -0 -- "-$1" 2>/dev/null || return 1
  if [[ ! -e /proc/self/stat ]]; then return 0; fi
  for file in /proc/[0-9]*/stat; do
    { read -r line <"$file"; } 2>/dev/null || continue
    # After the name in parentheses: state, parent, group.
    read -ra fields <<<"${line##*) }"
    if [[ ${fields[2]} == "$1" && ${fields[0]} != Z ]]; then return 0; fi
  done
  return 1
}

# end_jobs SECONDS: ends the process groups of all background jobs; SIGKILL after SECONDS.
end_jobs() {
  local deadline=$((SECONDS + $1)) group groups
  groups=$(jobs -p)
  for group in $groups; do
    kill -TERM -- "-$group" 2>/dev/null || true
  done
  for group in $groups; do
    while group_lives "$group"; do
      if ((SECONDS >= deadline)); then
        kill -KILL -- "-$group" 2>/dev/null || true
        break
      fi
      sleep 0.05
    done
  done
}

# on_signals SECONDS: from here on SIGINT, SIGTERM and SIGHUP end the jobs, then exit the way a
# shell reports such a death. What else there is to clean up belongs in the EXIT trap.
on_signals() {
  # shellcheck disable=SC2064 # SECONDS to wait are known now
  trap "stop_on_signal 130 $1" INT
  # shellcheck disable=SC2064
  trap "stop_on_signal 143 $1" TERM
  # shellcheck disable=SC2064
  trap "stop_on_signal 129 $1" HUP
}

stop_on_signal() {
  # A second Ctrl-C must not cut the cleaning short: it is bounded in time.
  trap '' INT TERM HUP
  end_jobs "$2"
  exit "$1"
}
