//! What the attribute costs a handler, as ratios to the same handler without it.
//!
//! One server with one worker, on loopback, with connections that stay open. It is asked in two ways:
//!
//! * one request at a time: how much longer the one client waits;
//! * many at a time, so that the worker is never idle: how much less it gets done.
//!
//! The handler does next to nothing: the ratios are the worst there can be. The candidates take
//! turns within one run and each is compared with the bare handler of the same round, so that a busy
//! machine disturbs all of them alike.
//!
//! ```text
//! cargo bench -p idem-runtime --bench handler
//! cargo bench -p idem-runtime --bench handler -- memory     # these alone, for a profiler
//! cargo bench -p idem-runtime --bench handler -- --quick    # does it run at all
//! ```

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    future::{Ready, ready},
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use actix_web::{
    App, Error, FromRequest, HttpRequest, HttpResponse, HttpServer, dev::Payload,
    error::ErrorUnauthorized, http::header, web,
};
use idem_runtime::{
    Idempotency, idempotent,
    store::{MemoryStore, SqliteStore},
};
use serde::{Deserialize, Serialize};

const CONNECTIONS: usize = 32;
/// Requests on each connection before the next candidate has its turn.
const REPEATS: usize = 30;
const ROUNDS: usize = 60;
/// One at a time, SQLite waits for the disk for each request.
const ROUNDS_ALONE: usize = 15;

/// The goal for a client that waits for its first request on a [`MemoryStore`].
const GOAL: f64 = 0.7;

/// How many requests are on their way at one time, each on a connection of its own.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    One,
    All,
}

const CANDIDATES: [Candidate; 6] = [
    Candidate::new("bare", "/bare", Keys::Fresh),
    Candidate::new("no key", "/memory", Keys::None),
    Candidate::new("memory, first call", "/memory", Keys::Fresh),
    Candidate::new("memory, replay", "/memory", Keys::OneEach),
    Candidate::new("SQLite, first call", "/sqlite", Keys::Fresh),
    Candidate::new("SQLite, replay", "/sqlite", Keys::OneEach),
];

struct Candidate {
    name: &'static str,
    prefix: &'static str,
    keys: Keys,
}

#[derive(Clone, Copy, PartialEq)]
enum Keys {
    None,
    /// A new one for each request.
    Fresh,
    /// The same one for all requests of a connection.
    OneEach,
}

impl Candidate {
    const fn new(name: &'static str, prefix: &'static str, keys: Keys) -> Self {
        Candidate { name, prefix, keys }
    }
}

fn main() {
    let (flags, names): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|argument| argument.starts_with("--"));
    let is_quick = flags.iter().any(|flag| flag == "--quick");
    // Everything is compared with the first, the bare handler.
    let candidates: Vec<_> = CANDIDATES
        .iter()
        .enumerate()
        .filter(|(n, candidate)| {
            *n == 0 || names.is_empty() || names.iter().any(|name| candidate.name.contains(name))
        })
        .map(|(_, candidate)| candidate)
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let address = serve(&folder.path().join("records.db"));
    let mut client = Client::connect(address);

    for (pace, rounds) in [(Pace::One, ROUNDS_ALONE), (Pace::All, ROUNDS)] {
        let rounds = if is_quick { 3 } else { rounds };
        compare(&mut client, &candidates, pace, rounds);
    }
}

fn compare(client: &mut Client, candidates: &[&Candidate], pace: Pace, rounds: usize) {
    let mut samples: Vec<Vec<Sample>> = candidates.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        for (candidate, samples) in candidates.iter().zip(&mut samples) {
            let sample = client.turn(candidate, pace);
            // The first round fills caches and keys.
            if round > 0 {
                samples.push(sample);
            }
        }
    }

    let at_once = match pace {
        Pace::One => 1,
        Pace::All => CONNECTIONS,
    };
    println!("{at_once} at a time, one worker; medians of {rounds} rounds");
    let bare = &samples[0];
    for (candidate, samples) in candidates.iter().zip(&samples) {
        let ratio = |part: fn(&Sample) -> Duration| {
            median(
                bare.iter()
                    .zip(samples)
                    .map(|(bare, sample)| part(bare).as_secs_f64() / part(sample).as_secs_f64()),
            )
        };
        let micros = |part: fn(&Sample) -> Duration| {
            median(
                samples
                    .iter()
                    .map(|sample| part(sample).as_secs_f64() * 1e6),
            ) / (CONNECTIONS * REPEATS) as f64
        };
        let speed = ratio(|sample| sample.wall);
        print!(
            "{:<20} {:>7.2} µs a request: runs at {speed:.2} of bare",
            candidate.name,
            micros(|sample| sample.wall),
        );
        if samples.iter().all(|sample| !sample.cpu.is_zero()) {
            print!(
                "; server's CPU time {:>6.2} µs, {:.2} of bare",
                micros(|sample| sample.cpu),
                ratio(|sample| sample.cpu),
            );
        }
        if candidate.name == "memory, first call" && pace == Pace::One {
            let verdict = if speed >= GOAL { "ok" } else { "TOO SLOW" };
            print!(" (goal {GOAL}, {verdict})");
        }
        println!();
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How many times a handler has run: what shows that a replay was one.
static CALLS: AtomicU64 = AtomicU64::new(0);

#[derive(Deserialize)]
struct Order {
    items: Vec<Item>,
    currency: String,
    amount: u64,
}

#[derive(Deserialize)]
struct Item {
    id: u64,
    quantity: u64,
}

#[derive(Serialize)]
struct Placed<'a> {
    order_id: u64,
    owner: &'a str,
    amount: u64,
    currency: &'a str,
    pieces: u64,
}

struct User(String);

impl FromRequest for User {
    type Error = Error;
    type Future = Ready<Result<User, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let token = request
            .headers()
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        ready(match token {
            Some(token) => Ok(User(token.to_owned())),
            None => Err(ErrorUnauthorized("who are you?")),
        })
    }
}

async fn bare(user: User, order: web::Json<Order>) -> HttpResponse {
    place(&user, &order)
}

#[idempotent(scope = "user", ttl = "24h")]
async fn annotated(user: User, order: web::Json<Order>) -> HttpResponse {
    place(&user, &order)
}

fn place(user: &User, order: &Order) -> HttpResponse {
    CALLS.fetch_add(1, Ordering::Relaxed);
    HttpResponse::Created().json(Placed {
        // Answers of one length are read without being parsed.
        order_id: 1_000_000 + order.items.iter().map(|item| item.id).sum::<u64>(),
        owner: &user.0,
        amount: order.amount,
        currency: &order.currency,
        pieces: order.items.iter().map(|item| item.quantity).sum(),
    })
}

/// Starts the server in a thread of its own, for as long as the process lives.
fn serve(database: &std::path::Path) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("sqlite:{}", database.display());
    let (started, when_started) = mpsc::channel();
    thread::spawn(move || {
        actix_web::rt::System::new().block_on(async move {
            let memory = Idempotency::builder(MemoryStore::new())
                .scope("user", |user: User| user.0)
                .build()
                .unwrap();
            let sqlite = Idempotency::builder(SqliteStore::connect(&url).await.unwrap())
                .scope("user", |user: User| user.0)
                .build()
                .unwrap();
            let server = HttpServer::new(move || {
                let orders = |prefix| web::scope(prefix);
                App::new()
                    .service(orders("/bare").route("/orders", web::post().to(bare)))
                    .service(
                        orders("/memory")
                            .app_data(memory.clone())
                            .route("/orders", web::post().to(annotated)),
                    )
                    .service(
                        orders("/sqlite")
                            .app_data(sqlite.clone())
                            .route("/orders", web::post().to(annotated)),
                    )
            })
            .workers(1)
            .keep_alive(Duration::from_secs(600))
            .disable_signals()
            .listen(listener)
            .unwrap()
            .run();
            started.send(()).unwrap();
            server.await.unwrap();
        });
    });
    when_started.recv().unwrap();
    address
}

/// What one turn of a candidate took.
struct Sample {
    wall: Duration,
    /// Of all threads but the client's; zero where the system does not tell.
    cpu: Duration,
}

/// A client that does as little as it can, so that its cost does not hide the server's.
struct Client {
    connections: Vec<TcpStream>,
    next_key: u64,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let connections = (0..CONNECTIONS).map(|_| {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        });
        Client {
            connections: connections.collect(),
            next_key: 0,
            buffer: vec![0; 4096],
        }
    }

    /// Sends a candidate's requests, one at a time on each connection.
    fn turn(&mut self, candidate: &Candidate, pace: Pace) -> Sample {
        let mut requests: Vec<Request> = (0..CONNECTIONS)
            .map(|connection| Request::new(candidate, connection))
            .collect();
        let mut length = None;
        // Fresh keys are used once; the others must have been, or the turn is none of replays.
        if candidate.keys == Keys::OneEach {
            self.exchange(&requests, pace, &mut None);
            self.exchange(&requests, pace, &mut length);
        }
        let calls = CALLS.load(Ordering::Relaxed);
        let (start, cpu) = (Instant::now(), cpu_of_others());
        for _ in 0..REPEATS {
            if candidate.keys == Keys::Fresh {
                for request in &mut requests {
                    self.next_key += 1;
                    request.set_key(self.next_key);
                }
            }
            self.exchange(&requests, pace, &mut length);
        }
        let sample = Sample {
            wall: start.elapsed(),
            cpu: cpu_of_others().saturating_sub(cpu),
        };
        let expected = match candidate.keys {
            Keys::OneEach => 0,
            Keys::None | Keys::Fresh => CONNECTIONS * REPEATS,
        };
        let calls = CALLS.load(Ordering::Relaxed) - calls;
        assert_eq!(calls, expected as u64, "calls of {}", candidate.name);
        sample
    }

    /// One request on each connection, and all their answers, which are of one `length`.
    fn exchange(&mut self, requests: &[Request], pace: Pace, length: &mut Option<usize>) {
        if pace == Pace::All {
            for (mut connection, request) in self.connections.iter().zip(requests) {
                connection.write_all(&request.bytes).unwrap();
            }
        }
        for (mut connection, request) in self.connections.iter().zip(requests) {
            if pace == Pace::One {
                connection.write_all(&request.bytes).unwrap();
            }
            let mut read = 0;
            while length.is_none_or(|length| read < length) {
                let more = read_spinning(connection, &mut self.buffer[read..]);
                assert!(more > 0, "the server has closed a connection");
                read += more;
                if length.is_none() {
                    *length = length_of_answer(&self.buffer[..read]);
                }
            }
            let answer = &self.buffer[..read];
            assert!(
                answer.starts_with(b"HTTP/1.1 201 ") && Some(read) == *length,
                "{}",
                String::from_utf8_lossy(answer)
            );
        }
    }
}

/// Reads without ever sleeping: whoever has to wake its client pays for it, and how often depends on
/// which of the two happens to be the faster.
fn read_spinning(mut connection: &TcpStream, buffer: &mut [u8]) -> usize {
    let since = Instant::now();
    loop {
        match connection.read(buffer) {
            Ok(read) => return read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                assert!(since.elapsed() < Duration::from_secs(60), "no answer");
                thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Head and body, as soon as the head is there.
fn length_of_answer(bytes: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(bytes).unwrap();
    let head = text.find("\r\n\r\n")?;
    let body: usize = text[..head]
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .expect("a body of known length")
        .parse()
        .unwrap();
    Some(head + 4 + body)
}

struct Request {
    bytes: Vec<u8>,
    key_at: usize,
}

/// 200 bytes, as an API gets it.
const ORDER: &str = r#"{"items":[{"id":420017,"quantity":1},{"id":420018,"quantity":12},{"id":512044,"quantity":3}],"currency":"EUR","amount":153990,"note":"please ring twice, the bell is low","express":false,"coupon":null}"#;

const KEY: &str = "9b1deb4d-3b7d-4bad-9bdd-000000000000";

impl Request {
    fn new(candidate: &Candidate, connection: usize) -> Request {
        assert_eq!(ORDER.len(), 200);
        let key = match candidate.keys {
            Keys::None => String::new(),
            Keys::Fresh | Keys::OneEach => format!("Idempotency-Key: {KEY}\r\n"),
        };
        let head = format!(
            "POST {}/orders HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\nAccept: */*\r\n\
             Authorization: Bearer sec_token_xyz\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{key}\r\n",
            candidate.prefix,
            ORDER.len(),
        );
        let mut request = Request {
            key_at: head.find(KEY).map_or(0, |at| at + KEY.len() - 12),
            bytes: [head.as_bytes(), ORDER.as_bytes()].concat(),
        };
        if candidate.keys == Keys::OneEach {
            // No fresh key is so large.
            request.set_key(900_000_000_000 + connection as u64);
        }
        request
    }

    fn set_key(&mut self, number: u64) {
        let digits = format!("{number:012}");
        self.bytes[self.key_at..self.key_at + 12].copy_from_slice(digits.as_bytes());
    }
}

/// CPU time of this process's threads but the calling one, as Linux tells it (proc(5), `schedstat`).
fn cpu_of_others() -> Duration {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Duration::ZERO;
    };
    // The client runs in the main thread, whose number is the process's.
    let own = std::process::id().to_string();
    let nanos = threads
        .flatten()
        .filter(|thread| thread.file_name() != own.as_str())
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(nanos)
}
