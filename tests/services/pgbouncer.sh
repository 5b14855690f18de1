# shellcheck shell=bash
# A throwaway PgBouncer in transaction mode, in front of the PostgreSQL that the tests use.
# Sourced by `up`.

# pgbouncer_up POSTGRES_URL
pgbouncer_up() {
  local home=$services_dir/pgbouncer
  local pattern='^postgres(ql)?://([^:@/]+):([^@/]*)@([^:@/]+)(:([0-9]+))?/([^?]+)'
  if [[ ! $1 =~ $pattern || $1 == *%* ]]; then
    fail "PgBouncer cannot be put in front of this IDEM_TEST_POSTGRES_URL (it is no plain postgres://user:password@host:port/database): set IDEM_TEST_PGBOUNCER_URL as well"
  fi
  pgbouncer_user=${BASH_REMATCH[2]}
  pgbouncer_password=${BASH_REMATCH[3]}
  pgbouncer_target="host=${BASH_REMATCH[4]} port=${BASH_REMATCH[6]:-5432}"
  pgbouncer_database=${BASH_REMATCH[7]}
  make_server_dir pgbouncer
  # The second one exists nowhere else: whoever lets it in is this PgBouncer.
  pgbouncer_witness=witness_${services_dir##*.}
  printf '"%s" "%s"\n' "$pgbouncer_user" "$pgbouncer_password" "$pgbouncer_witness" "" >"$home/users.txt"
  chmod 600 "$home/users.txt"
  if ((EUID == 0)); then chown "$service_user" "$home/users.txt"; fi
  try_ports pgbouncer pgbouncer_start
}

pgbouncer_start() {
  local home=$services_dir/pgbouncer port
  port=$(free_port)
  # Fewer server connections than the tests have clients, so that consecutive transactions of one
  # client really meet different sessions. Clients are trusted: it listens on loopback only, and
  # knows the password for the server behind. No Unix socket, since with one it would go on without
  # the port if somebody else has that.
  cat >"$home/pgbouncer.ini" <<INI
[databases]
* = $pgbouncer_target
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = trust
auth_file = $home/users.txt
admin_users = $pgbouncer_user
stats_users = $pgbouncer_witness
pool_mode = transaction
default_pool_size = 5
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
INI
  write_run pgbouncer "$port" pgbouncer "$home/pgbouncer.ini"
  start_server pgbouncer psql --no-psqlrc -h 127.0.0.1 -p "$port" -U "$pgbouncer_witness" \
    -d pgbouncer -c "SHOW VERSION" || return 1
  publish pgbouncer IDEM_TEST_PGBOUNCER_URL \
    "postgres://$pgbouncer_user:$pgbouncer_password@127.0.0.1:$port/$pgbouncer_database"
}
