//! The lab as a process of its own.

use super::PATIENCE;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

/// A running lab; killed when dropped.
#[derive(Debug)]
pub struct Lab {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Lab {
    /// Starts the lab and waits until it is ready.
    ///
    /// # Panics
    ///
    /// If it does not become ready; with what it wrote to its standard error.
    #[must_use]
    pub fn start(binary: &Path, arguments: &[String]) -> Lab {
        let mut child = Command::new(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the lab can be run");
        let log = Arc::new(Mutex::new(String::new()));
        let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            let mut line = Vec::new();
            while matches!(stderr.read_until(b'\n', &mut line), Ok(read) if read > 0) {
                lock(&kept).push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (ready, line) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = ready.send(line);
            // Whatever else it prints is a mistake that the lab must not hang on.
            let _ = stdout.read_to_end(&mut Vec::new());
        });
        let line = line.recv_timeout(PATIENCE).unwrap_or_default();
        let address = line
            .trim()
            .strip_prefix("lab listening on http://")
            .and_then(|address| address.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            let ended = child.wait();
            panic!(
                "the lab {arguments:?} did not get ready: printed {line:?}, ended with {ended:?}\n{}",
                lock(&log)
            );
        };
        Lab {
            child,
            address,
            log,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it wrote to its standard error so far.
    #[must_use]
    pub fn log(&self) -> String {
        lock(&self.log).clone()
    }

    /// Waits for a line of its log that holds this text. What it wrote takes a moment to arrive.
    pub async fn logged(&self, text: &str) -> String {
        super::eventually(text, async || {
            let log = self.log();
            log.lines()
                .find(|line| line.contains(text))
                .map(str::to_owned)
        })
        .await
    }

    /// Sends it a signal.
    ///
    /// # Panics
    ///
    /// If it has ended already.
    pub fn signal(&self, signal: Signal) {
        signal::kill(self.pid(), signal).expect("the lab is there to be signalled");
    }

    /// Ends it as `kill -9` does, and waits until it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself: then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it has ended, if it has.
    ///
    /// # Panics
    ///
    /// If the system does not tell.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("its state can be asked for")
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// If it has not ended after `patience`.
    pub async fn ended(&mut self, patience: Duration) -> ExitStatus {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            if let Some(status) = self.has_ended() {
                return status;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "the lab has not ended after {patience:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Memory that it has in RAM, in bytes.
    ///
    /// # Panics
    ///
    /// Where the system has no `/proc`.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that it has ever been, in bytes.
    ///
    /// # Panics
    ///
    /// As [`resident_bytes`](Self::resident_bytes).
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    fn memory(&self, what: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the lab runs, on Linux");
        let line = status.lines().find(|line| line.starts_with(what));
        let kib = line
            .and_then(|line| line.split_whitespace().nth(1))
            .and_then(|kib| kib.parse::<u64>().ok())
            .expect("a number of KiB");
        kib * 1024
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("process ids are small"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("---- the lab's log\n{}", lock(&self.log));
        }
    }
}

fn lock(log: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
