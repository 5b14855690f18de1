//! What the server must be able to do, and what its configuration means for the records.

use super::{
    clock::Clocks,
    link::{Failure, Link},
};
use crate::store::StoreError;
use std::{sync::Arc, time::Instant};

/// Oldest release that the store works with: the first with `SET … NX GET`.
const OLDEST: u32 = 7;

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Server {
    version: String,
    cluster: bool,
    replica: bool,
    eviction: Option<String>,
    append_only: Option<bool>,
}

impl Server {
    fn parse(info: &str) -> Server {
        let mut server = Server::default();
        for line in info.lines() {
            match line.trim_end().split_once(':') {
                Some(("redis_version", value)) => server.version = value.to_owned(),
                Some(("cluster_enabled", value)) => server.cluster = value == "1",
                Some(("role", value)) => server.replica = value == "slave",
                Some(("maxmemory_policy", value)) => server.eviction = Some(value.to_owned()),
                Some(("aof_enabled", value)) => server.append_only = Some(value == "1"),
                _ => {}
            }
        }
        server
    }

    /// Why the store cannot work with it, in a sentence.
    fn refusal(&self, as_cluster: bool) -> Option<String> {
        let major = self.version.split('.').next().unwrap_or_default();
        match major.parse::<u32>() {
            Ok(major) if major < OLDEST => {
                return Some(format!(
                    "it is Redis {}, and the store needs {OLDEST}.0 or later",
                    self.version
                ));
            }
            _ => {}
        }
        if self.cluster && !as_cluster {
            return Some(
                "it is a node of a Redis Cluster: connect with RedisStore::connect_cluster"
                    .to_owned(),
            );
        }
        if self.replica && !as_cluster {
            return Some("it is a read-only replica: connect to its master".to_owned());
        }
        None
    }

    /// What can lose records behind the store's back, in sentences.
    fn dangers(&self) -> Vec<String> {
        let mut dangers = Vec::new();
        if let Some(policy) = self.eviction.as_deref().filter(|p| *p != "noeviction") {
            dangers.push(format!(
                "maxmemory-policy is {policy}: when memory runs short, records are evicted before \
                 their TTL, and a retry then runs its handler again; set it to noeviction"
            ));
        }
        if self.append_only == Some(false) {
            dangers.push(
                "appendonly is off: a restart loses the records written since the last snapshot, \
                 and a retry then runs its handler again; set it to yes"
                    .to_owned(),
            );
        }
        dangers
    }
}

/// Refuses a server that the store cannot work with and warns of one that may lose records.
///
/// Of a cluster, one node that answers is enough: an application must be able to start while a
/// replica is taking over from a dead master.
pub(super) async fn check(link: &Arc<Link>) -> Result<(), StoreError> {
    let doing = "connecting to Redis";
    let nodes = link
        .nodes()
        .await
        .map_err(|failure| failure.into_unavailable(doing))?;
    let mut silent = None;
    let mut answered = false;
    for node in nodes {
        match link.on_node::<String>(&node, &redis::cmd("INFO")).await {
            Ok(info) => {
                judge(&Server::parse(&info), &node.name, link.is_cluster())?;
                answered = true;
            }
            // Managed services may forbid it; the store itself does not need it.
            Err(failure) if failure.code() == Some("NOPERM") || is_unknown(&failure) => {
                tracing::info!(
                    node = %node.name,
                    "INFO is forbidden, so version, eviction and durability could not be checked"
                );
                answered = true;
            }
            Err(failure) => {
                let error = failure.into_unavailable(doing);
                if link.is_cluster() {
                    tracing::warn!(
                        node = %node.name,
                        "a node of the Redis Cluster could not be checked: {error}"
                    );
                }
                silent = Some(error);
            }
        }
    }
    match silent {
        Some(error) if !answered => Err(error),
        _ => Ok(()),
    }
}

/// Asks every node for the time. One that does not tell it now does so with its first answer.
pub(super) async fn clocks(link: &Arc<Link>) -> Result<Clocks, StoreError> {
    let failed = |failure: Failure| failure.into_unavailable("connecting to Redis");
    let nodes = link.nodes().await.map_err(failed)?;
    let clocks = Clocks::new(link.ranges(&nodes).await.map_err(failed)?);
    for (index, node) in nodes.iter().enumerate() {
        let sent = Instant::now();
        if let Ok((seconds, micros)) = link.on_node::<(i64, i64)>(node, &redis::cmd("TIME")).await {
            let now = seconds.saturating_mul(1000).saturating_add(micros / 1000);
            clocks.note_node(index, sent, now);
        }
    }
    Ok(clocks)
}

fn judge(server: &Server, name: &str, as_cluster: bool) -> Result<(), StoreError> {
    if let Some(refusal) = server.refusal(as_cluster) {
        return Err(StoreError::Unavailable {
            context: format!("{name} cannot be used: {refusal}"),
            source: None,
        });
    }
    if server.eviction.is_none() || server.append_only.is_none() {
        tracing::info!(
            node = %name,
            "INFO does not tell maxmemory-policy or appendonly, so they could not be checked"
        );
    }
    for danger in server.dangers() {
        tracing::warn!(node = %name, "Redis may lose idempotency records: {danger}");
    }
    Ok(())
}

/// Whether a command was refused as unknown, which is how a renamed one looks.
fn is_unknown(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(error)
        if error.detail().is_some_and(|detail| detail.starts_with("unknown command")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n\
                        # Persistence\r\naof_enabled:1\r\n# Replication\r\nrole:master\r\n\
                        # Cluster\r\ncluster_enabled:0\r\n";

    fn server(from: &str, to: &str) -> Server {
        assert!(INFO.contains(from));
        Server::parse(&INFO.replace(from, to))
    }

    #[test]
    fn a_durable_server_that_does_not_evict_is_fine() {
        let server = Server::parse(INFO);
        assert_eq!(server.refusal(false), None);
        assert!(server.dangers().is_empty());
    }

    #[test]
    fn what_loses_records_is_named() {
        for policy in ["allkeys-lru", "volatile-ttl"] {
            let dangers = server("noeviction", policy).dangers();
            assert!(dangers[0].contains(policy), "{dangers:?}");
        }
        let dangers = server("aof_enabled:1", "aof_enabled:0").dangers();
        assert!(dangers[0].contains("appendonly"), "{dangers:?}");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_reason() {
        let old = server("7.0.15", "6.2.14").refusal(false).unwrap();
        assert!(old.contains("6.2.14") && old.contains("7.0"), "{old}");
        let replica = server("role:master", "role:slave");
        assert!(replica.refusal(false).unwrap().contains("replica"));
        let clustered = server("cluster_enabled:0", "cluster_enabled:1");
        assert!(
            clustered
                .refusal(false)
                .unwrap()
                .contains("connect_cluster")
        );
        assert_eq!(clustered.refusal(true), None);
        assert_eq!(server("7.0.15", "10.1.0").refusal(false), None);
    }
}
