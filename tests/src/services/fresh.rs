//! A clean place in an engine for one test, and its removal.

use std::net::SocketAddr;
use std::ops::Range;
use std::thread;

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, PgConnection};
use tempfile::TempDir;
use uuid::Uuid;

use super::{Store, pgbouncer_url, url};

/// A database, file or key prefix that no other test sees; removed when dropped.
///
/// It must outlive the servers and pools that use it: PostgreSQL and MySQL connections to the
/// database are cut when it goes.
#[derive(Debug)]
pub struct Fresh {
    store: Store,
    url: String,
    /// The server's own address, where `url` is a relay's.
    direct: Option<String>,
    name: String,
    /// Whether the database goes with this.
    owned: bool,
    // Held for its Drop.
    _folder: Option<TempDir>,
}

impl Fresh {
    /// Which engine this is a place in.
    #[must_use]
    pub const fn store(&self) -> Store {
        self.store
    }

    /// The only database of a server that a test has for itself, see [`OwnServers`]; on Redis all
    /// of it. Nothing is removed with this.
    ///
    /// [`OwnServers`]: super::OwnServers
    #[must_use]
    pub fn on_own_server(store: Store, url: &str) -> Fresh {
        Fresh {
            store,
            url: url.to_owned(),
            direct: None,
            name: unique_name(),
            owned: false,
            _folder: None,
        }
    }

    /// The same place, reached through a relay that listens there.
    ///
    /// # Panics
    ///
    /// If the address is not that of one server.
    #[must_use]
    pub fn through(mut self, relay: SocketAddr) -> Fresh {
        let mut url = self.url.clone();
        url.replace_range(server_in(&self.url), &relay.to_string());
        self.direct = Some(std::mem::replace(&mut self.url, url));
        self
    }

    /// `host:port` of the server.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn server(&self) -> &str {
        let url = self.direct_url();
        &url[server_in(url)]
    }

    /// The address, in the form that `lab --store` takes.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address of the server itself, where [`Fresh::url`] is that of a relay.
    #[must_use]
    pub fn direct_url(&self) -> &str {
        self.direct.as_deref().unwrap_or(&self.url)
    }

    /// A name that nothing else has, of letters, digits and `_`: the database's on PostgreSQL and
    /// MySQL. On Redis the server is shared and this is the prefix to give all keys.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same PostgreSQL database through PgBouncer in transaction mode.
    ///
    /// # Panics
    ///
    /// On another store, or if there is no PgBouncer.
    #[must_use]
    pub fn pgbouncer_url(&self) -> String {
        assert_eq!(
            self.store,
            Store::Postgres,
            "PgBouncer speaks PostgreSQL only"
        );
        with_database(&pgbouncer_url(), &self.name)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.owned || !matches!(self.store, Store::Postgres | Store::MySql) {
            return;
        }
        let (store, name) = (self.store, self.name.clone());
        // A thread with a runtime of its own: the test's may be the one that this blocks, or be
        // ending already.
        let dropped = thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(sqlx::Error::Io)?
                .block_on(drop_database(store, &name))
        })
        .join();
        // Not a panic: a test that fails already would abort the whole binary.
        match dropped {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("database {} was left behind: {error}", self.name),
            Err(_) => eprintln!("database {} was left behind", self.name),
        }
    }
}

/// A clean place in `store`.
///
/// # Panics
///
/// If the server's variable is not set, the server cannot be reached, or refuses.
pub async fn fresh(store: Store) -> Fresh {
    match store {
        Store::Memory => Fresh {
            store,
            url: "memory:".to_owned(),
            direct: None,
            name: unique_name(),
            owned: true,
            _folder: None,
        },
        Store::Sqlite => fresh_sqlite(),
        Store::Postgres => fresh_postgres().await,
        Store::MySql => fresh_mysql().await,
        Store::Redis | Store::RedisCluster => fresh_redis(store),
    }
}

/// A path for a new SQLite file in a folder of its own.
///
/// # Panics
///
/// If the folder cannot be made.
#[must_use]
pub fn fresh_sqlite() -> Fresh {
    let folder = TempDir::with_prefix("idem-test-").expect("a folder for temporary files");
    Fresh {
        store: Store::Sqlite,
        url: format!("sqlite:{}", folder.path().join("records.db").display()),
        direct: None,
        name: unique_name(),
        owned: true,
        _folder: Some(folder),
    }
}

/// A new PostgreSQL database.
///
/// # Panics
///
/// As [`fresh`].
pub async fn fresh_postgres() -> Fresh {
    let server = url(Store::Postgres);
    let name = unique_name();
    let created = async {
        let mut connection = PgConnection::connect(&server).await?;
        // template0, since nobody can be connected to it, which would make this fail.
        let statement = format!("CREATE DATABASE {name} TEMPLATE template0");
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await?;
        connection.close().await
    };
    explain(Store::Postgres, created.await);
    Fresh {
        store: Store::Postgres,
        url: with_database(&server, &name),
        direct: None,
        name,
        owned: true,
        _folder: None,
    }
}

/// A new MySQL or MariaDB database, in the server's default character set and collation.
///
/// # Panics
///
/// As [`fresh`].
pub async fn fresh_mysql() -> Fresh {
    let server = url(Store::MySql);
    let name = unique_name();
    let created = async {
        let mut connection = MySqlConnection::connect(&server).await?;
        let statement = format!("CREATE DATABASE {name}");
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await?;
        connection.close().await
    };
    explain(Store::MySql, created.await);
    Fresh {
        store: Store::MySql,
        url: with_database(&server, &name),
        direct: None,
        name,
        owned: true,
        _folder: None,
    }
}

/// A key prefix for the shared Redis or Redis Cluster, see [`Fresh::name`]. The keys stay: they
/// have a time to live, as every key of the toolkit must.
///
/// # Panics
///
/// If the variable is not set, or if `store` is another one.
#[must_use]
pub fn fresh_redis(store: Store) -> Fresh {
    assert!(
        matches!(store, Store::Redis | Store::RedisCluster),
        "{store} is no Redis"
    );
    Fresh {
        store,
        url: url(store),
        direct: None,
        name: unique_name(),
        owned: true,
        _folder: None,
    }
}

async fn drop_database(store: Store, name: &str) -> Result<(), sqlx::Error> {
    if store == Store::Postgres {
        let mut connection = PgConnection::connect(&url(store)).await?;
        let statement = format!("DROP DATABASE {name} WITH (FORCE)");
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut connection)
            .await?;
        return connection.close().await;
    }
    let mut connection = MySqlConnection::connect(&url(store)).await?;
    // An open transaction of a connection that a test left would hold DROP DATABASE up for a day.
    let left: Vec<u64> = sqlx::query_scalar(
        "SELECT CAST(id AS UNSIGNED) FROM information_schema.processlist WHERE db = ?",
    )
    .bind(name)
    .fetch_all(&mut connection)
    .await?;
    for id in left {
        // One that has ended by itself meanwhile is no failure.
        let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}")))
            .execute(&mut connection)
            .await;
    }
    let statement = format!("SET lock_wait_timeout = 10; DROP DATABASE {name}");
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut connection)
        .await?;
    connection.close().await
}

fn explain(store: Store, created: Result<(), sqlx::Error>) {
    if let Err(error) = created {
        let variable = store.variable().unwrap_or_default();
        panic!("no new database on the server that {variable} names: {error}");
    }
}

fn unique_name() -> String {
    format!("idem_{}", Uuid::new_v4().simple())
}

/// The address of another database on the same server.
fn with_database(url: &str, name: &str) -> String {
    let query = url.find('?').map_or("", |at| &url[at..]);
    format!("{}/{name}{query}", &url[..authority_in(url).end])
}

/// Where user, password, host and port stand.
fn authority_in(url: &str) -> Range<usize> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?']);
    start..end.map_or(url.len(), |at| start + at)
}

/// Where host and port stand.
fn server_in(url: &str) -> Range<usize> {
    let Range { start, end } = authority_in(url);
    let start = url[start..end]
        .rfind('@')
        .map_or(start, |at| start + at + 1);
    let server = &url[start..end];
    assert!(
        server.contains(':') && !server.contains(','),
        "{server:?} is not one server"
    );
    start..end
}

#[cfg(test)]
mod tests {
    use super::super::is_selected;
    use super::*;

    #[test]
    fn the_database_of_an_address_is_replaced_and_nothing_else() {
        for (url, expected) in [
            ("postgres://u:p@h:1/old", "postgres://u:p@h:1/new"),
            ("postgres://u:p@h:1", "postgres://u:p@h:1/new"),
            (
                "mysql://h/old?ssl-mode=disabled&a=/b",
                "mysql://h/new?ssl-mode=disabled&a=/b",
            ),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }

    #[test]
    fn a_relay_takes_the_place_of_the_server_and_of_nothing_else() {
        let relay = SocketAddr::from(([127, 0, 0, 1], 7));
        for (url, server, expected) in [
            (
                "postgres://u:p@h:1/db?a=/b",
                "h:1",
                "postgres://u:p@127.0.0.1:7/db?a=/b",
            ),
            ("redis://h:1/", "h:1", "redis://127.0.0.1:7/"),
        ] {
            let place = Fresh::on_own_server(Store::Redis, url).through(relay);
            assert_eq!(place.url(), expected);
            assert_eq!(place.direct_url(), url);
            assert_eq!(place.server(), server);
        }
    }

    #[test]
    fn a_fresh_sqlite_file_goes_with_its_guard() {
        let place = fresh_sqlite();
        let path = std::path::PathBuf::from(place.url().trim_start_matches("sqlite:"));
        std::fs::write(&path, "records").expect("the folder is there");
        drop(place);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_fresh_postgres_database_goes_with_its_guard_although_in_use() {
        if !is_selected(Store::Postgres) {
            return;
        }
        let place = fresh_postgres().await;
        let mut direct = PgConnection::connect(place.url()).await.expect("it exists");
        let mut pooled = PgConnection::connect(&place.pgbouncer_url())
            .await
            .expect("it exists");
        for connection in [&mut direct, &mut pooled] {
            // Not prepared: the session differs from one transaction to the next.
            sqlx::raw_sql("CREATE TABLE IF NOT EXISTS t (id int); BEGIN; SELECT * FROM t; COMMIT")
                .execute(connection)
                .await
                .expect("a place to write");
        }
        sqlx::raw_sql("BEGIN; SELECT * FROM t")
            .execute(&mut direct)
            .await
            .expect("it is there");
        let url = place.url().to_owned();
        drop(place);
        let error = PgConnection::connect(&url).await.expect_err("it is gone");
        assert!(error.to_string().contains("does not exist"), "{error}");
    }

    #[tokio::test]
    async fn a_fresh_mysql_database_goes_with_its_guard_although_in_use() {
        if !is_selected(Store::MySql) {
            return;
        }
        let place = fresh_mysql().await;
        let mut connection = MySqlConnection::connect(place.url())
            .await
            .expect("it exists");
        sqlx::raw_sql("CREATE TABLE t (id int); BEGIN; SELECT * FROM t")
            .execute(&mut connection)
            .await
            .expect("a place to write");
        let url = place.url().to_owned();
        drop(place);
        let error = MySqlConnection::connect(&url)
            .await
            .expect_err("it is gone");
        assert!(error.to_string().contains("Unknown database"), "{error}");
    }

    #[tokio::test]
    async fn every_selected_store_has_places_apart() {
        for store in super::super::selected() {
            let (one, other) = (fresh(store).await, fresh(store).await);
            assert_ne!(one.name(), other.name());
            assert_eq!(one.store(), store);
        }
    }
}
