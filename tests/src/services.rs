//! The engines that the tests run on: which ones, where they are, and a clean place in each.
//!
//! `tests/run` starts throwaway servers and says where they are in variables, which are read when
//! a test runs. A variable that is missing fails the test, and the failure says what to run: a
//! test never passes by not running.
//!
//! - [`selected`]: the stores that this run is about; a suite for every store loops over them.
//! - [`fresh`]: a database, file or key prefix that no other test sees, gone when it is dropped.
//! - [`OwnServers`]: servers of a test's own, for the tests that kill or freeze them.

// This module speaks to people at a terminal: a panic with a sentence is how a test fails.
#![allow(clippy::panic, clippy::expect_used)]

mod fresh;
mod own;

use std::env;
use std::fmt;
use std::str::FromStr;

pub use fresh::{Fresh, fresh, fresh_mysql, fresh_postgres, fresh_redis, fresh_sqlite};
pub use own::OwnServers;

/// Where the names of the [`selected`] stores stand, separated by commas.
pub const STORES_VARIABLE: &str = "IDEM_TEST_STORES";

/// The address of the PostgreSQL database through a PgBouncer in transaction mode.
pub const PGBOUNCER_VARIABLE: &str = "IDEM_TEST_PGBOUNCER_URL";

/// An engine that records are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Store {
    /// Inside the process.
    Memory,
    /// A file.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    MySql,
    /// One Redis server.
    Redis,
    /// A Redis Cluster.
    RedisCluster,
}

impl Store {
    /// Every store.
    pub const ALL: [Self; 6] = [
        Self::Memory,
        Self::Sqlite,
        Self::Postgres,
        Self::MySql,
        Self::Redis,
        Self::RedisCluster,
    ];

    /// The name on the command line of `tests/run` and in [`STORES_VARIABLE`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::Redis => "redis",
            Self::RedisCluster => "redis-cluster",
        }
    }

    /// The variable that holds the server's address; none for a store without a server.
    #[must_use]
    pub const fn variable(self) -> Option<&'static str> {
        match self {
            Self::Memory | Self::Sqlite => None,
            Self::Postgres => Some("IDEM_TEST_POSTGRES_URL"),
            Self::MySql => Some("IDEM_TEST_MYSQL_URL"),
            Self::Redis => Some("IDEM_TEST_REDIS_URL"),
            Self::RedisCluster => Some("IDEM_TEST_REDIS_CLUSTER"),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Store {
    type Err = String;

    /// # Errors
    ///
    /// A sentence with the names there are, if this is none of them.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|store| store.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("unknown store {name:?}, there are: {names}")
            })
    }
}

/// The stores that this run is about: all of them, or those in [`STORES_VARIABLE`].
///
/// # Panics
///
/// If that variable holds something else than names of stores: a misspelt name must not make a run
/// that tests nothing.
#[must_use]
pub fn selected() -> Vec<Store> {
    match env::var(STORES_VARIABLE) {
        Err(env::VarError::NotPresent) => Store::ALL.to_vec(),
        Err(error) => panic!("{STORES_VARIABLE}: {error}"),
        Ok(names) => parse_selection(&names).unwrap_or_else(|error| {
            panic!("{STORES_VARIABLE}: {error}");
        }),
    }
}

/// Is this run about `store`? For the tests of what one engine alone does.
///
/// # Panics
///
/// As [`selected`].
#[must_use]
pub fn is_selected(store: Store) -> bool {
    selected().contains(&store)
}

fn parse_selection(names: &str) -> Result<Vec<Store>, String> {
    names.split(',').map(|name| name.trim().parse()).collect()
}

/// The address of a server, shared by all tests: see [`fresh`] for a place of one's own in it.
///
/// # Panics
///
/// If the variable is not set; and for the stores without a server.
#[must_use]
pub fn url(store: Store) -> String {
    let variable = store
        .variable()
        .unwrap_or_else(|| panic!("{store} has no server: use fresh(Store::{store:?})"));
    required(variable, store)
}

/// The address of the PostgreSQL database through PgBouncer.
///
/// # Panics
///
/// If the variable is not set.
#[must_use]
pub fn pgbouncer_url() -> String {
    required(PGBOUNCER_VARIABLE, Store::Postgres)
}

fn required(variable: &str, store: Store) -> String {
    match env::var(variable) {
        Ok(value) if !value.is_empty() => value,
        _ => panic!(
            "{variable} is not set: run this test with `tests/run --store {store}`, which starts \
             the server, or set {variable} to the address of a server of your own"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_is_known_by_its_name() {
        for store in Store::ALL {
            assert_eq!(store.name().parse(), Ok(store));
        }
    }

    #[test]
    fn a_selection_keeps_its_order() {
        assert_eq!(
            parse_selection("redis, memory"),
            Ok(vec![Store::Redis, Store::Memory])
        );
    }

    #[test]
    fn a_misspelt_store_is_refused_with_the_names_there_are() {
        let error = parse_selection("memory,postgress").expect_err("no such store");
        assert!(
            error.contains("postgress") && error.contains("redis-cluster"),
            "{error}"
        );
        assert!(
            parse_selection("").is_err(),
            "an empty selection tests nothing"
        );
    }

    #[test]
    #[should_panic(expected = "tests/run --store mysql")]
    fn a_missing_variable_says_what_to_run() {
        let _ = required("IDEM_TEST_NO_SUCH_VARIABLE", Store::MySql);
    }
}
