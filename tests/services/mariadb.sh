# shellcheck shell=bash
# A throwaway MariaDB. Sourced by `up`; the service is called mysql, as its URL is.

mysql_up() {
  local home=$services_dir/mysql
  require_version mysql "$(mariadbd --no-defaults --version | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1)" 10.6
  make_server_dir mysql
  if ! as_service_user mariadb-install-db --no-defaults --datadir="$home/data" \
    --auth-root-authentication-method=normal --skip-test-db >>"$home/log" 2>&1; then
    show_log mysql
    fail "mariadb-install-db failed"
  fi
  # A real user with a password, so that the tests log in as in production; he may create
  # databases, one for each test.
  cat >"$home/users.sql" <<'SQL'
CREATE DATABASE IF NOT EXISTS idem;
CREATE USER IF NOT EXISTS 'idem'@'127.0.0.1' IDENTIFIED BY 'idem';
GRANT ALL PRIVILEGES ON *.* TO 'idem'@'127.0.0.1' WITH GRANT OPTION;
SQL
  try_ports mysql mysql_start
}

mysql_start() {
  local home=$services_dir/mysql port
  port=$(free_port)
  # The log is written at every commit but synced once a second: a killed process loses nothing,
  # only a machine that dies would. The doublewrite buffer stays on, since a killed process can
  # tear a page in two. The collation is left at its default, which ignores case: so it is in
  # production, and so keys that differ by case must survive it.
  write_run mysql "$port" mariadbd --no-defaults --datadir="$home/data" \
    --bind-address=127.0.0.1 --port="$port" --socket="$home/socket" \
    --pid-file="$home/data/server.pid" --init-file="$home/users.sql" \
    --character-set-server=utf8mb4 --default-time-zone=+00:00 --skip-name-resolve \
    --max-connections=300 --innodb-flush-log-at-trx-commit=2
  start_server mysql mariadb-admin --no-defaults --socket="$home/socket" ping || return 1
  publish mysql IDEM_TEST_MYSQL_URL "mysql://idem:idem@127.0.0.1:$port/idem"
}
