//! The process dies at every await of the flow, once before what is awaited, once while it is under
//! way, and once after it.

use crate::{
    LAB,
    points::{Known, Mode, POINTS, Point, StepRuns, Way},
    settled,
};
use flate2::{Compression, write::GzEncoder};
use futures_util::{StreamExt, stream};
use idem_tests::{
    harness::{Call, Reply, Site, durable, eventually, full_scale, scaled, transactional},
    services::Store,
};
use reqwest::Method;
use std::{io::Write, time::Duration};
use tokio::time::{Instant, sleep};

/// A record that the reconciler takes is nobody else's for twice its patience.
#[rustfmt::skip]
const FLAGS: &[&str] = &[
    "--lease", "2s",
    "--reconcile-every", "200ms",
    "--reconcile-patience", "500ms",
];
/// Where a process comes to its point only at the lease's end, or a part of it.
const SHORT_LEASE: &[&str] = &["--lease", "600ms"];
/// The database ends a transaction that is idle for so long, on a machine busy with other things.
const LONG_LEASE: &[&str] = &["--lease", "10s"];
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after its answer a process may still come to its point.
const GRACE: Duration = Duration::from_secs(3);
/// Tries to meet a moment that the process may pass by.
const TRIES: usize = 20;

/// One moment of a point in one mode.
#[derive(Debug, Clone, Copy)]
struct Cell {
    point: &'static Point,
    mode: Mode,
    moment: &'static str,
    known: &'static [Known],
    steps: StepRuns,
}

fn cells(site: &Site, modes: &[Mode]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for point in POINTS {
        if !point.only.is_empty() && !point.only.contains(&site.store()) {
            continue;
        }
        for mode in point.modes.iter().filter(|mode| modes.contains(mode)) {
            let moments = [
                ("before", point.before, point.steps[0]),
                ("during", point.during, point.steps[1]),
                ("after", point.after, point.steps[2]),
            ];
            for (moment, known, steps) in moments {
                if !known.is_empty() {
                    cells.push(Cell {
                        point,
                        mode: *mode,
                        moment,
                        known,
                        steps,
                    });
                }
            }
        }
    }
    cells
}

/// A key whose process has died there.
struct Dead {
    cell: Cell,
    key: String,
}

impl Cell {
    fn flags(&self) -> Vec<&'static str> {
        let lease = match self.point.way {
            _ if self.mode == Mode::Transactional => LONG_LEASE,
            Way::Post(_, delay) if delay < 1000 => &[],
            Way::Post(..) | Way::Fenced | Way::Asked(_) => SHORT_LEASE,
            Way::Waiter => &[],
        };
        [FLAGS, lease, self.point.flags].concat()
    }

    fn path(&self) -> &'static str {
        match self.point.way {
            Way::Waiter => "/wait",
            _ => self.mode.path(),
        }
    }

    /// The request, without the fault.
    fn order(&self, site: &Site, key: &str) -> Call {
        // A user for each key: rows do not say which key they were made under.
        let order = site.post(self.path()).user(key).key(key);
        match self.point.way {
            Way::Post("compressed", _) => {
                let mut body = GzEncoder::new(Vec::new(), Compression::fast());
                body.write_all(b"{}").unwrap();
                let order = order.json(body.finish().unwrap());
                order.header("content-encoding", "gzip")
            }
            _ => order.json("{}"),
        }
    }

    /// Brings the process to its end; false if it did not come to this moment.
    async fn dies(&self, site: &mut Site, key: &str) -> bool {
        let order = self.order(site, key);
        let armed = |call: Call| call.fail_point(self.point.name, self.moment, self.point.nth);
        let dying = match self.point.way {
            Way::Post(respond, delay) => {
                let order = armed(order).delay_ms(delay);
                match respond {
                    "" | "compressed" => spawned(order),
                    respond => spawned(order.respond(respond)),
                }
            }
            Way::Waiter => {
                let owner = spawned(order.clone().delay_ms(60_000));
                site.journal.wait_for("start", key).await;
                let waiter = spawned(armed(order));
                tokio::spawn(async move { tokio::join!(owner, waiter).1.unwrap() })
            }
            Way::Fenced => {
                // Long enough for the other to come first on a busy machine.
                let first = spawned(armed(order.clone()).delay_ms(3000));
                site.journal.wait_for("start", key).await;
                let second = settled(&order).await;
                assert_eq!(second.json()["attempt"], 2, "{second:?}");
                first
            }
            Way::Asked(died) => {
                assert!(order.clone().crash(died).try_send().await.is_err());
                site.restart(&self.flags()).await;
                // Before the lease has run out.
                spawned(armed(site.call(Method::GET, "/lab/policies")))
            }
        };
        let deadline = Instant::now() + PATIENCE;
        let mut answered = None;
        loop {
            if let Some(status) = site.lab.has_ended() {
                assert!(!status.success());
                break;
            }
            if dying.is_finished() && self.may_survive() {
                let since = *answered.get_or_insert_with(Instant::now);
                if since.elapsed() > GRACE {
                    return false;
                }
            }
            assert!(Instant::now() < deadline, "{self:?} was not reached");
            sleep(Duration::from_millis(2)).await;
        }
        let _ = dying.await;
        true
    }

    /// Whether the process may pass the point by: the reconciler, at work on keys of other cells, met
    /// the failure that would have led there; or it had asked already when the point was armed, on
    /// a machine on which a restart takes longer than the lease.
    fn may_survive(&self) -> bool {
        !self.point.flags.is_empty() || matches!(self.point.way, Way::Asked(_))
    }

    /// What a retry may get, and how many effects there are after it.
    fn allows(&self, known: Known, retry: &Reply, lost: bool, effects: usize) -> bool {
        let is_created = |attempt: u32| {
            // If an answer got lost, this one repeats it.
            let first = lost || !retry.is_replay();
            retry.status == 201 && first && retry.json()["attempt"] == attempt
        };
        let reruns = matches!(self.mode, Mode::Rerun | Mode::Steps);
        match known {
            Known::Nothing => is_created(1) && effects == 1,
            Known::Claimed if reruns => is_created(2) && effects == 1,
            Known::Done if reruns => is_created(2) && effects == 2,
            Known::Claimed if self.mode == Mode::Reconcile => is_created(1) && effects == 1,
            Known::Done if self.mode == Mode::Reconcile => {
                retry.is_replay() && &retry.body[..] == b"{\"reconciled\":true}" && effects == 1
            }
            Known::Claimed => is_unknown(retry) && effects == 0,
            Known::Done => is_unknown(retry) && effects == 1,
            Known::Saved => retry.is_replay() && retry.status == 201 && effects == 1,
            Known::Tombstone => {
                retry.problem().as_deref() == Some("response-not-retained") && effects == 1
            }
            Known::Failure => retry.is_replay() && retry.status == 409 && effects == 0,
            Known::TakenOver => retry.is_replay() && retry.json()["attempt"] == 2 && effects == 2,
        }
    }

    /// Retries, and judges.
    async fn judge(&self, site: &Site, key: &str) {
        let order = self.order(site, key);
        let (retry, lost) = retried(&order).await;
        let (again, _) = retried(&order).await;
        let effects = match self.mode {
            // What was rolled back has not been.
            Mode::Transactional => site.orders_of(key).await,
            _ => site.journal.effects(key),
        };
        let case = format!("{self:?} {key}: {effects} effects, {retry:?}");
        let allowed = self.known.iter();
        let mut allowed = allowed.filter(|known| self.allows(**known, &retry, lost, effects));
        assert!(allowed.next().is_some(), "{case}");
        // Whatever it was, it stays so.
        assert_eq!(again.status, retry.status, "{case}\nthen {again:?}");
        if retry.status == 201 {
            assert_eq!(again.body, retry.body, "{case}");
            assert!(again.is_replay(), "{case}");
        }
        if self.mode == Mode::Reconcile && retry.is_replay() && retry.status == 201 {
            // Where the answer is, nobody needs to ask.
            assert!(site.journal.of("asked", key).is_empty(), "{case}");
        }
        if self.mode == Mode::Steps {
            let runs = |name| site.journal.of(name, key).len();
            let (reserved, charged) = (runs("step:reserve"), runs("step:charge"));
            assert!(
                self.steps.0.contains(&reserved),
                "{case}: reserved {reserved} times"
            );
            assert!(
                self.steps.1.contains(&charged),
                "{case}: charged {charged} times"
            );
        }
    }
}

type Answer = Result<Reply, reqwest::Error>;

fn spawned(call: Call) -> tokio::task::JoinHandle<Answer> {
    tokio::spawn(async move { call.try_send().await })
}

/// What a client gets that goes on until it has an answer, and whether it had to go on because one
/// was lost: on a machine busy with other things connections time out.
async fn retried(order: &Call) -> (Reply, bool) {
    let mut lost = false;
    let reply = eventually("a settled key", async || {
        let Ok(reply) = order.try_send().await else {
            lost = true;
            return None;
        };
        let later = ["in-progress", "store-unavailable"];
        let problem = reply.problem();
        problem
            .is_none_or(|problem| !later.contains(&problem.as_str()))
            .then_some(reply)
    });
    (reply.await, lost)
}

fn is_unknown(reply: &Reply) -> bool {
    reply.problem().as_deref() == Some("outcome-unknown")
}

/// Lets the process die in every cell, one after the other, and then retries every key.
async fn every_cell(mut site: Site, modes: &[Mode], rounds: usize) {
    let begun = Instant::now();
    let cells = cells(&site, modes);
    for round in 0..rounds {
        let mut dead: Vec<Dead> = Vec::new();
        for (index, cell) in cells.iter().enumerate() {
            let mut tries = 0;
            loop {
                tries += 1;
                site.restart(&cell.flags()).await;
                let key = format!("r{round}c{index}t{tries}");
                if cell.dies(&mut site, &key).await {
                    dead.push(Dead { cell: *cell, key });
                    break;
                }
                assert!(tries < TRIES, "{cell:?} was never reached");
            }
        }
        site.restart(FLAGS).await;
        let site = &site;
        stream::iter(&dead)
            .for_each_concurrent(8, |Dead { cell, key }| cell.judge(site, key))
            .await;
        eprintln!(
            "{}: round {} of {rounds}: {} cells held, after {:?}",
            site.store(),
            round + 1,
            cells.len(),
            begun.elapsed()
        );
    }
}

#[tokio::test]
async fn wherever_the_process_dies_a_leased_route_keeps_what_its_mode_promises() {
    // I2
    let rounds = scaled(1, 50);
    let mut stores = durable();
    // The same store as on a single Redis, as far as a process's death goes.
    stores.retain(|store| *store != Store::RedisCluster || full_scale());
    Site::on_these(stores, LAB, FLAGS, async |site| {
        let modes = [Mode::Hold, Mode::Rerun, Mode::Reconcile, Mode::Steps];
        every_cell(site, &modes, rounds).await;
    })
    .await;
}

#[tokio::test]
async fn wherever_the_process_dies_a_transaction_is_one_row_and_one_answer_after_the_retry() {
    // I2
    let rounds = scaled(1, 50);
    Site::on_these(transactional(), LAB, FLAGS, async |site| {
        every_cell(site, &[Mode::Transactional], rounds).await;
    })
    .await;
}
