//! A lab with everything that a test needs around it.

use super::{Call, Connection, Journal, Lab, every, loopback::unshared_address, request};
use crate::services::{self, Fresh, Store};
use reqwest::{Client, Method, redirect};
use serde_json::Value;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

/// A lab on a clean place in a store, with a journal and users of its own.
#[derive(Debug)]
pub struct Site {
    /// The lab. It ends before the place that it uses.
    pub lab: Lab,
    /// What its handlers wrote down, those of every lab of this site.
    pub journal: Journal,
    binary: PathBuf,
    client: Client,
    tag: String,
    place: Fresh,
    _folder: TempDir,
}

impl Site {
    /// A site on this store, whose lab is started with these flags.
    ///
    /// # Panics
    ///
    /// If the lab does not start.
    pub async fn open(binary: &Path, store: Store, flags: &[&str]) -> Site {
        Self::open_in(binary, services::fresh(store).await, flags).await
    }

    /// A site in this place, whose lab is started with these flags.
    ///
    /// # Panics
    ///
    /// If the lab does not start.
    pub async fn open_in(binary: &Path, place: Fresh, flags: &[&str]) -> Site {
        let folder = TempDir::with_prefix("idem-lab-").expect("a folder for temporary files");
        let journal = Journal::at(folder.path().join("journal"));
        let lab = start_lab(binary, &place, place.url(), &journal, flags).await;
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            // Well before the lab closes an idle connection, after five seconds: a request must not
            // meet the end of one that it takes up again.
            .pool_idle_timeout(Duration::from_secs(2))
            .build()
            .expect("a client");
        Site {
            lab,
            journal,
            binary: binary.to_owned(),
            client,
            tag: uuid::Uuid::new_v4().simple().to_string()[..8].to_owned(),
            place,
            _folder: folder,
        }
    }

    /// Runs a behaviour on a site on each selected store.
    ///
    /// # Panics
    ///
    /// If it fails on any of them.
    pub async fn on_each(binary: &str, flags: &[&str], behaviour: impl AsyncFn(Site)) {
        Self::on_these(services::selected(), binary, flags, behaviour).await;
    }

    /// The same on each of `stores`.
    ///
    /// # Panics
    ///
    /// If it fails on any of them.
    pub async fn on_these(
        stores: Vec<Store>,
        binary: &str,
        flags: &[&str],
        behaviour: impl AsyncFn(Site),
    ) {
        every::each(stores, async |store| {
            behaviour(Site::open(Path::new(binary), store, flags).await).await;
        })
        .await;
    }

    /// Another process on the same store and journal.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn another(&self, flags: &[&str]) -> Lab {
        let url = self.place.url();
        start_lab(&self.binary, &self.place, url, &self.journal, flags).await
    }

    /// The same with a link of its own to the store's server, where the others use a relay.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn another_past_the_relay(&self, flags: &[&str]) -> Lab {
        let url = self.place.direct_url();
        start_lab(&self.binary, &self.place, url, &self.journal, flags).await
    }

    /// Ends the lab as `kill -9` does and starts it again.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub async fn restart(&mut self, flags: &[&str]) {
        self.lab.kill();
        self.lab = self.another(flags).await;
    }

    /// Where its records are kept.
    #[must_use]
    pub fn place(&self) -> &Fresh {
        &self.place
    }

    /// Which store it is on.
    #[must_use]
    pub fn store(&self) -> Store {
        self.place.store()
    }

    /// A POST from `alice`.
    #[must_use]
    pub fn post(&self, path: &str) -> Call {
        self.call(Method::POST, path)
    }

    /// A request from `alice`.
    #[must_use]
    pub fn call(&self, method: Method, path: &str) -> Call {
        Call::new(
            self.client.clone(),
            self.lab.address(),
            method,
            path,
            &self.tag,
        )
    }

    /// A connection to write to by hand.
    ///
    /// # Panics
    ///
    /// If the lab does not listen.
    pub async fn connect(&self) -> Connection {
        Connection::open(self.lab.address()).await
    }

    /// The line that says that a request is from `user`, for requests written by hand.
    #[must_use]
    pub fn token(&self, user: &str) -> String {
        format!("Bearer {user}-{}", self.tag)
    }

    /// A POST from `alice`, written by hand.
    #[must_use]
    pub fn raw_post(&self, path: &str, headers: &[(&str, &[u8])], body: &[u8]) -> Vec<u8> {
        let token = self.token("alice");
        let mut all = vec![("Authorization", token.as_bytes())];
        all.extend_from_slice(headers);
        request("POST", path, &all, body)
    }

    /// A connection on which a POST from `alice` has been sent, written by hand, with `{}` for a body.
    ///
    /// # Panics
    ///
    /// If the lab does not listen, or hangs up.
    pub async fn post_by_hand(&self, path: &str, headers: &[(&str, &[u8])]) -> Connection {
        let mut connection = self.connect().await;
        let post = self.raw_post(path, headers, b"{}");
        connection.send(&post).await.unwrap();
        connection
    }

    /// What the operator sees of the records of this site's users, and of those of nobody.
    ///
    /// # Panics
    ///
    /// If the lab cannot list them.
    pub async fn records(&self) -> Vec<Value> {
        let listed = self.call(Method::GET, "/lab/records").send().await;
        let Value::Array(mut records) = listed.json() else {
            panic!("no list: {listed:?}");
        };
        records.retain(|record| {
            record["scope"]
                .as_str()
                .is_some_and(|scope| scope.contains(&self.tag))
        });
        records
    }

    /// The orders that transactional handlers committed: their ids.
    ///
    /// # Panics
    ///
    /// If the lab cannot list them.
    pub async fn orders(&self) -> Vec<u64> {
        let listed = self.call(Method::GET, "/lab/orders").send().await;
        let rows = listed.json();
        let rows = rows.as_array().expect("a list of rows");
        rows.iter()
            .filter(|row| {
                row["user_name"]
                    .as_str()
                    .is_some_and(|user| user.contains(&self.tag))
            })
            .map(|row| row["id"].as_u64().expect("an id"))
            .collect()
    }

    /// How many orders transactional handlers committed for this user.
    ///
    /// # Panics
    ///
    /// If the lab cannot list them.
    pub async fn orders_of(&self, user: &str) -> usize {
        let listed = self.call(Method::GET, "/lab/orders").send().await;
        let rows = listed.json();
        let user = format!("{user}-{}", self.tag);
        let rows = rows.as_array().expect("a list of rows").iter();
        rows.filter(|row| row["user_name"] == user).count()
    }

    /// A metric's value, by its name and labels as they are printed; 0 if there is none.
    ///
    /// # Panics
    ///
    /// If the lab does not answer.
    pub async fn metric(&self, name: &str) -> f64 {
        let metrics = self.call(Method::GET, "/metrics").send().await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        text.lines()
            .filter_map(|line| line.rsplit_once(' '))
            .find(|(known, _)| *known == name)
            .map_or(0.0, |(_, value)| value.parse().expect("a number"))
    }

    /// Where the lab listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.lab.address()
    }
}

/// A lab in this place, reached by this address of it.
///
/// # Panics
///
/// If it does not start.
pub async fn start_lab(
    binary: &Path,
    place: &Fresh,
    url: &str,
    journal: &Journal,
    flags: &[&str],
) -> Lab {
    let mut arguments = vec![
        "--store".to_owned(),
        url.to_owned(),
        "--journal".to_owned(),
        journal.path().display().to_string(),
        "--bind".to_owned(),
        unshared_address().to_string(),
        // A machine busy with many tests must not look like a store that is down.
        "--store-timeout".to_owned(),
        "10s".to_owned(),
    ];
    if matches!(place.store(), Store::Redis | Store::RedisCluster) {
        arguments.extend(["--key-prefix".to_owned(), format!("{}:", place.name())]);
    }
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let binary = binary.to_owned();
    spawn_blocking(move || Lab::start(&binary, &arguments))
        .await
        .expect("the lab starts")
}
