//! A play in seven scenes: what can go wrong between a client and the service, and what it answers.

/// Prints a line. A reader who has seen enough, as `head` has, does not end the play.
macro_rules! say {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

mod checks;
mod client;
mod shop;

use crate::{gateway::Simulator, model::Purpose};
use checks::Checks;
use client::{Answer, Client, Request};
use shop::Shop;
use std::{io, time::Duration};
use tokio::sync::watch;

/// What the service says when it can be used.
pub const LISTENING: &str = "orders listening on ";

/// Slow enough for a client to lose patience, or for a second request to arrive meanwhile.
const GATEWAY_DELAY: Duration = Duration::from_secs(1);
/// The two users of the demonstration.
const ALICE: &str = "sec_token_xyz";
const BOB: &str = "sec_token_abc";

/// Why the demonstration did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// Answers or counts differ from the contract.
    #[error("{0} of the checks above failed: the contract is broken")]
    ContractBroken(usize),
    /// The service did not start.
    #[error("the service did not start")]
    Stopped,
    /// Somebody has seen enough.
    #[error("the demonstration was interrupted")]
    Interrupted,
    /// There is no port, no temporary directory or no process to be had.
    #[error("cannot set the stage: {0}")]
    Stage(#[from] io::Error),
    /// The service or the gateway did not answer.
    #[error("a request got no answer: {0}")]
    Http(#[from] reqwest::Error),
}

/// Plays the demonstration on free ports and a temporary database, and checks every answer.
///
/// # Errors
///
/// [`DemoError::ContractBroken`] if anything differs from the contract; the others if the play
/// could not go on.
pub async fn play() -> Result<(), DemoError> {
    let directory = tempfile::tempdir()?;
    // The play looks into the gateway, so it brings its own.
    let gateway = Simulator::start(GATEWAY_DELAY).await?;
    let shop = Shop::open(&directory.path().join("orders.db"), &gateway.url()).await?;
    say!(
        "orders on {}, payment gateway on {} ({} for a charge)",
        shop.url(),
        gateway.url(),
        humantime::format_duration(GATEWAY_DELAY)
    );
    let mut play = Play {
        client: Client::new(shop.url()),
        shop,
        gateway,
        checks: Checks::default(),
    };
    tokio::select! {
        played = play.all() => played,
        // The service must not outlive the play.
        stopped = stopped() => stopped,
    }
}

/// Resolves when the program is told to end.
async fn stopped() -> Result<(), DemoError> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted?,
            _ = terminated.recv() => {}
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await?;
    Err(DemoError::Interrupted)
}

struct Play {
    client: Client,
    shop: Shop,
    gateway: Simulator,
    checks: Checks,
}

impl Play {
    async fn all(&mut self) -> Result<(), DemoError> {
        let first = self.lost_answer().await?;
        self.two_at_once().await?;
        self.changed_amount(&first).await?;
        self.other_user(&first).await?;
        self.missing_key().await?;
        self.malformed_key().await?;
        self.killed_between_charge_and_record(&first).await?;
        self.accounts().await?;
        match self.checks.failed() {
            0 => Ok(()),
            failed => Err(DemoError::ContractBroken(failed)),
        }
    }

    async fn lost_answer(&mut self) -> Result<Accepted, DemoError> {
        scene("1. The answer gets lost, and the client retries");
        let order = Request::order_of_one(ALICE).with_key("9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d");
        order.show("The client orders,");
        let mut booked = self.another_charge();
        let hung_up = tokio::select! {
            answer = self.client.send(&order) => { answer?.show(); false }
            // Dropping the request closes its connection.
            Ok(()) = booked.changed() => true,
        };
        say!("\n    ✂ and hangs up: the card is charged, and the answer will reach nobody");
        let checks = &mut self.checks;
        checks.holds("the connection was closed before the answer", hung_up);

        order.show_again("It knows nothing of that, so it retries with the same key,");
        let answer = self.until_final(&order).await?;
        let charges = *self.gateway.booked().borrow();
        let order_id = answer.order_id().unwrap_or_default();
        let checks = &mut self.checks;
        checks.equal("status", 201, answer.status());
        checks.holds("the answer is marked as a replay", answer.is_replay());
        checks.equal(
            "location",
            format!("/api/v1/orders/{order_id}").as_str(),
            answer.location(),
        );
        checks.equal("charges at the gateway", 1, charges);
        Ok(Accepted { order, answer })
    }

    async fn two_at_once(&mut self) -> Result<(), DemoError> {
        scene("2. Two at once: somebody clicks twice");
        let order = Request::order_of_one(ALICE).with_key("1f0c2a52-7f7e-4d0c-9c0b-5a8e0a1d6f11");
        order.show("The client orders, twice in the same moment,");
        let (one, other) = tokio::join!(self.client.send(&order), self.client.send(&order));
        let (one, other) = (one?, other?);
        one.show();
        other.show();
        let (won, lost) = if one.is_first() {
            (one, other)
        } else {
            (other, one)
        };
        // It depends on the microsecond whether the first has committed when the other arrives.
        let told_to_wait = lost.problem() == "urn:idempotency:in-progress"
            && lost.retry_after() > Some(Duration::ZERO);
        let answered = lost.is_replay() && lost.body() == won.body();
        let checks = &mut self.checks;
        checks.holds("one was carried out", won.is_first());
        checks.holds(
            "the other is told when to come back, or has the same answer",
            told_to_wait || answered,
        );

        order.show_again("The other comes back,");
        let answer = self.until_final(&order).await?;
        let checks = &mut self.checks;
        checks.equal("status", 201, answer.status());
        checks.holds("the answer is marked as a replay", answer.is_replay());
        checks.equal("body, the winner's", won.body(), answer.body());
        Ok(())
    }

    async fn changed_amount(&mut self, first: &Accepted) -> Result<(), DemoError> {
        scene("3. The amount is changed under the same key");
        let tampered = first.order.clone().with_quantity(2);
        tampered.show("The key of scene 1, on another order,");
        let answer = self.client.send(&tampered).await?;
        answer.show();
        let checks = &mut self.checks;
        checks.equal("status", 422, answer.status());
        checks.equal("problem", "urn:idempotency:key-reused", &answer.problem());
        Ok(())
    }

    async fn other_user(&mut self, first: &Accepted) -> Result<(), DemoError> {
        scene("4. Another user happens to have the same key");
        let order = first.order.clone().by(BOB);
        order.show("Bob orders with the key of scene 1,");
        let answer = self.client.send(&order).await?;
        answer.show();
        let another = answer.order_id().is_some() && answer.order_id() != first.answer.order_id();
        let checks = &mut self.checks;
        checks.equal("status", 201, answer.status());
        checks.holds("the answer is no replay", !answer.is_replay());
        checks.holds("it is an order of Bob's own", another);
        Ok(())
    }

    async fn missing_key(&mut self) -> Result<(), DemoError> {
        scene("5. Without a key every call is a new order");
        let order = Request::order_of_one(ALICE);
        order.show("The client orders without a key, which this route allows,");
        let one = self.client.send(&order).await?;
        one.show();
        order.show_again("and again,");
        let other = self.client.send(&order).await?;
        other.show();
        let two = one.order_id().is_some() && one.order_id() != other.order_id();
        let checks = &mut self.checks;
        checks.equal("status of one", 201, one.status());
        checks.equal("status of the other", 201, other.status());
        checks.holds("these are two orders", two);
        Ok(())
    }

    async fn malformed_key(&mut self) -> Result<(), DemoError> {
        scene("6. A malformed key would protect nobody, so it is refused");
        let order = Request::order_of_one(ALICE).with_key("\"no closing quote");
        order.show("The client sends half a key,");
        let answer = self.client.send(&order).await?;
        answer.show();
        let checks = &mut self.checks;
        checks.equal("status", 400, answer.status());
        checks.equal("problem", "urn:idempotency:key-invalid", &answer.problem());
        Ok(())
    }

    async fn killed_between_charge_and_record(
        &mut self,
        first: &Accepted,
    ) -> Result<(), DemoError> {
        scene("7. kill -9 between the charge and its record");
        let order_id = first.answer.order_id().unwrap_or_default();
        let payment =
            Request::payment_on(ALICE, order_id).with_key("5d7a1c3e-2f64-4b0a-8c55-0f2f9b7e4a90");
        payment.show("The client adds a tip, which another system charges,");
        let mut booked = self.another_charge();
        let killed = tokio::select! {
            answer = self.client.send(&payment) => { answer?.show(); false }
            Ok(()) = booked.changed() => true,
        };
        self.shop.kill().await?;
        say!("\n    ✂ and the service is killed: the card is charged, and nothing is written down");
        self.checks
            .holds("the service was killed before it answered", killed);

        self.shop.open_again().await?;
        self.client = Client::new(self.shop.url());
        say!("\n  The service is started again on the same database.");
        payment.show_again("The client retries with the same key,");
        let answer = self.until_final(&payment).await?;
        let charges = self.client.charges(&self.gateway.url()).await?;
        let charges = charges.of(Purpose::Payment);
        let entered = self.client.count_payments(ALICE).await?;
        let checks = &mut self.checks;
        checks.equal("status", 201, answer.status());
        checks.holds(
            "the answer is marked as a replay: the gateway was asked, not the handler run",
            answer.is_replay(),
        );
        checks.equal("payments on the order", 1, entered);
        checks.equal("charges for them at the gateway", 1, charges.booked);
        checks.equal("times it was asked to charge", 1, charges.asked);
        Ok(())
    }

    /// Counts on both sides, over HTTP.
    async fn accounts(&mut self) -> Result<(), DemoError> {
        scene("The accounts");
        let orders = self.client.count_orders(ALICE).await? + self.client.count_orders(BOB).await?;
        let charges = self.client.charges(&self.gateway.url()).await?;
        let charges = charges.of(Purpose::Order).booked;
        self.checks
            .equal("orders, 1 + 1 + 0 + 1 + 2 + 0", 5, orders);
        self.checks.equal("charges, one for each order", 5, charges);
        say!("\norders: {orders}, charges: {charges}");
        Ok(())
    }

    /// Changes when the gateway books the next charge.
    fn another_charge(&self) -> watch::Receiver<usize> {
        self.gateway.booked()
    }

    /// Sends until the answer is another than "in progress", pausing as told.
    async fn until_final(&self, order: &Request) -> Result<Answer, DemoError> {
        loop {
            let answer = self.client.send(order).await?;
            answer.show();
            let (409, Some(pause)) = (answer.status(), answer.retry_after()) else {
                return Ok(answer);
            };
            order.show_again(&format!("After {} s,", pause.as_secs()));
            tokio::time::sleep(pause).await;
        }
    }
}

/// An order and the answer it got.
struct Accepted {
    order: Request,
    answer: Answer,
}

fn scene(title: &str) {
    say!("\n━━ {title}");
}
