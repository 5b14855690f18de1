//! Servers of a test's own, for the tests that kill or freeze them.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::{PGBOUNCER_VARIABLE, Store};

/// How long a server may take to end or to come back.
const PATIENCE: Duration = Duration::from_secs(30);

/// Throwaway servers that only this test uses, ended when dropped, also after a panic or when the
/// test is killed. They start in some seconds, so share one set among the steps of a test.
///
/// Servers are named as the folders in `tests/services/up --help` are: `postgres`, `pgbouncer`,
/// `mysql`, `redis`, `redis-cluster-1` and so on.
#[derive(Debug)]
pub struct OwnServers {
    up: Child,
    variables: HashMap<String, String>,
    restarted: Mutex<Vec<Child>>,
}

impl OwnServers {
    /// Starts what these arguments of `tests/services/up` name, such as `["postgres"]` or
    /// `["--cluster-replicas", "redis-cluster"]`.
    ///
    /// # Panics
    ///
    /// If they do not start; the reason is on standard error.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("services/up"));
        // A server that is shared must not be taken for one's own.
        for variable in Store::ALL.into_iter().filter_map(Store::variable) {
            command.env_remove(variable);
        }
        let mut up = command
            .env_remove(PGBOUNCER_VARIABLE)
            .args(arguments)
            // Whose end, however this process dies, is what ends the servers.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tests/services/up can be run");
        let lines = BufReader::new(up.stdout.take().expect("it is piped")).lines();
        let mut variables = HashMap::new();
        for line in lines {
            let line = line.expect("tests/services/up prints text");
            if line == "ready" {
                return Self {
                    up,
                    variables,
                    restarted: Mutex::default(),
                };
            }
            if let Some((name, value)) = line
                .strip_prefix("export ")
                .and_then(|line| line.split_once('='))
            {
                variables.insert(name.to_owned(), value.trim_matches('\'').to_owned());
            }
        }
        let status = up.wait();
        panic!("tests/services/up {arguments:?} did not start the servers: {status:?}");
    }

    /// The address of a server.
    ///
    /// # Panics
    ///
    /// If it is not among those that were started.
    #[must_use]
    pub fn url(&self, store: Store) -> &str {
        let variable = store
            .variable()
            .unwrap_or_else(|| panic!("{store} has no server"));
        self.variable(variable)
    }

    /// The address of the PgBouncer.
    ///
    /// # Panics
    ///
    /// If it is not among the servers that were started.
    #[must_use]
    pub fn pgbouncer_url(&self) -> &str {
        self.variable(PGBOUNCER_VARIABLE)
    }

    /// Sends a signal to a server, such as SIGSTOP and SIGCONT.
    ///
    /// # Panics
    ///
    /// If there is no such server, or it has ended.
    pub fn signal(&self, server: &str, signal: Signal) {
        signal::kill(self.pid(server), signal).unwrap_or_else(|error| {
            panic!("{server} cannot be sent {signal}: {error}");
        });
    }

    /// Lets a server die without a chance to tidy up, and waits until it has.
    ///
    /// # Panics
    ///
    /// If there is no such server, or it does not die.
    pub fn kill(&self, server: &str) {
        let pid = self.pid(server);
        // PostgreSQL is many processes, of which SIGQUIT makes one that ends them all at once; to
        // the data it is a crash.
        let signal = if server == "postgres" {
            Signal::SIGQUIT
        } else {
            Signal::SIGKILL
        };
        self.signal(server, signal);
        let ended = || {
            self.reap();
            has_ended(pid)
        };
        wait_until(ended, || format!("{server} does not end"));
    }

    /// Starts a server again where it was, with the data that it has, and waits until it answers.
    ///
    /// # Panics
    ///
    /// If there is no such server, or it does not come back.
    pub fn restart(&self, server: &str) {
        let home = self.folder().join(server);
        let child = Command::new(home.join("run"))
            .spawn()
            .unwrap_or_else(|error| panic!("{server} cannot be started again: {error}"));
        self.restarted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(child);
        let answers = || {
            Command::new(home.join("ready"))
                .status()
                .is_ok_and(|status| status.success())
        };
        wait_until(answers, || format!("{server} does not come back"));
    }

    /// `host:port` of one server.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    #[must_use]
    pub fn address(&self, server: &str) -> String {
        let file = self.folder().join(server).join("port");
        let port = fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{server} is not among these servers: {error}"));
        format!("127.0.0.1:{}", port.trim())
    }

    fn pid(&self, server: &str) -> Pid {
        let file = self.folder().join(server).join("pid");
        let pid = fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{server} is not among these servers: {error}"));
        Pid::from_raw(pid.trim().parse().expect("the file holds a number"))
    }

    fn folder(&self) -> PathBuf {
        PathBuf::from(self.variable("IDEM_TEST_SERVICES_DIR"))
    }

    fn variable(&self, name: &str) -> &str {
        self.variables
            .get(name)
            .unwrap_or_else(|| panic!("no server of these is behind {name}"))
    }

    /// Takes note of the restarted servers that have ended, which would stay zombies otherwise.
    fn reap(&self) {
        let mut restarted = self
            .restarted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        restarted.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for OwnServers {
    fn drop(&mut self) {
        drop(self.up.stdin.take());
        let _ = self.up.wait();
        let mut restarted = self
            .restarted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for child in restarted.iter_mut() {
            let _ = child.wait();
        }
    }
}

/// Has the process ended? One that nobody has waited for yet has; one with threads left has not,
/// since they hold its files and its port.
fn has_ended(pid: Pid) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => {
            // The state follows the name, which stands in parentheses.
            let defunct = stat
                .rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('Z'));
            let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
            defunct && threads <= 1
        }
        Err(_) => signal::kill(pid, None).is_err(),
    }
}

fn wait_until(mut done: impl FnMut() -> bool, complaint: impl FnOnce() -> String) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{}", complaint());
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::super::is_selected;
    use super::*;

    #[test]
    fn a_killed_redis_comes_back_with_what_it_had_answered() {
        if !is_selected(Store::Redis) {
            return;
        }
        let servers = OwnServers::start(&["redis"]);
        let ask = |command: &str| {
            let client = redis::Client::open(servers.url(Store::Redis)).expect("an address");
            let mut connection = client.get_connection().expect("a server");
            let words: Vec<_> = command.split(' ').collect();
            redis::cmd(words[0])
                .arg(&words[1..])
                .query::<String>(&mut connection)
        };
        for round in 0..2 {
            let value = format!("value-{round}");
            assert_eq!(ask(&format!("SET key {value}")), Ok("OK".to_owned()));
            servers.kill("redis");
            servers.restart("redis");
            assert_eq!(ask("GET key"), Ok(value));
        }
        let folder = servers.folder();
        drop(servers);
        assert!(!folder.exists(), "nothing stays");
    }

    #[tokio::test]
    async fn a_killed_postgres_comes_back_with_what_it_had_committed() {
        use sqlx::Connection as _;
        if !is_selected(Store::Postgres) {
            return;
        }
        let servers = OwnServers::start(&["postgres"]);
        let mut connection = sqlx::PgConnection::connect(servers.url(Store::Postgres))
            .await
            .expect("a server");
        sqlx::raw_sql("CREATE TABLE t AS SELECT 7 AS id")
            .execute(&mut connection)
            .await
            .expect("a place to write");
        servers.kill("postgres");
        servers.restart("postgres");
        let mut connection = sqlx::PgConnection::connect(servers.url(Store::Postgres))
            .await
            .expect("a server again");
        let id: i32 = sqlx::query_scalar("SELECT id FROM t")
            .fetch_one(&mut connection)
            .await
            .expect("a row");
        assert_eq!(id, 7);
    }
}
