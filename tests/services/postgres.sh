# shellcheck shell=bash
# A throwaway PostgreSQL. Sourced by `up`.

postgres_up() {
  # All programs of one version; and not those on Debian's PATH, which look for its own clusters.
  PATH=$(dirname "$(readlink -f "$(command -v initdb)")"):$PATH
  make_server_dir postgres
  echo idem >"$services_dir/postgres/password"
  # A superuser with a password, so that the tests log in as in production, yet may end the
  # connections of others and change roles. The password is sent as it is: SCRAM costs a client
  # built without optimisation so much computing that every new connection is late. The C locale spares initdb half its time; equality of
  # text does not depend on it.
  if ! as_service_user initdb --pgdata="$services_dir/postgres/data" --username=idem \
    --pwfile="$services_dir/postgres/password" --auth-host=password --auth-local=trust \
    --encoding=UTF8 --no-locale --no-sync >>"$services_dir/postgres/log" 2>&1; then
    show_log postgres
    fail "initdb failed"
  fi
  try_ports postgres postgres_start
}

postgres_start() {
  local port
  port=$(free_port)
  # fsync off: it guards against the death of the machine, which a throwaway server does not
  # outlive. The death of a process loses nothing by it, since what a commit has written is in the
  # kernel's cache; for that, synchronous_commit stays on. full_page_writes stays on as well:
  # a killed process can tear a page in two.
  # pg_stat_statements: tests count the statements that a request costs.
  write_run postgres "$port" postgres -D "$services_dir/postgres/data" \
    -c listen_addresses=127.0.0.1 -c "port=$port" \
    -c "unix_socket_directories=$services_dir/postgres" \
    -c fsync=off -c max_connections=300 -c timezone=UTC \
    -c shared_preload_libraries=pg_stat_statements
  start_server postgres pg_isready -h "$services_dir/postgres" -p "$port" || return 1
  publish postgres IDEM_TEST_POSTGRES_URL "postgres://idem:idem@127.0.0.1:$port/postgres"
}
