# shellcheck shell=bash
# A throwaway Redis, and a throwaway Redis Cluster. Sourced by `up`.

check_redis_version() {
  require_version "$1" "$(redis-server --version | grep -oE 'v=[0-9.]+' | cut -c 3-)" 7.0
}

redis_up() {
  check_redis_version redis
  make_server_dir redis
  try_ports redis redis_start
}

redis_start() {
  local port
  port=$(free_port)
  start_redis redis "$port" || return 1
  publish redis IDEM_TEST_REDIS_URL "redis://127.0.0.1:$port/"
}

# start_redis NAME PORT OPTION…: one server.
start_redis() {
  local name=$1 port=$2
  shift 2
  # The append-only file, or a killed server would come back empty. appendfsync no: every command
  # is then written to the file before it is answered, so that a killed process loses nothing.
  # everysec may put that write off while a sync is running; always would wait for the disk, which
  # guards only against the death of the machine.
  # It is never rewritten: a second process that does so beside a short test only gets in its way.
  write_run "$name" "$port" redis-server --bind 127.0.0.1 --port "$port" \
    --unixsocket "$services_dir/$name/socket" --dir "$services_dir/$name/data" \
    --appendonly yes --appendfsync no --auto-aof-rewrite-percentage 0 --save "" --daemonize no "$@"
  # An error, such as that it is still loading its data, is a failure by -e only.
  start_server "$name" redis-cli -e -s "$services_dir/$name/socket" ping
}

redis_cluster_up() {
  check_redis_version redis-cluster
  try_ports redis-cluster-1 redis_cluster_start
}

redis_cluster_start() {
  local nodes=$cluster_masters node port ports=() addresses=() starts=() failed='' list
  # Masters that nobody can replace had better not be taken for dead on a busy machine; with
  # replicas, a test of failover wants to see one soon.
  local timeout=15000
  if ((cluster_replicas > 0)); then timeout=3000; fi
  nodes=$((nodes * (1 + cluster_replicas)))
  for ((node = 1; node <= nodes; node++)); do
    make_server_dir "redis-cluster-$node"
    port=$(free_port)
    ports+=("$port")
    addresses+=("127.0.0.1:$port")
    start_redis "redis-cluster-$node" "$port" --cluster-enabled yes \
      --cluster-port "$(free_port)" --cluster-node-timeout "$timeout" &
    starts+=("$!")
  done
  for node in "${starts[@]}"; do
    wait "$node" || failed=yes
  done
  if [[ -n $failed ]] || ! join_cluster "${addresses[@]}"; then
    # Half a cluster is of no use: begin again with other ports.
    for ((node = 1; node <= nodes; node++)); do
      kill -KILL "$(cat "$services_dir/redis-cluster-$node/pid")" 2>/dev/null || true
    done
    return 1
  fi
  list=$(IFS=,; echo "${addresses[*]}")
  publish redis-cluster-1 IDEM_TEST_REDIS_CLUSTER "redis-cluster://$list"
}

# join_cluster ADDRESS…: shares the slots out and waits until every node knows it.
join_cluster() {
  local address deadline=$((SECONDS + 60))
  if (($# == 1)); then
    # Redis does not call this a cluster: `create` asks for three masters.
    redis-cli -e -h "${1%:*}" -p "${1#*:}" cluster addslotsrange 0 16383
  else
    redis-cli --cluster create "$@" --cluster-replicas "$cluster_replicas" --cluster-yes
  fi >>"$services_dir/redis-cluster-1/log" 2>&1 || return 1
  for address in "$@"; do
    until cluster_is_whole "${address%:*}" "${address#*:}"; do
      if ((SECONDS >= deadline)); then return 1; fi
      sleep 0.05
    done
  done
}

# cluster_is_whole HOST PORT: does this node see all slots served, and a replica for each master?
cluster_is_whole() {
  local state replicas
  state=$(redis-cli -h "$1" -p "$2" cluster info) || return 1
  [[ $state == *cluster_state:ok* ]] || return 1
  replicas=$(redis-cli -h "$1" -p "$2" cluster nodes | grep -c 'slave') || true
  ((replicas == cluster_masters * cluster_replicas)) || return 1
  # A replica that has not copied its master's data yet cannot take over from it.
  state=$(redis-cli -h "$1" -p "$2" info replication) || return 1
  [[ $state != *role:slave* || $state == *master_link_status:up* ]]
}
