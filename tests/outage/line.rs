//! The line between a lab and its store, and how it is broken on each engine.

use crate::LAB;
use idem_tests::{
    harness::{Fault, Proxy, Site, each, eventually},
    services::{self, Fresh, OwnServers, Store},
};
use nix::sys::signal::Signal;
use redis::cluster::ClusterClient;
use sqlx::{Connection, SqliteConnection};
use std::{path::Path, sync::Arc};
use tokio::{
    sync::{Mutex, MutexGuard, OnceCell},
    task::spawn_blocking,
};

/// The servers of a throwaway cluster.
const NODES: [&str; 3] = ["redis-cluster-1", "redis-cluster-2", "redis-cluster-3"];

/// What can be broken between a lab and its store.
pub(crate) enum Line {
    /// A relay in front of the server.
    Relay(Proxy),
    /// A cluster tells its clients the addresses of its nodes, which leads them past any relay: its
    /// nodes themselves are frozen, killed and started again.
    Cluster(Cluster),
    /// A file has no line to it: another process keeps it locked.
    File(Lock),
}

/// A cluster that one test at a time breaks.
pub(crate) struct Cluster {
    servers: Arc<OwnServers>,
    broken: Broken,
    _turn: Option<MutexGuard<'static, ()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Not,
    Frozen,
    Killed,
}

/// The write lock of a SQLite file.
pub(crate) struct Lock {
    url: String,
    holder: Option<SqliteConnection>,
}

/// The selected stores that have a server of one address.
pub(crate) fn behind_a_relay() -> Vec<Store> {
    let mut stores = services::selected();
    stores.retain(|store| matches!(store, Store::Postgres | Store::MySql | Store::Redis));
    stores
}

/// The selected stores that can be out of reach.
pub(crate) fn breakable() -> Vec<Store> {
    let mut stores = services::selected();
    stores.retain(|store| *store != Store::Memory);
    stores
}

/// Runs a behaviour on a site on each store, with the line to it.
pub(crate) async fn on_each_line(
    stores: Vec<Store>,
    flags: &[&str],
    behaviour: impl AsyncFn(Line, Site),
) {
    each(stores, async |store| {
        let (line, place) = Line::open(store).await;
        let site = Site::open_in(Path::new(LAB), place, flags).await;
        behaviour(line, site).await;
    })
    .await;
}

/// The same with a relay.
pub(crate) async fn on_each_relay(flags: &[&str], behaviour: impl AsyncFn(Proxy, Site)) {
    on_each_line(behind_a_relay(), flags, async |line, site| {
        let Line::Relay(proxy) = line else {
            unreachable!("a store with one server is behind a relay")
        };
        behaviour(proxy, site).await;
    })
    .await;
}

impl Line {
    /// A clean place in a store, and the line to it.
    pub(crate) async fn open(store: Store) -> (Line, Fresh) {
        match store {
            Store::RedisCluster => {
                let cluster = Cluster::shared().await;
                let place = Fresh::on_own_server(store, cluster.servers.url(store));
                (Line::Cluster(cluster), place)
            }
            Store::Sqlite => {
                let place = services::fresh(store).await;
                (Line::File(Lock::on(&place)), place)
            }
            _ => {
                let place = services::fresh(store).await;
                let proxy = Proxy::to(place.server()).await;
                let place = place.through(proxy.address());
                (Line::Relay(proxy), place)
            }
        }
    }

    /// The same with servers that nobody else uses, and which can therefore be restarted.
    pub(crate) async fn open_own(store: Store) -> (Line, Fresh, Option<Arc<OwnServers>>) {
        if store == Store::Sqlite {
            let (line, place) = Self::open(store).await;
            return (line, place, None);
        }
        let servers = Arc::new(start(store).await);
        let place = Fresh::on_own_server(store, servers.url(store));
        let (line, place) = if store == Store::RedisCluster {
            let cluster = Cluster {
                servers: Arc::clone(&servers),
                broken: Broken::Not,
                _turn: None,
            };
            (Line::Cluster(cluster), place)
        } else {
            let proxy = Proxy::to(place.server()).await;
            let place = place.through(proxy.address());
            (Line::Relay(proxy), place)
        };
        (line, place, Some(servers))
    }

    /// Connections break, and new ones are refused.
    pub(crate) async fn cut(&mut self) {
        match self {
            Line::Relay(proxy) => proxy.fail(Fault::Down),
            Line::Cluster(cluster) => cluster.kill().await,
            Line::File(lock) => lock.take().await,
        }
    }

    /// Nothing is answered any more.
    pub(crate) async fn freeze(&mut self) {
        match self {
            Line::Relay(proxy) => proxy.fail(Fault::Freeze),
            Line::Cluster(cluster) => cluster.freeze(),
            Line::File(lock) => lock.take().await,
        }
    }

    /// The store can be reached again.
    pub(crate) async fn heal(&mut self) {
        match self {
            Line::Relay(proxy) => proxy.heal(),
            Line::Cluster(cluster) => {
                let servers = Arc::clone(&cluster.servers);
                let broken = std::mem::replace(&mut cluster.broken, Broken::Not);
                spawn_blocking(move || mend(&servers, broken))
                    .await
                    .unwrap();
            }
            Line::File(lock) => lock.give_back().await,
        }
    }
}

/// Servers for one store alone.
async fn start(store: Store) -> OwnServers {
    spawn_blocking(move || OwnServers::start(&[store.name()]))
        .await
        .expect("the servers start")
}

impl Cluster {
    /// The cluster of this binary, which ends with it, as soon as it is this test's turn.
    async fn shared() -> Cluster {
        static TURN: Mutex<()> = Mutex::const_new(());
        static SERVERS: OnceCell<Arc<OwnServers>> = OnceCell::const_new();
        let turn = TURN.lock().await;
        let servers = SERVERS.get_or_init(async || Arc::new(start(Store::RedisCluster).await));
        let servers = Arc::clone(servers.await);
        // The test before may have left its nodes looking for each other.
        let urls = servers.url(Store::RedisCluster).to_owned();
        eventually("a cluster that serves every key", async || {
            serves_every_slot(&urls).await.then_some(())
        })
        .await;
        Cluster {
            servers,
            broken: Broken::Not,
            _turn: Some(turn),
        }
    }

    fn freeze(&mut self) {
        self.broken = Broken::Frozen;
        for node in NODES {
            self.servers.signal(node, Signal::SIGSTOP);
        }
    }

    async fn kill(&mut self) {
        self.broken = Broken::Killed;
        let servers = Arc::clone(&self.servers);
        spawn_blocking(move || NODES.map(|node| servers.kill(node)))
            .await
            .unwrap();
    }
}

async fn serves_every_slot(urls: &str) -> bool {
    let nodes = urls.trim_start_matches("redis-cluster://").split(',');
    let client = ClusterClient::new(nodes.map(|node| format!("redis://{node}")));
    let Ok(mut connection) = client.unwrap().get_async_connection().await else {
        return false;
    };
    for index in 0..30 {
        let set = redis::cmd("SET")
            .arg(format!("probe-{index}"))
            .arg(index)
            .arg("EX")
            .arg(60)
            .to_owned();
        let answer: redis::RedisResult<()> = set.query_async(&mut connection).await;
        if answer.is_err() {
            return false;
        }
    }
    true
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A test that fails must not take the cluster from the next one.
        mend(&self.servers, self.broken);
    }
}

fn mend(servers: &OwnServers, broken: Broken) {
    for node in NODES {
        match broken {
            Broken::Not => {}
            Broken::Frozen => servers.signal(node, Signal::SIGCONT),
            Broken::Killed => servers.restart(node),
        }
    }
}

impl Lock {
    fn on(place: &Fresh) -> Lock {
        Lock {
            url: place.url().to_owned(),
            holder: None,
        }
    }

    async fn take(&mut self) {
        let mut holder = SqliteConnection::connect(&self.url).await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE")
            .execute(&mut holder)
            .await
            .unwrap();
        self.holder = Some(holder);
    }

    async fn give_back(&mut self) {
        if let Some(holder) = self.holder.take() {
            // Its open transaction ends with it.
            holder.close().await.unwrap();
        }
    }
}
