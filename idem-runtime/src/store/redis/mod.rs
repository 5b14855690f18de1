//! Records on Redis 7 and later: one node, or a Redis Cluster.
//!
//! A record is one string value at one key, `idem:` and the SHA-256 of its identity, so that it
//! lies in one slot of a cluster and its key has a bounded length whatever the identity holds. The
//! key expires with the record; there is never one without an expiry.
//!
//! # Round trips
//!
//! | call | what is sent |
//! |---|---|
//! | `claim`, nothing stands there | `SET … NX GET PX` |
//! | `claim`, a finished record stands there | the same: it is the read as well |
//! | `claim`, a running record stands there | the same, if its lease has certainly not run out yet; else one script more, which decides by the server's clock |
//! | `complete`, `release`, `save_steps`, `get` | one script |
//! | `renew` | one script per lease, all of them under way at once |
//! | `forget` | `UNLINK` |
//!
//! # Waiting
//!
//! A duplicate that waits for a request of another process is told when that is settled: the scripts
//! publish it (`SPUBLISH`, which costs next to nothing where nobody listens and in a cluster goes no
//! further than the record's own shard) on a channel that is named like the record's key. A process
//! listens on a connection of its own, in a cluster one to each node, from the first time that
//! somebody waits. Whoever waits also looks from time to time, so that nothing depends on it; on a
//! connection of the application's, that is all there is. A user with limited rights needs
//! `&idem:*`, the keys' prefix, among its channels to be told.
//!
//! # What can lose records
//!
//! Redis keeps what its configuration makes it keep. The store warns when it connects to a server
//! that
//!
//! - **may evict**: any `maxmemory-policy` but `noeviction`, since all records have a TTL. With
//!   `noeviction`, a full server refuses new claims ([`StoreError::Full`]) while everything that
//!   stands is still replayed, renewed and finished;
//! - **does not keep an append-only file**: a restart loses what came after the last snapshot.
//!   `appendfsync everysec` loses up to a second when the machine dies, `always` nothing.
//!
//! It cannot see that a master was replaced before its replica had received a write: replication
//! is asynchronous, so a failover may lose the last moments. After `FLUSHALL`, or any such loss, a
//! retry is a first request and its handler runs again. Where that is not acceptable, use a SQL store.
//!
//! # Clocks
//!
//! Leases and TTLs are judged by the clock of the node that holds the record. After a failover that
//! is another node's clock, so keep the nodes synchronised to well within a lease.

mod clock;
mod codec;
#[cfg(test)]
mod entry;
mod link;
mod listener;
mod scan;
mod server;

pub use link::RedisConnection;

use self::{
    clock::Clocks,
    codec::{Extent, Moment, Value, unreadable},
    link::{Failure, Link, Script, Source},
    listener::Listener,
};
use super::{
    AbandonedQuery, Claim, Claimed, ListQuery, Renewal, Renewed, Store, StoreError, Takeover,
};
use crate::record::{Answer, FORMAT, Record, RecordId, Status, millis};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use redis::{
    Client, Cmd, IntoConnectionInfo, aio::ConnectionManagerConfig, cluster::ClusterClient,
    io::tcp::TcpSettings,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use uuid::Uuid;

/// Length of the digest in a key.
const DIGEST: usize = 64;
/// How often a server that does not answer in time is asked for the first connection: a start may
/// take longer than a call.
const ATTEMPTS: u32 = 4;
/// How many renewals are under way at once.
const RENEWALS_AT_ONCE: usize = 256;
/// Bytes of a claim's command without its key and its value, at most: four words and a number.
const CLAIM_WORDS: usize = 32;

/// A store on Redis 7 and later, one node or a Redis Cluster. See the [module](self) for what it
/// sends and what can lose its records.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use idem_runtime::store::redis::RedisStore;
///
/// let store = RedisStore::connect("redis://127.0.0.1").await?;
/// let store = RedisStore::connect("redis-cluster://10.0.0.1:6379,10.0.0.2:6379").await?;
/// # Ok(()) }
/// ```
///
/// A `rediss://` URL needs one of the TLS features of the `redis` crate, which an application turns
/// on by depending on it.
///
/// Cloning is cheap and shares the connection.
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    prefix: Arc<str>,
    /// The prefix as a pattern for `SCAN`.
    pattern: Arc<str>,
    scan_keys: u32,
    scripts: Arc<Scripts>,
    /// Where the walk for abandoned records stopped, by node.
    cursors: Arc<Mutex<HashMap<String, String>>>,
    clocks: Arc<Clocks>,
    /// None on a connection of the application's.
    listener: Option<Arc<Listener>>,
}

/// How a [`RedisStore`] is set up.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    prefix: String,
    timeout: Duration,
    scan_keys: u32,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: "idem:".to_owned(),
            timeout: Duration::from_millis(1500),
            scan_keys: 10_000,
        }
    }
}

impl RedisOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// What every key begins with; `idem:` by default. Stores of one prefix on one server share
    /// their records. In a cluster, a prefix with a hash tag (`{…}`) puts all records into one slot.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long one command may take before the store counts as unavailable; 1.5 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// About how many keys [`Store::take_abandoned`] looks at on each node before it returns;
    /// 10 000 by default, at least 1000. The next call goes on from there, so with more keys than
    /// that an abandoned record is found after as many calls as it takes to walk all of them. Each
    /// look costs the server a few microseconds. Keys of other applications in the same database
    /// count too: better give the store a server of its own.
    pub fn scan_keys(mut self, keys: u32) -> Self {
        self.scan_keys = keys;
        self
    }

    /// Connects to a single node, `redis://[user:password@]host[:port][/database]`, or to a cluster,
    /// `redis-cluster://[user:password@]host:port,host:port,…`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the server cannot be reached or used, with the reason.
    pub async fn connect(self, url: &str) -> Result<RedisStore, StoreError> {
        if let Some(nodes) = cluster_nodes(url) {
            return self.connect_cluster(nodes).await;
        }
        let refused = |error| StoreError::unavailable("connecting to Redis", error);
        let info = url.into_connection_info().map_err(refused)?;
        let info = info.set_tcp_settings(self.tcp());
        let listener = Listener::for_node(info.clone()).map_err(refused)?;
        let client = Client::open(info).map_err(refused)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(self.timeout / 2))
            .set_response_timeout(Some(self.timeout))
            // The next call tries again: a request should rather fail in time than wait.
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_millis(100));
        self.from(Source::Node(client, Box::new(config)), listener)
            .await
    }

    /// Connects to a Redis Cluster through any of its nodes, each given like for
    /// [`RedisOptions::connect`] or as `host:port`.
    ///
    /// # Errors
    ///
    /// As [`RedisOptions::connect`].
    pub async fn connect_cluster<N: AsRef<str>>(
        self,
        nodes: impl IntoIterator<Item = N>,
    ) -> Result<RedisStore, StoreError> {
        let refused = |error| StoreError::unavailable("connecting to Redis Cluster", error);
        let urls = nodes.into_iter().map(|node| {
            let node = node.as_ref();
            if node.contains("://") {
                node.to_owned()
            } else {
                format!("redis://{node}")
            }
        });
        let urls: Vec<String> = urls.collect();
        let builder = || {
            ClusterClient::builder(urls.iter().map(String::as_str))
                .tcp_settings(self.tcp())
                .connection_timeout(self.timeout / 2)
                .response_timeout(self.timeout)
        };
        let listener = Listener::for_cluster(builder()).map_err(refused)?;
        let client = builder().build().map_err(refused)?;
        self.from(Source::Cluster(Box::new(client)), listener).await
    }

    /// Uses a connection that the application already has. Reads must not be routed to replicas.
    ///
    /// # Errors
    ///
    /// As [`RedisOptions::connect`].
    pub async fn on(
        self,
        connection: impl Into<RedisConnection>,
    ) -> Result<RedisStore, StoreError> {
        self.with(connection.into(), None, None).await
    }

    async fn from(self, source: Source, listener: Listener) -> Result<RedisStore, StoreError> {
        let mut attempt = 1;
        let connection = loop {
            match source.connect().await {
                Err(error) if error.is_timeout() && attempt < ATTEMPTS => attempt += 1,
                connection => break connection,
            }
        };
        let connection =
            connection.map_err(|error| StoreError::unavailable("connecting to Redis", error))?;
        self.with(connection, Some(source), Some(listener)).await
    }

    async fn with(
        self,
        connection: RedisConnection,
        source: Option<Source>,
        listener: Option<Listener>,
    ) -> Result<RedisStore, StoreError> {
        let link = Link::new(connection, source, self.timeout);
        server::check(&link).await?;
        let clocks = server::clocks(&link).await?;
        Ok(RedisStore {
            link,
            pattern: format!("{}*", escape_glob(&self.prefix)).into(),
            prefix: self.prefix.into(),
            scan_keys: self.scan_keys,
            scripts: Arc::new(Scripts::new()),
            cursors: Arc::default(),
            clocks: Arc::new(clocks),
            listener: listener.map(Arc::new),
        })
    }

    fn tcp(&self) -> TcpSettings {
        let settings = TcpSettings::default().set_nodelay(true);
        // A server that vanished without a word would else be waited for as long as the system
        // retransmits, which is a quarter of an hour.
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let settings = settings.set_user_timeout(self.timeout * 2);
        settings
    }
}

/// The nodes of a `redis-cluster://` URL, each with the URL's user and password.
fn cluster_nodes(url: &str) -> Option<Vec<String>> {
    let rest = url.strip_prefix("redis-cluster://")?.trim_end_matches('/');
    let (login, nodes) = match rest.rsplit_once('@') {
        Some((login, nodes)) => (format!("{login}@"), nodes),
        None => (String::new(), rest),
    };
    let nodes = nodes.split(',');
    Some(nodes.map(|node| format!("redis://{login}{node}")).collect())
}

/// The scripts. All but the plain read may run on a full server: they finish what has begun.
struct Scripts {
    claim: Script,
    renew: Script,
    complete: Script,
    release: Script,
    save_steps: Script,
    take: Script,
    read: Script,
}

impl Scripts {
    fn new() -> Self {
        let write = |body| Script::new(" flags=allow-oom", body);
        Self {
            claim: write(include_str!("claim.lua")),
            renew: write(include_str!("renew.lua")),
            complete: write(include_str!("complete.lua")),
            release: write(include_str!("release.lua")),
            save_steps: write(include_str!("save_steps.lua")),
            take: write(include_str!("take.lua")),
            read: Script::new(" flags=no-writes", include_str!("read.lua")),
        }
    }
}

impl RedisStore {
    /// Connects to a single node or a cluster with the defaults, see [`RedisOptions::connect`].
    ///
    /// # Errors
    ///
    /// As [`RedisOptions::connect`].
    pub async fn connect(url: &str) -> Result<RedisStore, StoreError> {
        RedisOptions::new().connect(url).await
    }

    /// Connects to a Redis Cluster with the defaults, see [`RedisOptions::connect_cluster`].
    ///
    /// # Errors
    ///
    /// As [`RedisOptions::connect`].
    pub async fn connect_cluster<N: AsRef<str>>(
        nodes: impl IntoIterator<Item = N>,
    ) -> Result<RedisStore, StoreError> {
        RedisOptions::new().connect_cluster(nodes).await
    }

    /// Uses a connection that the application already has, with the defaults, see
    /// [`RedisOptions::on`].
    ///
    /// # Errors
    ///
    /// As [`RedisOptions::connect`].
    pub async fn on(connection: impl Into<RedisConnection>) -> Result<RedisStore, StoreError> {
        RedisOptions::new().on(connection).await
    }

    /// What every key of this store begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The Redis key at which a record stands, for whoever looks into the server by hand.
    pub fn key(&self, id: &RecordId) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut key = String::with_capacity(self.prefix.len() + DIGEST);
        key.push_str(&self.prefix);
        for byte in id.hash("redis") {
            for digit in [byte >> 4, byte & 15] {
                key.push(char::from(DIGITS[usize::from(digit)]));
            }
        }
        key
    }

    fn cursors(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, key: &str, sent: Instant, now: i64, expiry: i64) -> Moment {
        self.clocks.note(key, sent, now);
        Moment { now, expiry }
    }

    /// Reads the value at a key, if a live one stands there.
    async fn read(&self, key: &str, extent: Extent) -> Result<Option<(Bytes, Moment)>, Failure> {
        let texts_only = flag(extent == Extent::Texts);
        let sent = Instant::now();
        let found: Option<(i64, i64, Vec<u8>)> = self
            .link
            .script(&self.scripts.read, key, &[texts_only])
            .await?;
        Ok(found.map(|(now, expiry, value)| {
            let moment = self.moment(key, sent, now, expiry);
            (Bytes::from(value), moment)
        }))
    }

    /// Runs a script that answers whether the caller still owned the record.
    async fn as_owner(
        &self,
        doing: &str,
        script: &Script,
        id: &RecordId,
        arguments: &[&[u8]],
    ) -> Result<(), StoreError> {
        let key = self.key(id);
        let sent = Instant::now();
        match self.link.script(script, &key, arguments).await {
            Ok((done, now)) => {
                self.clocks.note(&key, sent, now);
                if done {
                    Ok(())
                } else {
                    Err(StoreError::LeaseLost)
                }
            }
            // Whatever stands there now, it is not the caller's.
            Err(failure) if failure.is_wrong_type() => Err(StoreError::LeaseLost),
            Err(failure) => Err(failure.into_unavailable(doing)),
        }
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<Renewed, StoreError> {
        let lease = millis(renewal.lease).to_string();
        let arguments: [&[u8]; 2] = [renewal.owner.as_bytes(), lease.as_bytes()];
        let doing = "renewing a lease";
        match self
            .as_owner(doing, &self.scripts.renew, &renewal.id, &arguments)
            .await
        {
            Ok(()) => Ok(Renewed::Held),
            Err(StoreError::LeaseLost) => Ok(Renewed::Lost),
            Err(error) => Err(error),
        }
    }

    /// Decides a claim by the server's clock.
    async fn judge(
        &self,
        claim: &Claim,
        key: &str,
        proposal: &[u8],
        px: i64,
        full: bool,
    ) -> Result<Claimed, StoreError> {
        let also_accepted = claim.also_accepted.as_deref().unwrap_or_default();
        let sent = Instant::now();
        let (verdict, now, expiry, value): (String, i64, i64, Vec<u8>) = self
            .link
            .script(
                &self.scripts.claim,
                key,
                &[
                    proposal,
                    px.to_string().as_bytes(),
                    claim.owner.as_bytes(),
                    millis(claim.lease).max(1).to_string().as_bytes(),
                    flag(claim.takeover == Takeover::Abandoned),
                    claim.fingerprint.as_bytes(),
                    also_accepted.as_bytes(),
                    FORMAT.to_string().as_bytes(),
                    flag(full),
                ],
            )
            .await
            .map_err(|failure| claim_failed(failure, &claim.id))?;
        let moment = self.moment(key, sent, now, expiry);
        match verdict.as_str() {
            "fresh" => {
                return Ok(Claimed::Won {
                    attempt: 1,
                    steps: None,
                });
            }
            "full" => return Err(StoreError::Full),
            _ => {}
        }
        let value = parse(Bytes::from(value), &claim.id)?;
        if verdict == "won" {
            let (attempt, steps) = value.won()?;
            return Ok(Claimed::Won { attempt, steps });
        }
        Ok(Claimed::Standing(Box::new(value.into_record(moment)?)))
    }
}

/// Takes apart what stands at the key of this identity.
fn parse(value: Bytes, id: &RecordId) -> Result<Value, StoreError> {
    let value = Value::parse(&value, Extent::Whole, Some(id));
    let value = value.map_err(|reason| unreadable(id, reason))?;
    if value.id != *id {
        return Err(unreadable(id, "it holds another record".to_owned()).into());
    }
    Ok(value)
}

fn wrong_type(id: &RecordId) -> StoreError {
    unreadable(id, "its key holds another type of value".to_owned()).into()
}

fn claim_failed(failure: Failure, id: &RecordId) -> StoreError {
    if failure.is_wrong_type() {
        wrong_type(id)
    } else {
        failure.into_unavailable("claiming a key")
    }
}

fn flag(on: bool) -> &'static [u8] {
    if on { b"1" } else { b"0" }
}

fn escape_glob(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let key = self.key(&claim.id);
        let earliest = self.clocks.of(&key).map(|clock| clock.earliest);
        let (proposal, px) = codec::proposal(claim, earliest);
        let mut command = Cmd::with_capacity(7, key.len() + proposal.len() + CLAIM_WORDS);
        command.arg("SET").arg(&key).arg(&proposal[..]);
        command.arg("NX").arg("GET").arg("PX").arg(px);
        let standing: Option<Vec<u8>> = match self.link.run(&command).await {
            Ok(standing) => standing,
            // The command is refused even where it would only have read.
            Err(failure) if failure.is_out_of_memory() => {
                return self.judge(claim, &key, &proposal, px, true).await;
            }
            Err(failure) => return Err(claim_failed(failure, &claim.id)),
        };
        let Some(standing) = standing else {
            return Ok(Claimed::Won {
                attempt: 1,
                steps: None,
            });
        };
        let value = parse(Bytes::from(standing), &claim.id)?;
        let Some(clock) = self.clocks.of(&key) else {
            return self.judge(claim, &key, &proposal, px, false).await;
        };
        let certain = if value.is_running() {
            // Its own claim, whose answer got lost, is for the script as well.
            value
                .certainly_leased(clock)
                .filter(|_| value.owner != claim.owner)
        } else {
            // That the key has not expired is the server's word that the record is live. Only one
            // whose expiry somebody has lifted by hand outlives its TTL: then the clock decides.
            let (completed_at, expires_at) = value.finished_span();
            let now = clock.latest.max(completed_at);
            (now < expires_at).then_some(Moment {
                now,
                expiry: expires_at,
            })
        };
        if let Some(moment) = certain {
            return Ok(Claimed::Standing(Box::new(value.into_record(moment)?)));
        }
        self.judge(claim, &key, &proposal, px, false).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, StoreError> {
        let calls: Vec<_> = renewals.iter().map(|r| self.renew_one(r)).collect();
        stream::iter(calls)
            .buffered(RENEWALS_AT_ONCE)
            .try_collect()
            .await
    }

    async fn complete(
        &self,
        id: &RecordId,
        owner: Uuid,
        answer: &Answer,
    ) -> Result<(), StoreError> {
        let status = codec::letter(Status::of_response(answer.code()));
        let (headers, body, tail) = codec::answer(answer);
        self.as_owner(
            "saving an answer",
            &self.scripts.complete,
            id,
            &[
                owner.as_bytes(),
                &[status],
                answer.code().to_string().as_bytes(),
                headers.to_string().as_bytes(),
                body.to_string().as_bytes(),
                &tail,
            ],
        )
        .await
    }

    async fn release(&self, id: &RecordId, owner: Uuid) -> Result<(), StoreError> {
        self.as_owner(
            "releasing a key",
            &self.scripts.release,
            id,
            &[owner.as_bytes()],
        )
        .await
    }

    async fn save_steps(
        &self,
        id: &RecordId,
        owner: Uuid,
        steps: &Bytes,
    ) -> Result<(), StoreError> {
        let arguments: [&[u8]; 2] = [owner.as_bytes(), steps];
        self.as_owner("saving steps", &self.scripts.save_steps, id, &arguments)
            .await
    }

    /// Walks a bounded number of keys, see [`RedisOptions::scan_keys`]; of those seen in one call,
    /// the oldest lease comes first.
    async fn take_abandoned(&self, query: &AbandonedQuery) -> Result<Vec<Record>, StoreError> {
        self.take(query)
            .await
            .map_err(|failure| failure.into_unavailable("looking for abandoned records"))
    }

    /// Nothing to do: Redis removes what has expired.
    async fn purge_expired(&self, _limit: u32) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn get(&self, id: &RecordId) -> Result<Option<Record>, StoreError> {
        let found = self.read(&self.key(id), Extent::Whole).await;
        match found {
            Ok(None) => Ok(None),
            Ok(Some((value, moment))) => Ok(Some(parse(value, id)?.into_record(moment)?)),
            Err(failure) if failure.is_wrong_type() => Err(wrong_type(id)),
            Err(failure) => Err(failure.into_unavailable("reading a record")),
        }
    }

    /// Walks all keys for every page: for an operator's eyes, not for requests.
    async fn list(&self, query: &ListQuery) -> Result<Vec<Record>, StoreError> {
        self.list_in_order(query)
            .await
            .map_err(|failure| failure.into_unavailable("listing records"))
    }

    async fn forget(&self, id: &RecordId) -> Result<bool, StoreError> {
        let mut command = redis::cmd("UNLINK");
        command.arg(self.key(id));
        self.link
            .run(&command)
            .await
            .map_err(|failure| failure.into_unavailable("forgetting a record"))
    }

    async fn changed(&self, id: &RecordId) {
        match &self.listener {
            Some(listener) => listener.changed(self.key(id)).await,
            None => std::future::pending().await,
        }
    }

    fn name(&self) -> &'static str {
        if self.link.is_cluster() {
            "redis-cluster"
        } else {
            "redis"
        }
    }

    fn needs_purging(&self) -> bool {
        false
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("kind", &self.name())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_url_names_nodes_with_one_login() {
        assert_eq!(cluster_nodes("redis://10.0.0.1"), None);
        assert_eq!(
            cluster_nodes("redis-cluster://10.0.0.1:1,10.0.0.2:2/"),
            Some(vec![
                "redis://10.0.0.1:1".into(),
                "redis://10.0.0.2:2".into()
            ])
        );
        assert_eq!(
            cluster_nodes("redis-cluster://app:p@ss@a:1,b:2"),
            Some(vec![
                "redis://app:p@ss@a:1".into(),
                "redis://app:p@ss@b:2".into()
            ])
        );
    }

    #[test]
    fn pattern_characters_of_a_prefix_are_literal() {
        assert_eq!(escape_glob("a*b?[c]\\:"), "a\\*b\\?\\[c\\]\\\\:");
    }
}
