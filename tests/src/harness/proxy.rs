//! A relay between a lab and its store's server, which fails on demand.

use super::loopback::unshared_address;
use socket2::SockRef;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

/// A relay; its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    control: Arc<Control>,
    accepting: JoinHandle<()>,
}

/// When a [trap](Proxy::trap) springs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // these are all the moments there are
pub enum Moment {
    /// Before the server gets to see the request.
    Before,
    /// When the server has sent so many packets after the request, of which the last does not
    /// arrive: the request had its effect, its answer is lost.
    After(u32),
}

/// What the link does then, and on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // a test has to decide for each
pub enum Fault {
    /// All connections end with a reset; new ones work.
    Cut,
    /// All connections end with a reset, and so does each new one, until the link is healed.
    Down,
    /// Nothing passes, and no connection ends, until the link is healed; then what was held goes on.
    Freeze,
}

#[derive(Debug)]
struct Control {
    state: watch::Sender<State>,
    trap: Mutex<Option<Trap>>,
    sprung: AtomicUsize,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// How often everything was cut: a connection ends when this grows.
    cuts: u64,
    refusing: bool,
    frozen: bool,
    delay: Duration,
}

#[derive(Debug)]
struct Trap {
    needle: Vec<u8>,
    moment: Moment,
    fault: Fault,
}

/// What becomes of a packet.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Lose,
}

impl Proxy {
    /// A relay to this server.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn to(server: &str) -> Proxy {
        let listener = TcpListener::bind(unshared_address()).await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let control = Arc::new(Control {
            state: watch::Sender::new(State::default()),
            trap: Mutex::default(),
            sprung: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, server.to_owned(), Arc::clone(&control)));
        Proxy {
            address,
            control,
            accepting,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks the link.
    pub fn fail(&self, fault: Fault) {
        self.control.fail(fault);
    }

    /// Makes each packet late by so much, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.control.state.send_modify(|state| state.delay = delay);
    }

    /// Breaks the link at the next packet of a client's in which these bytes are.
    pub fn trap(&self, needle: impl Into<Vec<u8>>, moment: Moment, fault: Fault) {
        *self.control.trap() = Some(Trap {
            needle: needle.into(),
            moment,
            fault,
        });
    }

    /// How many traps have broken the link so far.
    #[must_use]
    pub fn sprung(&self) -> usize {
        self.control.sprung.load(Ordering::SeqCst)
    }

    /// Lets everything pass again, and takes a trap away that has not sprung.
    pub fn heal(&self) {
        *self.control.trap() = None;
        self.control.state.send_modify(|state| {
            *state = State {
                cuts: state.cuts,
                ..State::default()
            };
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.control.fail(Fault::Down);
    }
}

impl Control {
    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, fault: Fault) {
        self.state.send_modify(|state| match fault {
            Fault::Cut => state.cuts += 1,
            Fault::Down => {
                state.cuts += 1;
                state.refusing = true;
            }
            Fault::Freeze => state.frozen = true,
        });
    }

    /// The trap has sprung: what becomes of the packet that it sprung at.
    fn spring(&self, fault: Fault) -> Verdict {
        self.sprung.fetch_add(1, Ordering::SeqCst);
        self.fail(fault);
        match fault {
            Fault::Cut | Fault::Down => Verdict::Lose,
            Fault::Freeze => Verdict::Pass,
        }
    }

    fn take_trap_for(&self, packet: &[u8]) -> Option<(Moment, Fault)> {
        let mut trap = self.trap();
        let fits = trap
            .as_ref()
            .is_some_and(|trap| contains(packet, &trap.needle));
        let taken = if fits { trap.take() } else { None };
        taken.map(|trap| (trap.moment, trap.fault))
    }
}

fn contains(packet: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || packet.windows(needle.len()).any(|window| window == needle)
}

async fn accept(listener: TcpListener, server: String, control: Arc<Control>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            return;
        };
        // From here on: a cut while the server is being connected to must not be missed.
        let cuts = control.state.borrow().cuts;
        if control.state.borrow().refusing {
            reset(&client);
            continue;
        }
        let (server, control) = (server.clone(), Arc::clone(&control));
        tokio::spawn(async move {
            match TcpStream::connect(&server).await {
                Ok(server) => relay(client, server, cuts, &control).await,
                Err(_) => reset(&client),
            }
        });
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, cuts: u64, control: &Control) {
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let mut state = control.state.subscribe();
    // A trap that waits for an answer on this connection.
    let losing: Mutex<Option<(u32, Fault)>> = Mutex::default();
    let losing = || losing.lock().unwrap_or_else(PoisonError::into_inner);
    let requests = |packet: &[u8]| match control.take_trap_for(packet) {
        Some((Moment::Before, fault)) => control.spring(fault),
        Some((Moment::After(packets), fault)) => {
            *losing() = Some((packets, fault));
            Verdict::Pass
        }
        None => Verdict::Pass,
    };
    let answers = |_: &[u8]| {
        let mut losing = losing();
        match losing.as_mut() {
            Some((left, _)) if *left > 1 => {
                *left -= 1;
                Verdict::Pass
            }
            Some((_, fault)) => {
                let fault = *fault;
                *losing = None;
                control.spring(fault)
            }
            None => Verdict::Pass,
        }
    };
    let cut = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            biased;
            _ = state.wait_for(|state| state.cuts > cuts) => true,
            _ = pump(from_client, to_server, control, requests) => false,
            _ = pump(from_server, to_client, control, answers) => false,
        }
    };
    if cut {
        reset(&client);
        reset(&server);
    }
}

/// Passes packets on until one of the two sides ends.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    control: &Control,
    judge: impl Fn(&[u8]) -> Verdict,
) -> io::Result<()> {
    let mut state = control.state.subscribe();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let packet = &buffer[..read];
        if judge(packet) == Verdict::Lose {
            // The cut that goes with it ends this connection.
            std::future::pending::<()>().await;
        }
        let delay = state.borrow().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let thawed = state.wait_for(|state| !state.frozen).await.is_ok();
        if !thawed {
            return Ok(());
        }
        to.write_all(packet).await?;
    }
}

/// Lets a connection end with a reset when it is dropped.
fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    /// A server that answers each packet with the same bytes, and counts them.
    async fn echo() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let mut buffer = [0; 100];
                    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                        counted.fetch_add(1, Ordering::SeqCst);
                        let _ = stream.write_all(&buffer[..read]).await;
                    }
                });
            }
        });
        (address, seen)
    }

    async fn ask(stream: &mut TcpStream, packet: &[u8]) -> io::Result<()> {
        stream.write_all(packet).await?;
        let mut answer = vec![0; packet.len()];
        stream.read_exact(&mut answer).await?;
        assert_eq!(answer, packet);
        Ok(())
    }

    async fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect(proxy.address()).await.unwrap()
    }

    #[tokio::test]
    async fn a_cut_ends_what_is_open_and_a_link_that_is_down_what_is_new() {
        let (server, _) = echo().await;
        let proxy = Proxy::to(&server).await;
        let mut open = connect(&proxy).await;
        ask(&mut open, b"one").await.unwrap();
        proxy.fail(Fault::Cut);
        assert!(ask(&mut open, b"two").await.is_err());
        let mut again = connect(&proxy).await;
        ask(&mut again, b"three").await.unwrap();
        proxy.fail(Fault::Down);
        assert!(ask(&mut again, b"four").await.is_err());
        assert!(ask(&mut connect(&proxy).await, b"five").await.is_err());
        proxy.heal();
        ask(&mut connect(&proxy).await, b"six").await.unwrap();
    }

    #[tokio::test]
    async fn what_is_frozen_goes_on_when_it_is_healed() {
        let (server, seen) = echo().await;
        let proxy = Proxy::to(&server).await;
        let mut open = connect(&proxy).await;
        ask(&mut open, b"one").await.unwrap();
        proxy.fail(Fault::Freeze);
        let mut frozen = Box::pin(ask(&mut open, b"two"));
        let early = timeout(Duration::from_millis(50), &mut frozen).await;
        assert!(early.is_err(), "nothing was to pass");
        assert_eq!(seen.load(Ordering::SeqCst), 1);
        proxy.heal();
        frozen.await.unwrap();
    }

    #[tokio::test]
    async fn a_trap_springs_once_before_or_after_the_request() {
        let (server, seen) = echo().await;
        let proxy = Proxy::to(&server).await;
        for (moment, reaches) in [(Moment::Before, 1), (Moment::After(1), 2)] {
            seen.store(0, Ordering::SeqCst);
            let mut open = connect(&proxy).await;
            proxy.trap("needle", moment, Fault::Cut);
            ask(&mut open, b"hay").await.unwrap();
            assert!(ask(&mut open, b"hay needle hay").await.is_err());
            assert_eq!(seen.load(Ordering::SeqCst), reaches, "{moment:?}");
            ask(&mut connect(&proxy).await, b"a needle").await.unwrap();
        }
        assert_eq!(proxy.sprung(), 2);
    }
}
