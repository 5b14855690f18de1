//! Finding records without knowing their keys: for the operator and for reconciliation.
//!
//! There is no index. One would have to be written with every claim, and in a cluster it could not
//! share the record's slot. So the keys are walked with `SCAN`, in bounded batches that do not hold
//! the server up.

use super::{
    DIGEST, RedisStore,
    codec::{Extent, HEAD, Value},
    link::{Failure, Node},
};
use crate::record::{FORMAT, Record, State};
use crate::store::{AbandonedQuery, ListQuery, Which};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// How many keys one `SCAN` looks at.
const BATCH: u32 = 1000;
/// How many commands of a walk are under way at once.
const AT_ONCE: usize = 64;

impl RedisStore {
    /// One `SCAN`: the next cursor and the keys that look like records.
    async fn scan(&self, node: &Node, cursor: &str) -> Result<(String, Vec<String>), Failure> {
        let mut command = redis::cmd("SCAN");
        command
            .arg(cursor)
            .arg("MATCH")
            .arg(&*self.pattern)
            .arg("COUNT")
            .arg(BATCH)
            .arg("TYPE")
            .arg("string");
        let (next, keys): (String, Vec<Vec<u8>>) = self.link.on_node(node, &command).await?;
        let keys = keys
            .into_iter()
            .filter_map(|key| String::from_utf8(key).ok())
            .filter(|key| key.len() == self.prefix.len() + DIGEST)
            .collect();
        Ok((next, keys))
    }

    /// Reads what stands at a key, if it is readable.
    async fn look(&self, key: &str) -> Result<Option<Record>, Failure> {
        match self.read(key, Extent::Texts).await {
            Ok(found) => Ok(found.and_then(|(value, moment)| {
                Value::parse(&value, Extent::Texts, None)
                    .ok()?
                    .into_record(moment)
                    .ok()
            })),
            Err(failure) if failure.is_wrong_type() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Lists in the order of the keys' digests.
    pub(super) async fn list_in_order(&self, query: &ListQuery) -> Result<Vec<Record>, Failure> {
        match query.which {
            Which::All => self.list_all(query).await,
            Which::Abandoned => self.list_abandoned(query).await,
        }
    }

    async fn list_all(&self, query: &ListQuery) -> Result<Vec<Record>, Failure> {
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let mut after = query.after.as_ref().map(|id| self.key(id));
        let mut records = Vec::new();
        while records.len() < limit {
            let page = self.first_keys(after.as_deref(), limit).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            let complete = page.len() < limit;
            let looks: Vec<_> = page.iter().map(|key| self.look(key)).collect();
            let found: Vec<_> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
            records.extend(found.into_iter().flatten());
            if complete {
                break;
            }
        }
        records.truncate(limit);
        Ok(records)
    }

    /// The first keys after a given one, in order. Walks all keys, but keeps no more than the limit.
    async fn first_keys(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<BTreeSet<String>, Failure> {
        let mut first = BTreeSet::new();
        for node in self.link.nodes().await? {
            let mut cursor = "0".to_owned();
            loop {
                let (next, keys) = self.scan(&node, &cursor).await?;
                for key in keys {
                    if after.is_none_or(|after| key.as_str() > after) {
                        first.insert(key);
                        if first.len() > limit {
                            first.pop_last();
                        }
                    }
                }
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(first)
    }

    /// Walks all keys once, whatever the limit: nearly none of them is wanted.
    async fn list_abandoned(&self, query: &ListQuery) -> Result<Vec<Record>, Failure> {
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        let after = query.after.as_ref().map(|id| self.key(id));
        let mut listed = BTreeMap::new();
        for node in self.link.nodes().await? {
            let mut cursor = "0".to_owned();
            loop {
                let (next, keys) = self.scan(&node, &cursor).await?;
                let looks: Vec<_> = keys
                    .into_iter()
                    .filter(|key| after.as_ref().is_none_or(|after| key > after))
                    .map(async |key| Ok((self.look_if_abandoned(&key).await?, key)))
                    .collect();
                let found: Vec<_> = stream::iter(looks)
                    .buffer_unordered(AT_ONCE)
                    .try_collect::<Vec<(Option<Record>, String)>>()
                    .await?;
                for (record, key) in found {
                    if let Some(record) = record {
                        listed.insert(key, record);
                    }
                    if listed.len() > limit {
                        listed.pop_last();
                    }
                }
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(listed.into_values().collect())
    }

    /// Takes abandoned records among the next keys of every node.
    pub(super) async fn take(&self, query: &AbandonedQuery) -> Result<Vec<Record>, Failure> {
        let mut candidates = Vec::new();
        for node in self.link.nodes().await? {
            self.find_abandoned(&node, query, &mut candidates).await?;
        }
        candidates.sort_by_key(|candidate| candidate.locked_until);
        let mut taken = Vec::new();
        for candidate in candidates {
            if taken.len() >= usize::try_from(query.limit).unwrap_or(usize::MAX) {
                break;
            }
            match self.take_one(&candidate, query).await {
                Ok(record) => taken.extend(record),
                // What has been taken is this caller's: it must not be lost with a later failure.
                Err(_) if !taken.is_empty() => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(taken)
    }

    /// Looks for abandoned records on one node, from where the last call stopped.
    async fn find_abandoned(
        &self,
        node: &Node,
        query: &AbandonedQuery,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), Failure> {
        let mut cursor = self.cursors().get(&node.name).cloned();
        let mut looked_at = 0;
        loop {
            let from = cursor.take().unwrap_or_else(|| "0".to_owned());
            let (next, keys) = self.scan(node, &from).await?;
            let looks: Vec<_> = keys
                .into_iter()
                .map(|key| self.abandoned(key, query))
                .collect();
            let found: Vec<_> = stream::iter(looks)
                .buffer_unordered(AT_ONCE)
                .try_collect()
                .await?;
            candidates.extend(found.into_iter().flatten());
            looked_at += BATCH;
            let all_seen = next == "0";
            if !all_seen {
                cursor = Some(next);
            }
            let mut cursors = self.cursors();
            match &cursor {
                Some(cursor) => cursors.insert(node.name.clone(), cursor.clone()),
                None => cursors.remove(&node.name),
            };
            if all_seen || looked_at >= self.scan_keys {
                return Ok(());
            }
        }
    }

    /// Reads what stands at a key, if it is an abandoned record.
    async fn look_if_abandoned(&self, key: &str) -> Result<Option<Record>, Failure> {
        // The cheap look first: nearly all records are finished.
        let mut command = redis::cmd("GETRANGE");
        command.arg(key).arg(0).arg(HEAD - 1);
        match self.link.run::<Vec<u8>>(&command).await {
            Ok(head) if Value::head_is_running(&head) => {}
            Ok(_) => return Ok(None),
            Err(failure) if failure.is_wrong_type() => return Ok(None),
            Err(failure) => return Err(failure),
        }
        let found = self.look(key).await?;
        Ok(found.filter(|record| {
            matches!(record.state, State::Running { locked_until } if locked_until <= record.now)
        }))
    }

    /// Whether an abandoned record of one of the query's handlers stands at the key.
    async fn abandoned(
        &self,
        key: String,
        query: &AbandonedQuery,
    ) -> Result<Option<Candidate>, Failure> {
        let Some(record) = self.look_if_abandoned(&key).await? else {
            return Ok(None);
        };
        let State::Running { locked_until } = record.state else {
            return Ok(None);
        };
        let handler = record.handler();
        Ok(query
            .handlers
            .iter()
            .any(|name| name == handler)
            .then_some(Candidate {
                locked_until,
                key,
                owner: record.owner,
            }))
    }

    async fn take_one(
        &self,
        candidate: &Candidate,
        query: &AbandonedQuery,
    ) -> Result<Option<Record>, Failure> {
        let lease = crate::record::millis(query.lease).to_string();
        let sent = Instant::now();
        let taken: Option<(i64, i64, Vec<u8>)> = self
            .link
            .script(
                &self.scripts.take,
                &candidate.key,
                &[
                    candidate.owner.as_bytes(),
                    query.owner.as_bytes(),
                    lease.as_bytes(),
                    FORMAT.to_string().as_bytes(),
                ],
            )
            .await?;
        Ok(taken.and_then(|(now, expiry, value)| {
            let moment = self.moment(&candidate.key, sent, now, expiry);
            Value::parse(&Bytes::from(value), Extent::Whole, None)
                .ok()?
                .into_record(moment)
                .ok()
        }))
    }
}

/// A record that looked abandoned.
struct Candidate {
    locked_until: crate::record::StoreTime,
    key: String,
    owner: uuid::Uuid,
}
