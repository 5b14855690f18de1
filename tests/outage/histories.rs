//! Random faults, and what has to hold whatever happens.
//!
//! A history follows from its seed, up to the scheduling of the machine. It is printed; the variable
//! `IDEM_TEST_SEED` makes a run of that history alone.

use crate::{
    LAB, SLACK,
    line::{Line, breakable},
    plan::{LONGEST_HANDLER, LabFault, Plan, Request, StoreFault, Timed},
    recovered,
};
use futures_util::future::join_all;
use idem_tests::{
    harness::{Connection, Lab, Reply, Site, each, scaled},
    services::OwnServers,
};
use nix::sys::signal::Signal;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    sync::RwLock,
    task::spawn_blocking,
    time::{Instant, sleep, sleep_until},
};

const SEED_VARIABLE: &str = "IDEM_TEST_SEED";
const LEASE: Duration = Duration::from_secs(1);
const FLAGS: &[&str] = &["--lease", "1s", "--store-timeout", "1s"];
/// How long the lab may take to finish its work after SIGTERM.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn whatever_happens_a_key_has_one_effect_and_one_answer() {
    let only = env::var(SEED_VARIABLE).ok();
    let (first, count): (u64, u64) = match &only {
        Some(seed) => (seed.parse().expect("the seed is a number"), 1),
        None => (u64::from(rand::random::<u32>()), scaled(6, 200)),
    };
    each(breakable(), async |store| {
        let (mut line, place, servers) = Line::open_own(store).await;
        let mut site = Site::open_in(Path::new(LAB), place, FLAGS).await;
        for seed in first..first + count {
            let plan = Plan::of(seed, store);
            let begun = Instant::now();
            eprintln!("{store}: {SEED_VARIABLE}={seed} makes this history again: {plan:?}");
            let mut history = History {
                site: &site,
                prefix: format!("{seed}-"),
                addresses: Mutex::new(Vec::new()),
                store_is_up: RwLock::new(()),
                begun,
            };
            let replies = history.run(plan, &mut line, servers.clone()).await;
            history.judge(replies).await;
            eprintln!("{store}: seed {seed} held, after {:?}", begun.elapsed());
        }
        // It took part in all of them: nothing may be left in flight.
        site.lab.signal(Signal::SIGTERM);
        assert_eq!(site.lab.ended(DRAIN_LIMIT + SLACK).await.code(), Some(0));
    })
    .await;
}

/// One history while it happens.
struct History<'a> {
    site: &'a Site,
    /// What its keys begin with.
    prefix: String,
    /// Where each process listens now.
    addresses: Mutex<Vec<SocketAddr>>,
    /// Written while the store is away: a process cannot be started then.
    store_is_up: RwLock<()>,
    begun: Instant,
}

/// An answer that came.
struct Answered {
    path: &'static str,
    key: String,
    /// None: the connection ended before.
    reply: Option<Reply>,
}

impl History<'_> {
    async fn run(
        &mut self,
        plan: Plan,
        line: &mut Line,
        servers: Option<Arc<OwnServers>>,
    ) -> Vec<Answered> {
        let labs = join_all(plan.labs.iter().map(|_| self.site.another(FLAGS))).await;
        let mut addresses = vec![self.site.address()];
        addresses.extend(labs.iter().map(Lab::address));
        self.addresses = Mutex::new(addresses);
        self.begun = Instant::now();
        let this = &*self;
        let labs = labs.into_iter().zip(plan.labs).enumerate();
        let labs = labs.map(|(index, (lab, faults))| this.disturb_lab(index + 1, lab, faults));
        let requests = plan
            .requests
            .into_iter()
            .map(|request| this.request(request));
        let (labs, replies, ()) = tokio::join!(
            join_all(labs),
            join_all(requests),
            this.disturb_store(plan.store, line, servers),
        );
        // They all took part, and end as processes do.
        for mut lab in labs {
            self.terminate(&mut lab).await;
        }
        replies
    }

    async fn reached(&self, at: u64) {
        sleep_until(self.begun + Duration::from_millis(at)).await;
    }

    fn address(&self, lab: usize) -> SocketAddr {
        self.addresses.lock().unwrap()[lab]
    }

    async fn terminate(&self, lab: &mut Lab) {
        lab.signal(Signal::SIGTERM);
        let status = lab.ended(DRAIN_LIMIT + SLACK).await;
        assert_eq!(status.code(), Some(0), "{}", lab.log());
    }

    async fn disturb_lab(&self, index: usize, mut lab: Lab, faults: Vec<Timed<LabFault>>) -> Lab {
        for fault in faults {
            self.reached(fault.at).await;
            match fault.what {
                LabFault::Kill { away } => {
                    lab.kill();
                    sleep(Duration::from_millis(away)).await;
                }
                LabFault::Stop { away } => {
                    lab.signal(Signal::SIGSTOP);
                    sleep(Duration::from_millis(away)).await;
                    lab.signal(Signal::SIGCONT);
                    continue;
                }
                LabFault::Terminate => self.terminate(&mut lab).await,
            }
            let _up = self.store_is_up.read().await;
            lab = self.site.another(FLAGS).await;
            self.addresses.lock().unwrap()[index] = lab.address();
        }
        lab
    }

    async fn disturb_store(
        &self,
        faults: Vec<Timed<StoreFault>>,
        line: &mut Line,
        servers: Option<Arc<OwnServers>>,
    ) {
        for fault in faults {
            self.reached(fault.at).await;
            let _away = self.store_is_up.write().await;
            match fault.what {
                StoreFault::Cut { away } => {
                    line.cut().await;
                    sleep(Duration::from_millis(away)).await;
                    line.heal().await;
                }
                StoreFault::Freeze { away } => {
                    line.freeze().await;
                    sleep(Duration::from_millis(away)).await;
                    line.heal().await;
                }
                StoreFault::Restart { server } => {
                    let servers = servers.clone().expect("a store with a server");
                    let restarted = spawn_blocking(move || {
                        servers.kill(&server);
                        servers.restart(&server);
                    });
                    restarted.await.unwrap();
                }
            }
            self.until_the_store_answers().await;
        }
    }

    /// A cluster takes a while to find itself again.
    async fn until_the_store_answers(&self) {
        let probe = self.site.post("/default").json("{}");
        let key = format!("{}probe-{}", self.prefix, rand::random::<u32>());
        recovered(&probe.key(&key), LEASE).await;
    }

    async fn request(&self, request: Timed<Request>) -> Answered {
        self.reached(request.at).await;
        let Request {
            lab,
            path,
            key,
            delay,
            leaves,
        } = request.what;
        let key = format!("{}{key}", self.prefix);
        let address = self.address(lab);
        let reply = match leaves {
            Some(after) => {
                self.leave(address, path, &key, delay, after).await;
                None
            }
            None => {
                let order = self.site.post(path).key(&key).json("{}").delay_ms(delay);
                order.at(address).try_send().await.ok()
            }
        };
        Answered { path, key, reply }
    }

    /// Sends a request and resets the connection.
    async fn leave(&self, address: SocketAddr, path: &str, key: &str, delay: u64, after: u64) {
        let Ok(mut connection) = Connection::try_open(address).await else {
            return;
        };
        let delay = delay.to_string();
        let headers: [(&str, &[u8]); 3] = [
            ("Idempotency-Key", key.as_bytes()),
            ("Content-Type", b"application/json"),
            ("X-Lab-Delay-Ms", delay.as_bytes()),
        ];
        let request = self.site.raw_post(path, &headers, b"{}");
        if connection.send(&request).await.is_ok() {
            sleep(Duration::from_millis(after)).await;
            connection.reset();
        }
    }

    /// What has to hold when everything is well again.
    async fn judge(&self, answered: Vec<Answered>) {
        let mut keys = BTreeSet::new();
        let mut bodies: BTreeMap<String, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for Answered { path, key, reply } in answered {
            keys.insert((path, key.clone()));
            let Some(reply) = reply else { continue };
            let expected = [
                "in-progress",
                "outcome-unknown",
                "store-unavailable",
                "shutting-down",
            ];
            match reply.problem() {
                None => assert_eq!(reply.status, 201, "{key}: {reply:?}"),
                Some(slug) => assert!(expected.contains(&slug.as_str()), "{key}: {reply:?}"),
            }
            // A route that runs abandoned work again accepts that the client of an owner that was
            // cut off from the store gets an answer which is then superseded; but not two that stand.
            if reply.status == 201 && (path != "/rerun" || reply.is_replay()) {
                bodies.entry(key).or_default().insert(reply.body.to_vec());
            }
        }
        assert!(!keys.is_empty(), "nothing was asked");
        for (path, key) in keys {
            let longest = LEASE + Duration::from_millis(LONGEST_HANDLER);
            let order = self.site.post(path).key(&key).json("{}");
            let last = recovered(&order, longest).await;
            let effects = self.site.journal.effects(&key);
            let seen = bodies.entry(key.clone()).or_default();
            if last.status == 201 {
                seen.insert(last.body.to_vec());
                assert!(effects >= 1, "{key}: an answer without its effect");
            } else {
                last.assert_problem(409, "outcome-unknown");
                assert_ne!(path, "/rerun", "{key}: {last:?}");
            }
            if path != "/rerun" {
                assert!(effects <= 1, "{key}: {effects} effects");
            }
            assert!(seen.len() <= 1, "{key}: two answers: {seen:?}");
        }
    }
}
