//! Where the process can be made to die, and what is known about the key there.

use idem_tests::services::Store;

/// What the store and the world know about a key when the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// There is no claim: not yet, not any more, or not committed.
    Nothing,
    /// It is claimed, and the handler has had no effect.
    Claimed,
    /// The handler has had its effect, and its answer is not saved.
    Done,
    /// The answer is saved.
    Saved,
    /// It is saved that there was an answer, which is not kept.
    Tombstone,
    /// A failure is saved, and what the handler wrote was rolled back.
    Failure,
    /// Another attempt has taken over, and its answer is saved.
    TakenOver,
}

use Known::{Claimed, Done, Failure, Nothing, Saved, TakenOver, Tombstone};

/// Which routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Hold,
    Rerun,
    Reconcile,
    Steps,
    Transactional,
}

use Mode::{Hold, Reconcile, Rerun, Steps, Transactional};

impl Mode {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Hold => "/default",
            Rerun => "/rerun",
            Reconcile => "/reconcile",
            Steps => "/steps",
            Transactional => "/transactional",
        }
    }
}

/// What brings a process to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// A request whose handler answers so (`""`: as usual) after so many milliseconds.
    Post(&'static str, u64),
    /// The duplicate of a running request, which waits for it.
    Waiter,
    /// The outcome of an attempt that another has taken over from.
    Fenced,
    /// The reconciler, which asks about a request that died there.
    Asked(&'static str),
}

/// How often each step has been run once the key is settled: `reserve`, `charge`.
pub(crate) type StepRuns = (&'static [usize], &'static [usize]);

const ONCE: StepRuns = (&[1], &[1]);

/// One await, where the process dies before, during and after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) name: &'static str,
    /// The process dies when it comes there for the nth time.
    pub(crate) nth: u32,
    pub(crate) way: Way,
    /// Flags that the lab needs to come there.
    pub(crate) flags: &'static [&'static str],
    pub(crate) modes: &'static [Mode],
    /// The only store that has it.
    pub(crate) only: &'static [Store],
    /// What may be known of the key in each moment; nothing where it is never in that moment,
    /// because it never waits.
    pub(crate) before: &'static [Known],
    pub(crate) during: &'static [Known],
    pub(crate) after: &'static [Known],
    pub(crate) steps: [StepRuns; 3],
}

const fn point(
    name: &'static str,
    modes: &'static [Mode],
    before: &'static [Known],
    during: &'static [Known],
    after: &'static [Known],
) -> Point {
    Point {
        name,
        nth: 1,
        way: Way::Post("", 20),
        flags: &[],
        modes,
        only: &[],
        before,
        during,
        after,
        steps: [ONCE; 3],
    }
}

impl Point {
    const fn nth(mut self, nth: u32) -> Point {
        self.nth = nth;
        self
    }

    const fn way(mut self, way: Way) -> Point {
        self.way = way;
        self
    }

    const fn answering(self, how: &'static str) -> Point {
        self.way(Way::Post(how, 20))
    }

    const fn flags(mut self, flags: &'static [&'static str]) -> Point {
        self.flags = flags;
        self
    }

    const fn only(mut self, stores: &'static [Store]) -> Point {
        self.only = stores;
        self
    }

    const fn steps(mut self, before: StepRuns, during: StepRuns, after: StepRuns) -> Point {
        self.steps = [before, during, after];
        self
    }
}

const ALL: &[Mode] = &[Hold, Rerun, Reconcile, Steps, Transactional];
const LEASED: &[Mode] = &[Hold, Rerun, Reconcile, Steps];
const SIMPLE: &[Mode] = &[Hold, Rerun, Reconcile];
const TWO: &[Mode] = &[Hold, Rerun];
const TX: &[Mode] = &[Transactional];
/// What is asked of a store and answered, or not.
const IN_DOUBT: &[Known] = &[Nothing, Claimed];
const MAYBE_SAVED: &[Known] = &[Done, Saved];
const MAYBE_COMMITTED: &[Known] = &[Nothing, Saved];
const SQLITE: &[Store] = &[Store::Sqlite];
const POSTGRES: &[Store] = &[Store::Postgres];
const MYSQL: &[Store] = &[Store::MySql];
const SERVERS: &[Store] = &[Store::Postgres, Store::MySql];

const TWICE_RESERVED: StepRuns = (&[2], &[1]);
const TWICE_CHARGED: StepRuns = (&[1], &[2]);

/// Fails at once, and succeeds when it is tried again.
const LOST_CLAIM: &[&str] = &["--fail", "claim=1"];
const LOST_ANSWER: &[&str] = &["--fail", "complete=1"];
const LOST_RENEWAL: &[&str] = &["--fail", "renew=1"];
const LOST_STEP: &[&str] = &["--fail", "save-steps=1"];
const SLOW: Way = Way::Post("", 3000);

/// Every await of the flow.
#[rustfmt::skip] // a table
pub(crate) const POINTS: &[Point] = &[
    // before the claim
    point("run.extractors", LEASED, &[Nothing], &[], &[Nothing]),
    point("tx.extractors", TX, &[Nothing], &[], &[Nothing]),
    point("run.scope", ALL, &[Nothing], &[], &[Nothing]),
    point("run.body", ALL, &[Nothing], &[], &[Nothing]),
    point("run.compressed_body", TWO, &[Nothing], &[], &[Nothing]).answering("compressed"),

    // the claim
    point("engine.claim", LEASED, &[Nothing], IN_DOUBT, &[Claimed]),
    point("engine.claim", TWO, &[Nothing], &[], &[Nothing]).flags(LOST_CLAIM),
    point("engine.claim_pause", TWO, &[Nothing], &[Nothing], &[Nothing]).flags(LOST_CLAIM),
    point("engine.claim_again", TWO, &[Nothing], IN_DOUBT, &[Claimed]).flags(LOST_CLAIM),
    point("engine.wait", &[Hold], &[Claimed], &[Claimed], &[Claimed]).way(Way::Waiter),
    point("run.answered", LEASED, IN_DOUBT, IN_DOUBT, &[Saved]),
    point("run.answered", TX, &[Nothing], &[Nothing], &[Saved]),
    point("run.answered", SIMPLE, &[], &[], &[Nothing]).answering("release:503"),

    // the handler, and its answer
    point("run.handler", LEASED, &[Claimed], &[Claimed], &[Done]),
    point("run.handler", TX, &[Nothing], &[Nothing], &[Nothing]),
    point("engine.complete", LEASED, &[Done], MAYBE_SAVED, &[Saved]),
    point("engine.release", SIMPLE, &[Claimed], IN_DOUBT, &[Nothing]).answering("release:503"),
    point("engine.winner", &[Rerun], &[TakenOver], &[TakenOver], &[TakenOver])
        .way(Way::Fenced).flags(&["--heartbeat", "off"]),
    point("body.chunk", TWO, &[Done], &[], &[Done]).answering("stream:3"),
    point("body.chunk", TWO, &[Tombstone], &[], &[Tombstone]).answering("large:2000000"),
    point("body.chunk", TWO, &[Tombstone], &[], &[Tombstone]).answering("sse"),
    // the first event is there at once
    point("body.chunk", TWO, &[], &[Tombstone], &[]).nth(2).answering("sse"),
    point("body.chunk", TX, &[Nothing], &[], &[Nothing]).answering("stream:3"),
    point("body.pass", TWO, &[Tombstone], &[Tombstone], &[Tombstone]).answering("stream:3000"),
    point("body.pass", TX, &[Tombstone], &[Tombstone], &[Tombstone]).answering("stream:3000"),
    point("stream.chunk", TWO, &[Done], &[], &[Done]).answering("stream:900"),
    // one chunk may be on its way to the client
    point("stream.chunk", TWO, &[], &[Done], &[]).nth(3).answering("stream:900"),
    point("stream.over_limit", TWO, &[Tombstone], &[], &[Tombstone]).answering("stream:2000"),
    point("stream.broken", TWO, &[Tombstone], &[], &[Tombstone]).answering("broken:2"),
    point("respond.read", TX, &[Tombstone], &[], &[Tombstone]).answering("stream:2000"),
    point("respond.broken", TX, &[Tombstone], &[], &[Tombstone]).answering("broken:2"),

    // what goes on meanwhile, and afterwards
    point("lease.idle", TWO, IN_DOUBT, IN_DOUBT, IN_DOUBT).way(SLOW),
    point("lease.renew", TWO, &[Claimed], &[Claimed], &[Claimed]).way(SLOW),
    point("lease.pause", TWO, &[Claimed], &[Claimed], &[Claimed]).way(SLOW).flags(LOST_RENEWAL),
    point("repair.pause", SIMPLE, &[Done], &[Done], &[Done]).flags(LOST_ANSWER),
    point("repair.permit", SIMPLE, &[Done], &[], &[Done]).flags(LOST_ANSWER),
    point("repair.call", SIMPLE, &[Done], MAYBE_SAVED, &[Saved]).flags(LOST_ANSWER),

    // durable steps
    point("steps.look", &[Steps], &[Claimed], &[], &[Claimed]),
    point("steps.step", &[Steps], &[Claimed], &[], &[Claimed]).steps(ONCE, ONCE, TWICE_RESERVED),
    point("steps.enter", &[Steps], &[Claimed], &[], &[Claimed])
        .steps(TWICE_RESERVED, ONCE, TWICE_RESERVED),
    point("steps.save", &[Steps], &[Claimed], &[Claimed], &[Claimed])
        .steps(TWICE_RESERVED, (&[1, 2], &[1]), ONCE),
    point("steps.step", &[Steps], &[Claimed], &[], &[Claimed]).nth(2)
        .steps(ONCE, ONCE, TWICE_CHARGED),
    point("steps.save", &[Steps], &[Claimed], &[Claimed], &[Claimed]).nth(2)
        .steps(TWICE_CHARGED, (&[1], &[1, 2]), ONCE),
    point("steps.pause", &[Steps], &[Claimed], &[Claimed], &[Claimed]).flags(LOST_STEP)
        .steps(TWICE_RESERVED, TWICE_RESERVED, TWICE_RESERVED),

    // the reconciler
    point("reconcile.idle", &[Reconcile], &[Done], &[Done], &[Done]).way(Way::Asked("after-effect")),
    point("reconcile.take", &[Reconcile], &[Done], &[Done], &[Done]).way(Way::Asked("after-effect")),
    point("reconcile.take", &[Reconcile], &[Claimed], &[Claimed], &[Claimed])
        .way(Way::Asked("before-effect")),
    point("reconcile.ask", &[Reconcile], &[Done], &[Done], &[Done]).way(Way::Asked("after-effect")),
    point("reconcile.complete", &[Reconcile], &[Done], &[Done], &[Done])
        .way(Way::Asked("after-effect")),
    point("reconcile.release", &[Reconcile], &[Claimed], IN_DOUBT, &[Nothing])
        .way(Way::Asked("before-effect")),
    point("reconcile.pending", &[Reconcile], &[Done], &[Done], &[Done])
        .way(Way::Asked("after-effect")).flags(&["--undecided"]),

    // one commit
    point("transaction.begin", TX, &[Nothing], &[Nothing], &[Nothing]),
    point("transaction.commit", TX, &[Nothing], MAYBE_COMMITTED, &[Saved]),
    point("transaction.keep_answer", TX, &[Nothing], &[Nothing, Failure], &[Failure])
        .answering("status:409"),
    point("tx.refused", TX, &[Nothing], &[], &[Nothing]).answering("status:503"),
    point("transaction.rollback", TX, &[Nothing], &[Nothing], &[Nothing]).answering("status:503"),

    point("sqlite.look", TX, &[Nothing], &[Nothing], &[Nothing]).only(SQLITE),
    point("sqlite.begin", TX, &[Nothing], &[Nothing], &[Nothing]).only(SQLITE),
    point("sqlite.statement", TX, &[Nothing], &[Nothing], &[Nothing]).only(SQLITE),
    point("sqlite.savepoint", TX, &[Nothing], &[Nothing], &[Nothing]).only(SQLITE),
    point("sqlite.savepoint", TX, &[Nothing], &[Nothing], &[Nothing]).only(SQLITE)
        .nth(2).answering("status:409"),
    point("sqlite.statement", TX, &[Nothing], &[Nothing], &[Nothing]).only(SQLITE).nth(2),
    point("sqlite.commit", TX, &[Nothing], MAYBE_COMMITTED, &[Saved]).only(SQLITE),
    point("sqlite.rollback", TX, &[Nothing], &[Nothing], &[Nothing]).only(SQLITE)
        .answering("status:503"),

    point("session.acquire", TX, &[Nothing], &[], &[Nothing]).only(SERVERS),
    point("session.begin", TX, &[Nothing], &[Nothing], &[Nothing]).only(SERVERS),
    point("session.end_inner", TX, &[Nothing], &[Nothing], &[Nothing]).only(SERVERS)
        .answering("nested"),
    point("session.commit", TX, &[Nothing], MAYBE_COMMITTED, &[Saved]).only(SERVERS),
    point("session.rollback", TX, &[Nothing], &[Nothing], &[Nothing]).only(SERVERS)
        .answering("status:503"),

    point("postgres.look", TX, &[Nothing], &[Nothing], &[Nothing]).only(POSTGRES),
    point("postgres.statement", TX, &[Nothing], &[Nothing], &[Nothing]).only(POSTGRES),
    point("postgres.savepoint", TX, &[Nothing], &[Nothing], &[Nothing]).only(POSTGRES),
    point("postgres.savepoint", TX, &[Nothing], &[Nothing], &[Nothing]).only(POSTGRES)
        .nth(2).answering("status:409"),
    point("postgres.statement", TX, &[Nothing], &[Nothing], &[Nothing]).only(POSTGRES).nth(2),

    point("mysql.look", TX, &[Nothing], &[Nothing], &[Nothing]).only(MYSQL),
    point("mysql.statement", TX, &[Nothing], &[Nothing], &[Nothing]).only(MYSQL),
    point("mysql.run", TX, &[Nothing], &[Nothing], &[Nothing]).only(MYSQL),
    point("mysql.run", TX, &[Nothing], &[Nothing], &[Nothing]).only(MYSQL)
        .nth(2).answering("status:409"),
    point("mysql.statement", TX, &[Nothing], &[Nothing], &[Nothing]).only(MYSQL).nth(2),
    // the session's settings are put back after the commit
    point("mysql.run", TX, &[Saved], &[Saved], &[Saved]).only(MYSQL).nth(2),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    /// The files that a request's flow and what goes on in the background are in.
    const FILES: &[&str] = &[
        "actix/response.rs",
        "actix/run.rs",
        "actix/tx.rs",
        "engine.rs",
        "lease.rs",
        "reconcile.rs",
        "repair.rs",
        "steps.rs",
        "store/mysql/transaction.rs",
        "store/postgres/transaction.rs",
        "store/sql/session.rs",
        "store/sqlite/transaction.rs",
        "transaction.rs",
    ];

    /// Awaits without a point of their own, by the file and what they await, or how that begins.
    #[rustfmt::skip] // a table
    const WITHOUT: &[(&str, &str)] = &[
        // functions of these same files, in which the points are
        ("actix/run.rs", "admitted.unfolds_too_far(&body)"),
        ("actix/run.rs", "admitted.protect(body, section)"),
        ("actix/run.rs", "claim.release()"),
        ("actix/tx.rs", "given.is_refused(&shared.engine, &mut transaction)"),
        ("actix/tx.rs", "given.is_refused(engine, &mut transaction)"),
        ("actix/tx.rs", "settlement.end(transaction, Ending::Rollback)"),
        ("actix/tx.rs", "transaction::end(engine, transaction, Ending::Rollback)"),
        ("engine.rs", "self.leases.assure(owner, store, budget)"),
        // only after a key was freed behind an owner that was taken for dead
        ("engine.rs", "Box::pin(self.complete_anew(&answer))"),
        ("engine.rs", "anew.save(answer, store, budget)"),
        ("repair.rs", "anew.save(answer, store, budget)"),
        ("repair.rs", "within(budget, store.claim(&claim))"),
        ("repair.rs", "within(budget, store.complete(&claim.id, claim.owner, answer))"),
        // only after the reconciler of the owner's own process has taken the record
        ("engine.rs", "within(self.engine.call_budget, call)"),
        ("repair.rs", "within(budget, store.complete(&self.claim.id, token, answer))"),
        // only after a takeover behind a paused owner
        ("actix/run.rs", "self.unless_fenced(settled, own)"),
        ("actix/run.rs", "self.break_off(&client)"),
        ("actix/run.rs", "client.send(Err(fenced.into()))"),
        ("steps.rs", "self.engine.assure_held(self.owner)"),
        ("actix/run.rs", "self.unless_fenced(settled, response)"),
        ("actix/run.rs", "self.settle_whole(claim, response, send)"),
        ("actix/run.rs", "Box::pin(self.settle_unkept(claim, response, send))"),
        ("actix/run.rs", "Box::pin(self.settle_passing(claim, response, send))"),
        ("actix/run.rs", "claim.complete(tombstone)"),
        ("actix/run.rs", "pass(body, client)"),
        ("actix/run.rs", "collect(body, self.policy.max_response)"),
        ("actix/run.rs", "claim.complete(answer)"),
        ("actix/run.rs", "claim.complete(Answer::Tombstone { code })"),
        ("actix/run.rs", "Box::pin(respond(head, partial, send))"),
        ("actix/run.rs", "next_chunk(&mut body)"),
        ("actix/run.rs", "claim.complete(Answer::Kept(stored))"),
        ("actix/run.rs", "Box::pin(self.shared.engine.answer_of_the_winner(&attempt))"),
        ("actix/run.rs", "shared.engine.begin(&admitted.policy, request)"),
        ("actix/run.rs", "self.caught(handler)"),
        ("actix/run.rs", "admitted.response(handler)"),
        ("actix/run.rs", "admitted.settle(claim, response, send)"),
        ("actix/run.rs", "pass(rest, client)"),
        ("actix/tx.rs", "admitted.unfolds_too_far(&body)"),
        ("actix/tx.rs", "admitted.protect(body, section)"),
        ("actix/tx.rs", "shared.engine.begin_transaction(&admitted.policy, request)"),
        ("actix/tx.rs", "admitted.caught(running)"),
        ("actix/tx.rs", "collect(body, limit)"),
        ("actix/tx.rs", "settlement.end(transaction, ending)"),
        ("actix/tx.rs", "respond(head, collected, send)"),
        ("actix/response.rs", "next_chunk(&mut body)"),
        ("engine.rs", "self.claim(&claim)"),
        ("engine.rs", "ask()"),
        ("repair.rs", "run(&*store, &calls, &id, owner, repair, patience, budget)"),
        ("steps.rs", "self.save(column.into())"),
        ("transaction.rs", "self.ask_transaction(&claim)"),
        ("transaction.rs", "end(&self.engine, transaction, ending)"),
        ("reconcile.rs", "self.round(&engine)"),
        ("store/mysql/transaction.rs", "self.open()"),
        ("store/mysql/transaction.rs", "open.is_taken(claim, found.owner())"),
        ("store/mysql/transaction.rs", "open.begin(Some(claim.lease))"),
        ("store/mysql/transaction.rs", "open.begin(None)"),
        ("store/mysql/transaction.rs", "open.take(claim, &found)"),
        ("store/mysql/transaction.rs", "open.run(Settings::mark())"),
        ("store/mysql/transaction.rs", "open.run(MARK.into_sql_str())"),
        ("store/mysql/transaction.rs", "open.abandon()"),
        ("store/mysql/transaction.rs", "open.end()"),
        ("store/mysql/transaction.rs", "self.run(self.settings.restore())"),
        ("store/mysql/transaction.rs", "self.run(RELEASE_MARK.into_sql_str())"),
        ("store/mysql/transaction.rs", "self.run(BACK_TO_MARK.into_sql_str())"),
        ("store/mysql/transaction.rs", "self.insert(claim)"),
        ("store/mysql/transaction.rs", "self.replace(claim)"),
        ("store/mysql/transaction.rs", "self.take_over(claim, record)"),
        ("store/mysql/transaction.rs", "self.send(|s| &s.inside.claim, &values)"),
        ("store/mysql/transaction.rs", "self.send(|s| &s.inside.replace, &values)"),
        ("store/mysql/transaction.rs", "self.send(|s| &s.inside.take_over, &values)"),
        ("store/mysql/transaction.rs", "self.send(|s| &s.inside.complete, &values)"),
        ("store/mysql/transaction.rs", "self.complete(answer)"),
        ("store/mysql/transaction.rs", "self.abandon()"),
        ("store/mysql/transaction.rs", "self.end()"),
        ("store/mysql/transaction.rs", "self.finish(answer)"),
        ("store/mysql/transaction.rs", "self.try_claimed(claim)"),
        ("store/mysql/transaction.rs", "self.session.begin(statement)"),
        ("store/mysql/transaction.rs", "self.session.rollback()"),
        ("store/mysql/transaction.rs", "self.session.end_inner()"),
        ("store/mysql/transaction.rs", "self.session.commit()"),
        ("store/mysql/transaction.rs", "Session::acquire(&self.connections)"),
        ("store/postgres/transaction.rs", "self.open(None)"),
        ("store/postgres/transaction.rs", "self.open(Some(claim.lease))"),
        ("store/postgres/transaction.rs", "open.take(claim, self.lock(&claim.id))"),
        ("store/postgres/transaction.rs", "open.run(MARK)"),
        ("store/postgres/transaction.rs", "open.abandon()"),
        ("store/postgres/transaction.rs", "self.run(RELEASE_MARK)"),
        ("store/postgres/transaction.rs", "self.run(BACK_TO_MARK)"),
        ("store/postgres/transaction.rs", "self.send(|s| &s.claim_in_transaction, &begin)"),
        ("store/postgres/transaction.rs", "self.send(|s| &s.get, &begin[..3])"),
        ("store/postgres/transaction.rs", "self.send(|s| &s.replace, &begin[..9])"),
        ("store/postgres/transaction.rs", "self.send(|s| &s.take_over, &take_over)"),
        ("store/postgres/transaction.rs", "self.send(|s| &s.complete_in_transaction, &values)"),
        ("store/postgres/transaction.rs", "self.complete(answer)"),
        ("store/postgres/transaction.rs", "self.abandon()"),
        ("store/postgres/transaction.rs", "self.finish(answer)"),
        ("store/postgres/transaction.rs", "self.try_claimed(claim)"),
        ("store/postgres/transaction.rs", "self.session.rollback()"),
        ("store/postgres/transaction.rs", "self.session.end_inner()"),
        ("store/postgres/transaction.rs", "self.session.commit()"),
        ("store/postgres/transaction.rs", "session.begin(opening(lease))"),
        ("store/postgres/transaction.rs", "Session::acquire(&self.connections)"),
        ("store/sqlite/transaction.rs", "begin(&self.shared.turn)"),
        ("store/sqlite/transaction.rs", "self.carry_out(Complete { id, owner, answer })"),
        ("store/sqlite/transaction.rs", "open.carry_out(Take(claim.clone()))"),
        ("store/sqlite/transaction.rs", "open.run(MARK)"),
        ("store/sqlite/transaction.rs", "open.abandon()"),
        ("store/sqlite/transaction.rs", "self.run(BACK_TO_MARK)"),
        ("store/sqlite/transaction.rs", "self.finish(answer)"),
        ("store/sqlite/transaction.rs", "self.abandon()"),
        ("store/sql/session.rs", "self.end_inner()"),
        ("engine.rs", "self.ask_or_wait(…"),
        ("engine.rs", "within(self.call_budget, async {…"),
        ("transaction.rs", "self.ask_or_wait(…"),
        ("transaction.rs", "within(budget, async {…"),
        ("reconcile.rs", "futures_util::stream::iter(records)…"),
        // the budget around a call: whoever awaits it has the point
        ("repair.rs", "tokio::time::timeout(budget, call)"),
        // like a renewal, but only before a step that begins after a pause of the process
        ("lease.rs", "within(call_budget, store.renew(&renewal))"),
        // what was read of the body, right before `respond.broken`
        ("actix/run.rs", "client.send(Ok(read))"),
        // within `tx.refused`
        ("actix/tx.rs", "tokio::time::timeout(engine.call_budget(), transaction.is_refused())"),
        ("store/postgres/transaction.rs", "self.session.connection().ping()"),
        ("store/mysql/transaction.rs", "sqlx::raw_sql(\"SHOW ERRORS\").fetch_all(self.session.connection())"),
        // within the await that runs the handler
        ("actix/run.rs", "handler(args)"),
        ("actix/tx.rs", "handler(args, transaction.connection())"),
        ("actix/tx.rs", "work(claimed.transaction)"),
        ("lease.rs", "telling"),
        // within `repair.call` and `reconcile.ask`
        ("repair.rs", "within(budget, done)"),
        ("repair.rs", "release_uncertain(store, id, owner, budget)"),
        ("repair.rs", "within(budget, ended)"),
        ("repair.rs", "store.get(id)"),
        ("repair.rs", "store.release(id, owner)"),
        ("repair.rs", "store.renew(&[end])"),
        ("reconcile.rs", "function(abandoned)"),
        // requests without a key, for which nothing is promised
        ("actix/run.rs", "Args::from_request(&request, &mut payload)"),
        ("actix/tx.rs", "Args::from_request(&request, &mut payload)"),
        ("actix/tx.rs", "without_key(route, &request.clone(), work(request, handler, args))"),
        ("actix/tx.rs", "attempt_without_key(shared, &served.policy, work)"),
        ("actix/tx.rs", "within(engine.call_budget(), store.begin())"),
        ("actix/tx.rs", "work(transaction)"),
        ("actix/tx.rs", "transaction::end(engine, transaction, ending)"),
        // never waits: polls once
        ("actix/run.rs", "begun"),
        ("repair.rs", "poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx)))"),
        // between two tries at something of which nothing is left
        ("store/mysql/transaction.rs", "pause(attempt)"),
        ("store/postgres/transaction.rs", "pause(attempt)"),
        ("store/sqlite/transaction.rs", "tokio::task::yield_now()"),
        // a read, when it is decided already that this request does not run
        ("store/mysql/transaction.rs", "statement.send(self.session.connection(), &identity(&claim.id))"),
        ("store/mysql/transaction.rs", "self.run(\"SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED\".into_sql_str())"),
    ];

    #[test]
    fn the_table_has_every_point_of_the_code_and_no_other() {
        let in_code = idem_runtime::fail_points::names();
        let once: BTreeSet<_> = in_code.iter().copied().collect();
        assert_eq!(
            once.len(),
            in_code.len(),
            "two points of one name: {in_code:?}"
        );
        let in_table: BTreeSet<_> = POINTS.iter().map(|point| point.name).collect();
        assert_eq!(in_table, once);
    }

    /// What is awaited at `end`: the expression before it, its white space gone.
    fn awaited(source: &str, end: usize) -> String {
        let bytes = source.as_bytes();
        let (mut depth, mut start) = (0, end);
        while start > 0 {
            let byte = bytes[start - 1];
            match byte {
                b')' | b']' | b'}' => depth += 1,
                b'(' | b'[' | b'{' if depth == 0 => break,
                b'(' | b'[' | b'{' => depth -= 1,
                b';' | b',' | b'=' | b'!' | b'>' if depth == 0 => break,
                _ => {}
            }
            start -= 1;
            // A word before the expression, such as `match` or `return`.
            if depth == 0 && byte.is_ascii_whitespace() {
                let before = source[..start].trim_end();
                let continues = source[start + 1..].trim_start().starts_with('.');
                if !continues && !before.ends_with('.') {
                    break;
                }
            }
        }
        squeezed(&source[start..end])
    }

    fn squeezed(code: &str) -> String {
        let code: String = code.split_whitespace().collect();
        code.replace(",)", ")")
    }

    #[test]
    fn every_await_of_the_flow_has_its_point() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../idem-runtime/src");
        let mut exceptions: BTreeSet<(&str, String)> = WITHOUT
            .iter()
            .map(|(file, code)| (*file, squeezed(code)))
            .collect();
        let known = exceptions.clone();
        let mut missing = Vec::new();
        let mut with_a_point = 0;
        for file in FILES {
            let source = fs::read_to_string(sources.join(file)).unwrap();
            let code = source.split("#[cfg(test)]").next().unwrap();
            let code: String = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
                .map(|line| format!("{line}\n"))
                .collect();
            // The branch of a select that takes time is the one with the point.
            for (at, _) in code.match_indices("select! {") {
                let end = code[at..]
                    .find("\n            }")
                    .map_or(code.len(), |end| at + end);
                assert!(
                    code[at..end].contains("point!("),
                    "{file}: {}",
                    &code[at..end]
                );
            }
            for (end, _) in code.match_indices(".await") {
                let awaited = awaited(&code, end);
                if awaited.ends_with(')') && code[..end].trim_end().ends_with(')') {
                    // `point!(…)` ends at the `!` when read backwards.
                    let open = code[..end].trim_end();
                    if is_point(open) {
                        with_a_point += 1;
                        continue;
                    }
                }
                let excuse = known.iter().find(|(place, code)| {
                    place == file
                        && match code.strip_suffix('…') {
                            Some(beginning) => awaited.starts_with(beginning),
                            None => awaited == *code,
                        }
                });
                match excuse {
                    Some(excuse) => drop(exceptions.remove(excuse)),
                    None => missing.push((*file, awaited)),
                }
            }
        }
        assert!(missing.is_empty(), "awaits without a point: {missing:#?}");
        assert!(exceptions.is_empty(), "not there any more: {exceptions:#?}");
        assert!(
            with_a_point > 40,
            "{with_a_point}: is this still how points are written?"
        );
    }

    /// Whether this code ends with a call of the macro.
    fn is_point(code: &str) -> bool {
        let mut depth = 0;
        for (at, byte) in code.bytes().enumerate().rev() {
            match byte {
                b')' => depth += 1,
                b'(' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return code[..at].ends_with("point!");
            }
        }
        false
    }
}
