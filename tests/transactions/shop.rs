//! An application with transactional routes on a database of its own.

use actix_web::{App, HttpRequest, HttpServer, dev::ServerHandle, web};
use idem_runtime::{
    Idempotency, IdempotencyBuilder,
    store::{MySqlStore, PostgresStore, SqliteStore},
};
use idem_tests::{
    harness::transactional,
    services::{self, Fresh, Store},
};
use sqlx::{
    AssertSqlSafe, MySqlPool, PgPool, Row, SqlitePool, mysql::MySqlPoolOptions,
    postgres::PgPoolOptions,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Semaphore;

/// What handlers count and wait for.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) started: Arc<Semaphore>,
    pub(crate) open: Arc<Semaphore>,
    pub(crate) runs: Arc<AtomicUsize>,
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate {
            started: Arc::new(Semaphore::new(0)),
            open: Arc::new(Semaphore::new(0)),
            runs: Arc::default(),
        }
    }

    pub(crate) async fn wait_for_a_start(&self) {
        self.started.acquire().await.unwrap().forget();
    }

    async fn pass(&self) {
        self.started.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }
}

/// The same handler on each kind of connection.
macro_rules! handlers {
    ($module:ident, $database:ty, $connection:ty, $insert:literal) => {
        pub(crate) mod $module {
            use super::Gate;
            use actix_web::{HttpResponse, post, web};
            use idem_runtime::{idempotent, outcome};
            use sqlx::{Connection as _, Executor};
            use std::{sync::atomic::Ordering, time::Duration};

            /// A user's repository function that takes any executor.
            async fn insert<'e>(
                executor: impl Executor<'e, Database = $database>,
                id: &str,
            ) -> sqlx::Result<()> {
                sqlx::query($insert)
                    .bind(id.to_owned())
                    .execute(executor)
                    .await
                    .map(drop)
            }

            #[idempotent(scope = "user", ttl = "1h", transaction = tx)]
            #[post("/tx/{what}")]
            pub(crate) async fn order(
                what: web::Path<String>,
                gate: web::Data<Gate>,
                body: String,
                tx: &mut $connection,
            ) -> actix_web::Result<HttpResponse> {
                let internal = actix_web::error::ErrorInternalServerError::<sqlx::Error>;
                gate.runs.fetch_add(1, Ordering::SeqCst);
                insert(&mut *tx, &body).await.map_err(internal)?;
                let created = HttpResponse::Created().body(body.clone());
                match what.as_str() {
                    "ok" => Ok(created),
                    "slow" => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        Ok(created)
                    }
                    "gated" => {
                        gate.pass().await;
                        Ok(created)
                    }
                    "declined" => Ok(HttpResponse::PaymentRequired().body("declined")),
                    "broken" => Err(actix_web::error::ErrorInternalServerError("broken")),
                    "kept" => Ok(outcome::keep(
                        HttpResponse::InternalServerError().body("kept"),
                    )),
                    "released" => Ok(outcome::release(HttpResponse::Created().finish())),
                    "kept-error" => Err(outcome::keep_error(
                        actix_web::error::ErrorInternalServerError("kept"),
                    )),
                    "released-error" => Err(outcome::release_error(
                        actix_web::error::ErrorPaymentRequired("not charged"),
                    )),
                    "panic" => panic!("as the test wants it"),
                    "nested" => {
                        let mut inner = tx.begin().await.map_err(internal)?;
                        insert(&mut *inner, "rolled back").await.map_err(internal)?;
                        inner.rollback().await.map_err(internal)?;
                        let mut inner = tx.begin().await.map_err(internal)?;
                        insert(&mut *inner, &format!("{body} nested"))
                            .await
                            .map_err(internal)?;
                        inner.commit().await.map_err(internal)?;
                        Ok(created)
                    }
                    "forgotten" => {
                        let mut inner = tx.begin().await.map_err(internal)?;
                        insert(&mut *inner, "forgotten").await.map_err(internal)?;
                        std::mem::forget(inner);
                        Ok(created)
                    }
                    "large" => Ok(HttpResponse::Ok().body("x".repeat(2 << 20))),
                    other => Ok(HttpResponse::NotFound().body(other.to_owned())),
                }
            }
        }
    };
}

handlers!(
    on_sqlite,
    sqlx::Sqlite,
    sqlx::SqliteConnection,
    "INSERT INTO orders (id) VALUES (?)"
);
handlers!(
    on_postgres,
    sqlx::Postgres,
    sqlx::PgConnection,
    "INSERT INTO orders (id) VALUES ($1)"
);
handlers!(
    on_mysql,
    sqlx::MySql,
    sqlx::MySqlConnection,
    "INSERT INTO orders (id) VALUES (?)"
);

/// A pool of whichever kind, for a look at the tables from outside.
pub(crate) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

macro_rules! on_pool {
    ($database:expr, $pool:ident => $work:expr) => {
        match $database {
            Database::Sqlite($pool) => $work,
            Database::Postgres($pool) => $work,
            Database::MySql($pool) => $work,
        }
    };
}

impl Database {
    pub(crate) async fn connect(store: Store, url: &str) -> Database {
        match store {
            Store::Sqlite => Database::Sqlite(SqlitePool::connect(url).await.unwrap()),
            Store::Postgres => Database::Postgres(PgPool::connect(url).await.unwrap()),
            Store::MySql => Database::MySql(MySqlPool::connect(url).await.unwrap()),
            other => panic!("{other} has no transactions"),
        }
    }

    pub(crate) async fn execute(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        on_pool!(self, pool => { sqlx::raw_sql(sql).execute(pool).await.unwrap(); });
    }

    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        let sql = AssertSqlSafe(sql.to_owned());
        on_pool!(self, pool => {
            let rows = sqlx::query(sql).fetch_all(pool).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        })
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        on_pool!(self, pool => sqlx::query(sql).fetch_one(pool).await.unwrap().get(0))
    }
}

/// Leaves out the handlers for other databases than this one's.
pub(crate) fn not_served(builder: IdempotencyBuilder, served: Store) -> IdempotencyBuilder {
    [
        (Store::Sqlite, "transactions::shop::on_sqlite"),
        (Store::Postgres, "transactions::shop::on_postgres"),
        (Store::Postgres, "transactions::postgres"),
        (Store::MySql, "transactions::shop::on_mysql"),
        (Store::MySql, "transactions::mysql"),
        (Store::Sqlite, "transactions::refused::on_sqlite"),
        (Store::Postgres, "transactions::refused::on_postgres"),
        (Store::MySql, "transactions::refused::on_mysql"),
    ]
    .into_iter()
    .filter(|(store, _)| *store != served)
    .fold(builder, |builder, (_, path)| builder.not_served(path))
}

/// How a shop is set up.
pub(crate) struct Options {
    /// Connections of the store's pool.
    pub(crate) connections: u32,
    pub(crate) lease: Duration,
    pub(crate) store_timeout: Duration,
    pub(crate) through_pooler: bool,
    /// What each connection of the store's pool begins with.
    pub(crate) setting: &'static str,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            connections: 10,
            lease: Duration::from_secs(30),
            store_timeout: Duration::from_secs(5),
            through_pooler: false,
            setting: "SELECT 1",
        }
    }
}

/// The store's own pool, to count its connections.
#[derive(Clone)]
pub(crate) enum StorePool {
    Sqlite,
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl StorePool {
    /// Connections there are, and those of them that nobody uses.
    pub(crate) fn size_and_idle(&self) -> Option<(u32, u32)> {
        let (size, idle) = match self {
            StorePool::Sqlite => return None,
            StorePool::Postgres(pool) => (pool.size(), pool.num_idle()),
            StorePool::MySql(pool) => (pool.size(), pool.num_idle()),
        };
        Some((size, u32::try_from(idle).unwrap()))
    }
}

/// One instance of the application.
pub(crate) struct Instance {
    address: SocketAddr,
    client: reqwest::Client,
    pub(crate) gate: Gate,
    pub(crate) idempotency: Idempotency,
    pub(crate) store_pool: StorePool,
    server: ServerHandle,
}

/// A status, whether the answer is a replay, and the body.
pub(crate) type Reply = (u16, bool, String);

impl Instance {
    pub(crate) async fn open(place: &Fresh, options: &Options) -> Instance {
        let setting = options.setting;
        let (builder, store_pool) = match place.store() {
            Store::Sqlite => {
                let store = SqliteStore::connect(place.url()).await.unwrap();
                (Idempotency::builder(store), StorePool::Sqlite)
            }
            Store::Postgres => {
                let url = match options.through_pooler {
                    true => place.pgbouncer_url(),
                    false => place.url().to_owned(),
                };
                let pool = PgPoolOptions::new()
                    .max_connections(options.connections)
                    .after_connect(move |connection, _| {
                        Box::pin(async move {
                            sqlx::raw_sql(setting).execute(connection).await.map(drop)
                        })
                    })
                    .connect_lazy(&url)
                    .unwrap();
                let store = PostgresStore::from_pool(pool.clone()).await.unwrap();
                (Idempotency::builder(store), StorePool::Postgres(pool))
            }
            Store::MySql => {
                let pool = MySqlPoolOptions::new()
                    .max_connections(options.connections)
                    .after_connect(move |connection, _| {
                        Box::pin(async move {
                            sqlx::raw_sql(setting).execute(connection).await.map(drop)
                        })
                    })
                    .connect_lazy(place.url())
                    .unwrap();
                let store = MySqlStore::from_pool(pool.clone()).await.unwrap();
                (Idempotency::builder(store), StorePool::MySql(pool))
            }
            other => panic!("{other} has no transactions"),
        };
        let idempotency = not_served(builder, place.store())
            .scope("user", |request: HttpRequest| {
                Some(request.headers().get("x-user")?.to_str().ok()?.to_owned())
            })
            .lease(options.lease)
            .store_timeout(options.store_timeout)
            .sweep_every(None)
            .build()
            .unwrap();
        let gate = Gate::new();
        let store = place.store();
        let server = HttpServer::new({
            let (gate, idempotency) = (gate.clone(), idempotency.clone());
            move || {
                App::new()
                    .app_data(idempotency.clone())
                    .app_data(web::Data::new(gate.clone()))
                    .configure(|config| {
                        match store {
                            Store::Sqlite => config
                                .service(on_sqlite::order)
                                .service(crate::refused::on_sqlite),
                            Store::MySql => config
                                .service(on_mysql::order)
                                .configure(crate::mysql::routes)
                                .configure(crate::refused::on_mysql::routes),
                            _ => config
                                .service(on_postgres::order)
                                .configure(crate::postgres::routes)
                                .configure(crate::refused::on_postgres::routes),
                        };
                    })
            }
        })
        .workers(2)
        .disable_signals()
        .bind("127.0.0.1:0")
        .unwrap();
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Instance {
            address,
            client: reqwest::Client::new(),
            gate,
            idempotency,
            store_pool,
            server: handle,
        }
    }

    pub(crate) fn request(
        &self,
        path: &str,
        key: Option<&str>,
        body: &str,
    ) -> reqwest::RequestBuilder {
        let request = self
            .client
            .post(format!("http://{}{path}", self.address))
            .header("x-user", "alice")
            .body(body.to_owned());
        match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        }
    }

    pub(crate) async fn post(&self, what: &str, key: Option<&str>, body: &str) -> Reply {
        self.post_to(&format!("/tx/{what}"), key, body).await
    }

    pub(crate) async fn post_to(&self, path: &str, key: Option<&str>, body: &str) -> Reply {
        let response = self.request(path, key, body).send().await;
        let response = response.expect("the server answers");
        (
            response.status().as_u16(),
            response.headers().contains_key("idempotent-replayed"),
            response.text().await.expect("a body"),
        )
    }

    pub(crate) fn runs(&self) -> usize {
        self.gate.runs.load(Ordering::SeqCst)
    }

    /// Fails unless all connections of the store's pool are free within a second.
    pub(crate) async fn expect_free_connections(&self) {
        for _ in 0..100 {
            match self.store_pool.size_and_idle() {
                Some((size, idle)) if size != idle => {}
                _ => return,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "{:?} connections and free ones",
            self.store_pool.size_and_idle()
        );
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Sent when called; waiting for the end is what the future is for.
        drop(self.server.stop(false));
    }
}

/// One instance and its database.
pub(crate) struct Shop {
    pub(crate) instance: Instance,
    pub(crate) database: Database,
    // Goes last.
    pub(crate) place: Fresh,
}

impl std::ops::Deref for Shop {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        &self.instance
    }
}

impl Shop {
    pub(crate) async fn open(store: Store) -> Shop {
        Shop::with(store, &Options::default()).await
    }

    pub(crate) async fn with(store: Store, options: &Options) -> Shop {
        let place = services::fresh(store).await;
        let instance = Instance::open(&place, options).await;
        let database = Database::connect(store, place.url()).await;
        database
            .execute("CREATE TABLE orders (id VARCHAR(100) PRIMARY KEY)")
            .await;
        Shop {
            instance,
            database,
            place,
        }
    }

    pub(crate) async fn orders(&self) -> Vec<String> {
        self.database
            .texts("SELECT id FROM orders ORDER BY id")
            .await
    }

    pub(crate) async fn records(&self) -> i64 {
        self.database
            .number("SELECT count(*) FROM idempotency_records")
            .await
    }
}

/// The selected databases that are servers.
pub(crate) fn servers() -> Vec<Store> {
    let mut stores = transactional();
    stores.retain(|store| *store != Store::Sqlite);
    stores
}
