//! The connection: one node or a cluster, with a limit on how long a command may take.

use crate::store::StoreError;
use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value,
    aio::{ConnectionManager, ConnectionManagerConfig},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};
use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};
use tokio::runtime::Handle;

/// A connection that the application already has.
///
/// Both kinds reconnect by themselves when they break and are shared by cloning; a
/// `MultiplexedConnection` is not taken because it stays broken. None of them notices a server that
/// hangs without closing its connections: a store that made its connection itself then makes
/// another one, on the application's it can only report [`StoreError::Unavailable`].
#[derive(Clone)]
#[non_exhaustive]
pub enum RedisConnection {
    /// To a single node.
    Node(ConnectionManager),
    /// To a Redis Cluster.
    Cluster(ClusterConnection),
}

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RedisConnection::Node(_) => "Node(..)",
            RedisConnection::Cluster(_) => "Cluster(..)",
        })
    }
}

impl From<ConnectionManager> for RedisConnection {
    fn from(connection: ConnectionManager) -> Self {
        RedisConnection::Node(connection)
    }
}

impl From<ClusterConnection> for RedisConnection {
    fn from(connection: ClusterConnection) -> Self {
        RedisConnection::Cluster(connection)
    }
}

/// Why a command gave nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// Redis or the driver says no.
    Refused(RedisError),
    /// Nothing was said in time.
    Silent(Duration),
}

impl Failure {
    /// The code of the server's error, such as `WRONGTYPE`.
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Failure::Refused(error) => error.code(),
            Failure::Silent(_) => None,
        }
    }

    /// Whether the key holds another type of value than ours.
    pub(super) fn is_wrong_type(&self) -> bool {
        self.code() == Some("WRONGTYPE")
    }

    /// Whether the server's memory limit is reached and nothing was written.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.code() == Some("OOM")
    }

    /// Whether another connection may get further: this one is silent, which the driver does not
    /// take for broken, or it leads to a server that has become a replica, or to nodes of a cluster
    /// none of which can be reached: the driver then goes on asking those it knew last, of which
    /// there may be none left, and never those that it was given.
    fn asks_for_another_connection(&self, is_cluster: bool) -> bool {
        match self {
            Failure::Silent(_) => true,
            Failure::Refused(error) => match error.kind() {
                ErrorKind::Server(ServerErrorKind::ReadOnly) => true,
                ErrorKind::ClusterConnectionNotFound | ErrorKind::Io if is_cluster => true,
                _ => error.is_timeout(),
            },
        }
    }

    pub(super) fn into_unavailable(self, doing: &str) -> StoreError {
        match self {
            // The driver's words for this quote the answer, which may hold a key or a body.
            Failure::Refused(error) if error.kind() == ErrorKind::UnexpectedReturnType => {
                StoreError::Unavailable {
                    context: format!("{doing}: the server's answer is not what was asked for"),
                    source: None,
                }
            }
            Failure::Refused(error) => StoreError::unavailable(doing, error),
            Failure::Silent(limit) => StoreError::Unavailable {
                context: format!("{doing}: no answer within {} ms", limit.as_millis()),
                source: None,
            },
        }
    }
}

/// A script, known to the server by its digest once it has run there.
pub(super) struct Script {
    code: String,
    digest: String,
}

impl Script {
    /// A script of the given flags that begins with what all of them share.
    pub(super) fn new(flags: &str, body: &str) -> Self {
        let code = format!("#!lua{flags}\n{}\n{body}", include_str!("record.lua"));
        let digest = redis::Script::new(&code).get_hash().to_owned();
        Self { code, digest }
    }
}

/// One node that holds records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Its name, for log lines and for keeping its cursor.
    pub(super) name: String,
    /// A slot that it serves; none outside a cluster.
    slot: Option<u16>,
}

/// Where connections come from: what the store needs to make another one.
pub(super) enum Source {
    /// A single node.
    Node(Client, Box<ConnectionManagerConfig>),
    /// A cluster.
    Cluster(Box<ClusterClient>),
}

impl Source {
    pub(super) async fn connect(&self) -> RedisResult<RedisConnection> {
        Ok(match self {
            Source::Node(client, config) => {
                let config = ConnectionManagerConfig::clone(config);
                ConnectionManager::new_with_config(client.clone(), config)
                    .await?
                    .into()
            }
            Source::Cluster(client) => client.get_async_connection().await?.into(),
        })
    }
}

/// The connection and its limits.
pub(super) struct Link {
    connection: RwLock<RedisConnection>,
    /// None for a connection of the application's.
    source: Option<Source>,
    /// Where connections are driven: on the runtime of the first one, not on whichever of the
    /// server's workers happens to notice that another one is needed.
    runtime: Handle,
    /// When another connection was last asked for.
    replaced: Mutex<Option<Instant>>,
    cluster: bool,
    /// How long one command may take.
    timeout: Duration,
}

/// How long a new connection has to prove itself before the next one is made.
const REPLACE_AFTER: Duration = Duration::from_secs(1);
/// A caller that gives up has waited for at least so long where it was the connection's fault.
const SILENCE: Duration = Duration::from_millis(100);

/// A call under way, which its caller may give up before its own limit: the time budget of a store
/// call is not known here and may be the shorter one. That is silence all the same.
struct Unanswered<'a> {
    link: &'a Arc<Link>,
    since: Instant,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.since.elapsed() >= SILENCE.min(self.link.timeout) {
            self.link.replace();
        }
    }
}

impl Link {
    /// Must be called within a tokio runtime.
    pub(super) fn new(
        connection: RedisConnection,
        source: Option<Source>,
        timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            cluster: matches!(connection, RedisConnection::Cluster(_)),
            connection: RwLock::new(connection),
            source,
            runtime: Handle::current(),
            replaced: Mutex::new(None),
            timeout,
        })
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.cluster
    }

    fn connection(&self) -> RedisConnection {
        let connection = self.connection.read();
        connection.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes another connection in the background and puts it in the place of this one.
    ///
    /// The driver takes a silent connection for a slow one and stays with it. But the server may
    /// hang for ever while a replica has long taken over: a cluster's layout must then be asked
    /// anew, a host name be looked up again.
    fn replace(self: &Arc<Self>) {
        {
            let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
            if self.source.is_none() || replaced.is_some_and(|at| at.elapsed() < REPLACE_AFTER) {
                return;
            }
            *replaced = Some(Instant::now());
        }
        let link = Arc::clone(self);
        self.runtime.spawn(async move {
            let Some(source) = &link.source else { return };
            match source.connect().await {
                Ok(connection) => {
                    let place = link.connection.write();
                    let mut place = place.unwrap_or_else(PoisonError::into_inner);
                    *place = connection;
                }
                Err(error) => tracing::debug!("no other connection to Redis: {error}"),
            }
        });
    }

    async fn limited<T>(
        self: &Arc<Self>,
        call: impl Future<Output = RedisResult<T>> + Send,
    ) -> Result<T, Failure> {
        let unanswered = Unanswered {
            link: self,
            since: Instant::now(),
        };
        let answer = match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer.map_err(Failure::Refused),
            Err(_) => Err(Failure::Silent(self.timeout)),
        };
        mem::forget(unanswered);
        if answer
            .as_ref()
            .is_err_and(|failure| failure.asks_for_another_connection(self.cluster))
        {
            self.replace();
        }
        answer
    }

    /// Sends a command to the node that its key belongs to.
    pub(super) async fn run<T: FromRedisValue>(
        self: &Arc<Self>,
        command: &Cmd,
    ) -> Result<T, Failure> {
        self.limited(async {
            match self.connection() {
                RedisConnection::Node(mut node) => command.query_async(&mut node).await,
                RedisConnection::Cluster(mut cluster) => command.query_async(&mut cluster).await,
            }
        })
        .await
    }

    /// Runs a script on the node that the key belongs to.
    ///
    /// A server that does not know the script (it was restarted, or `SCRIPT FLUSH` was called, or
    /// another node has become the master) is sent its text with the same call. `SCRIPT LOAD` would
    /// go to every node of a cluster, and fail for one that is not even concerned.
    pub(super) async fn script<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &Script,
        key: &str,
        arguments: &[&[u8]],
    ) -> Result<T, Failure> {
        let command = |verb: &str, script: &str| {
            let bytes: usize = arguments.iter().map(|argument| argument.len()).sum();
            let bytes = verb.len() + script.len() + 1 + key.len() + bytes;
            let mut command = Cmd::with_capacity(4 + arguments.len(), bytes);
            command.arg(verb).arg(script).arg(1).arg(key).arg(arguments);
            command
        };
        match self.run(&command("EVALSHA", &script.digest)).await {
            Err(Failure::Refused(error))
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
            {
                self.run(&command("EVAL", &script.code)).await
            }
            answer => answer,
        }
    }

    /// Sends a command without a key to one node.
    pub(super) async fn on_node<T: FromRedisValue>(
        self: &Arc<Self>,
        node: &Node,
        command: &Cmd,
    ) -> Result<T, Failure> {
        match (self.connection(), node.slot) {
            (RedisConnection::Cluster(mut cluster), Some(slot)) => {
                let route = Route::new(slot, SlotAddr::Master);
                let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                self.limited(async {
                    let answer = cluster.route_command(command.clone(), routing).await?;
                    Ok(redis::from_redis_value(answer)?)
                })
                .await
            }
            _ => self.run(command).await,
        }
    }

    /// The nodes that hold records: the masters of a cluster, or the only one.
    pub(super) async fn nodes(self: &Arc<Self>) -> Result<Vec<Node>, Failure> {
        if !self.is_cluster() {
            return Ok(vec![Node {
                name: "the server".to_owned(),
                slot: None,
            }]);
        }
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let ranges: Vec<Value> = self.run(&command).await?;
        Ok(masters(&ranges))
    }

    /// Which slots these nodes serve, now.
    pub(super) async fn ranges(self: &Arc<Self>, nodes: &[Node]) -> Result<Ranges, Failure> {
        if !self.is_cluster() {
            return Ok(Ranges(Vec::new()));
        }
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let ranges: Vec<Value> = self.run(&command).await?;
        let mut last: Vec<(u16, usize)> = ranges
            .iter()
            .filter_map(range)
            .filter_map(|(_, last, name)| {
                let node = nodes.iter().position(|node| node.name == name)?;
                Some((last, node))
            })
            .collect();
        last.sort_unstable();
        Ok(Ranges(last))
    }
}

/// Which of the nodes serves which slots: the last slot of each range, in order. Empty outside a
/// cluster.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<(u16, usize)>);

impl Ranges {
    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.0.iter().map(|(_, node)| node + 1).max().unwrap_or(1)
    }

    /// The node of a key.
    pub(super) fn node_of(&self, key: &str) -> usize {
        if self.0.is_empty() {
            return 0;
        }
        let slot = slot(key.as_bytes());
        let at = self.0.partition_point(|(last, _)| *last < slot);
        self.0.get(at).map_or(0, |(_, node)| *node)
    }
}

/// The slot of a key, as the specification of Redis Cluster has it.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    let mut crc = 0_u16;
    for byte in tag.unwrap_or(key) {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
        }
    }
    crc % 16_384
}

/// First and last slot of a range in an answer to `CLUSTER SLOTS`, and the name of its master.
fn range(range: &Value) -> Option<(u16, u16, String)> {
    let Value::Array(range) = range else {
        return None;
    };
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = range.as_slice()
    else {
        return None;
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let name = match master.as_slice() {
        [Value::BulkString(host), Value::Int(port), ..] => {
            format!("{}:{port}", String::from_utf8_lossy(host))
        }
        _ => format!("the master of slot {first}"),
    };
    Some((first, last, name))
}

/// The masters in an answer to `CLUSTER SLOTS`, each with one slot that it serves.
fn masters(ranges: &[Value]) -> Vec<Node> {
    let mut masters = BTreeMap::new();
    for (first, _, name) in ranges.iter().filter_map(range) {
        masters.entry(name).or_insert(first);
    }
    masters
        .into_iter()
        .map(|(name, slot)| Node {
            name,
            slot: Some(slot),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_lost_all_its_nodes_is_looked_for_anew() {
        let lost = Failure::Refused((ErrorKind::ClusterConnectionNotFound, "none").into());
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let refused = Failure::Refused(refused.into());
        for failure in [lost, refused] {
            assert!(failure.asks_for_another_connection(true), "{failure:?}");
            // A single node's address is looked up again by the driver itself.
            assert!(!failure.asks_for_another_connection(false), "{failure:?}");
        }
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn every_master_is_named_once_with_a_slot_of_its_own() {
        let range = |first, last, port| {
            let node = |port| Value::Array(vec![bulk("10.0.0.1"), Value::Int(port), bulk("id")]);
            Value::Array(vec![
                Value::Int(first),
                Value::Int(last),
                node(port),
                node(port + 100),
            ])
        };
        let found = masters(&[range(0, 99, 1), range(100, 199, 2), range(200, 300, 1)]);
        assert_eq!(
            found,
            [
                Node {
                    name: "10.0.0.1:1".to_owned(),
                    slot: Some(0)
                },
                Node {
                    name: "10.0.0.1:2".to_owned(),
                    slot: Some(100)
                }
            ]
        );
    }

    #[test]
    fn keys_have_the_slots_that_the_specification_says() {
        // CLUSTER KEYSLOT on a server.
        for (key, expected) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("a{foo}b}", 12_182),
            ("{}foo", slot(b"{}foo")),
        ] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_ne!(slot(b"{}foo"), slot(b""), "an empty tag is none");
        let ranges = Ranges(vec![(5460, 2), (10_922, 0), (16_383, 1)]);
        assert_eq!(ranges.nodes(), 3);
        assert_eq!(ranges.node_of("foo"), 1);
        assert_eq!(Ranges::default().node_of("foo"), 0);
    }
}
