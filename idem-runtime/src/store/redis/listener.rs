//! Being told that another process has settled a record.

use crate::waiters::Waiters;
use futures_util::future::try_join_all;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo, PushKind,
    RedisError, RedisResult, Value,
    aio::MultiplexedConnection,
    cluster::{ClusterClient, ClusterClientBuilder},
    cluster_async::ClusterConnection,
};
use std::{
    collections::HashSet,
    ops::RangeInclusive,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{
        Notify,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
    },
    task::AbortHandle,
    time::{sleep, timeout},
};

/// How long the server may take for anything that is asked on the connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bounds of the pause before the connection is opened again, which doubles.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30);

type Pushes = (UnboundedSender<PushInfo>, UnboundedReceiver<PushInfo>);

/// Where to listen.
pub(super) enum Ear {
    /// A single node.
    Node(Client, UnboundedSender<PushInfo>),
    /// All nodes of a cluster. The driver sees to it that each record is listened for at the right
    /// one, also when its slot moves or a connection breaks.
    Cluster(Box<ClusterClient>),
}

/// An open connection to listen on.
enum Listening {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Listens on a connection of its own (in a cluster, one to each node), from the first time that
/// somebody waits: for each record that is waited for, on the channel that is named like its key.
pub(super) struct Listener {
    shared: Arc<Shared>,
    pushes: Mutex<Option<UnboundedReceiver<PushInfo>>>,
    /// Where it runs: not on whichever of the application's runtimes somebody waits first.
    runtime: Handle,
    task: OnceLock<AbortHandle>,
}

struct Shared {
    ear: Ear,
    waiters: Arc<Waiters<String>>,
    wake: Notify,
}

/// Wakes the listener when it is dropped: one who waited has left.
struct Leaving<'a>(&'a Notify);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn pushes() -> Pushes {
    mpsc::unbounded_channel()
}

impl Listener {
    /// For a single node. Must be called within a runtime.
    pub(super) fn for_node(info: ConnectionInfo) -> RedisResult<Self> {
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let (sender, receiver) = pushes();
        Ok(Self::new(Ear::Node(client, sender), receiver))
    }

    /// For a cluster. Must be called within a runtime.
    pub(super) fn for_cluster(builder: ClusterClientBuilder) -> RedisResult<Self> {
        let (sender, receiver) = pushes();
        let client = builder
            .use_protocol(ProtocolVersion::RESP3)
            .push_sender(sender)
            .build()?;
        Ok(Self::new(Ear::Cluster(Box::new(client)), receiver))
    }

    fn new(ear: Ear, pushes: UnboundedReceiver<PushInfo>) -> Self {
        Self {
            shared: Arc::new(Shared {
                ear,
                waiters: Arc::default(),
                wake: Notify::new(),
            }),
            pushes: Mutex::new(Some(pushes)),
            runtime: Handle::current(),
            task: OnceLock::new(),
        }
    }

    /// Resolves when the record at this key is settled, if that is heard.
    pub(super) async fn changed(&self, key: String) {
        let _leaving = Leaving(&self.shared.wake);
        let mut waiter = self.shared.waiters.wait_for(&key);
        self.shared.wake.notify_one();
        self.start();
        waiter.settled().await;
    }

    fn start(&self) {
        if self.task.get().is_some() {
            return;
        }
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pushes) = pushes.take() {
            let shared = Arc::clone(&self.shared);
            let task = self.runtime.spawn(shared.listen_for_ever(pushes));
            let _ = self.task.set(task.abort_handle());
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Shared {
    async fn listen_for_ever(self: Arc<Self>, mut pushes: UnboundedReceiver<PushInfo>) {
        let mut pause = *PAUSES.start();
        loop {
            // What the connection before has left behind.
            while pushes.try_recv().is_ok() {}
            let error = match timeout(PATIENCE, self.connect()).await {
                Ok(Ok(listening)) => {
                    pause = *PAUSES.start();
                    self.listen(listening, &mut pushes).await
                }
                Ok(Err(error)) => error,
                Err(_) => silent(),
            };
            tracing::warn!(
                store = "redis",
                %error,
                "no notifications for now: duplicates that wait for another process look from time to time"
            );
            sleep(pause).await;
            pause = (pause * 2).min(*PAUSES.end());
            // For nobody, no connection is opened.
            while self.waiters.is_empty() {
                self.wake.notified().await;
            }
        }
    }

    async fn connect(&self) -> RedisResult<Listening> {
        Ok(match &self.ear {
            Ear::Node(client, pushes) => {
                let config = AsyncConnectionConfig::new().set_push_sender(pushes.clone());
                let connecting = client.get_multiplexed_async_connection_with_config(&config);
                Listening::Node(connecting.await?)
            }
            Ear::Cluster(client) => Listening::Cluster(client.get_async_connection().await?),
        })
    }

    /// Tells those who wait what is heard, until the connection is lost.
    async fn listen(
        &self,
        listening: Listening,
        pushes: &mut UnboundedReceiver<PushInfo>,
    ) -> RedisError {
        let mut channels = HashSet::new();
        let mut follow = true;
        loop {
            if follow {
                match timeout(PATIENCE, self.follow(&listening, &mut channels)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return error,
                    Err(_) => return silent(),
                }
            }
            follow = false;
            tokio::select! {
                push = pushes.recv() => match push {
                    Some(push) if push.kind == PushKind::SMessage => self.heard(&push),
                    // Of a cluster, another connection is made by the driver.
                    Some(push) if push.kind == PushKind::Disconnection => {
                        if let Listening::Node(_) = listening {
                            return lost();
                        }
                    }
                    Some(_) => {}
                    None => return lost(),
                },
                () = self.wake.notified() => follow = true,
            }
        }
    }

    fn heard(&self, push: &PushInfo) {
        if let Some(Value::BulkString(channel)) = push.data.first()
            && let Ok(channel) = std::str::from_utf8(channel)
        {
            self.waiters.settled(channel);
        }
    }

    /// Listens for what is waited for, and for nothing else.
    async fn follow(
        &self,
        listening: &Listening,
        channels: &mut HashSet<String>,
    ) -> RedisResult<()> {
        let waited_for = self.waiters.all();
        let left = channels.difference(&waited_for);
        try_join_all(left.map(|channel| listening.leave(channel))).await?;
        let new = waited_for.difference(channels);
        try_join_all(new.map(|channel| listening.join(channel))).await?;
        *channels = waited_for;
        Ok(())
    }
}

impl Listening {
    async fn join(&self, channel: &str) -> RedisResult<()> {
        match self {
            Listening::Node(node) => {
                let mut node = node.clone();
                redis::cmd("SSUBSCRIBE")
                    .arg(channel)
                    .query_async(&mut node)
                    .await
            }
            Listening::Cluster(cluster) => cluster.clone().ssubscribe(channel).await,
        }
    }

    async fn leave(&self, channel: &str) -> RedisResult<()> {
        match self {
            Listening::Node(node) => {
                let mut node = node.clone();
                redis::cmd("SUNSUBSCRIBE")
                    .arg(channel)
                    .query_async(&mut node)
                    .await
            }
            Listening::Cluster(cluster) => cluster.clone().sunsubscribe(channel).await,
        }
    }
}

fn silent() -> RedisError {
    (ErrorKind::Io, "no answer in time").into()
}

fn lost() -> RedisError {
    (ErrorKind::Io, "the connection is lost").into()
}
