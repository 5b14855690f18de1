//! The payment gateway: a client for it, and a simulator to run against.

mod simulator;

pub use simulator::Simulator;

use crate::model::Charge;
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// How often a charge is asked for before giving up.
const ATTEMPTS: u32 = 3;
/// Pause before the second attempt; it grows with each.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one attempt waits for the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections are closed before the gateway does, so that no charge is sent into a closing one.
const IDLE: Duration = Duration::from_secs(2);

/// The client of the payment gateway.
#[derive(Debug, Clone)]
pub struct Gateway {
    http: reqwest::Client,
    charges: String,
}

/// What the gateway answers when the money has moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Receipt {
    /// The gateway's number for the charge.
    pub charge_id: String,
}

/// Why there is no receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// The gateway refused. No money has moved.
    #[error("the charge was declined")]
    Declined,
    /// The gateway was never reached. No money has moved.
    #[error("the gateway cannot be reached")]
    Unreachable,
    /// The gateway was asked and its answer got lost. The money may have moved.
    #[error("the outcome of the charge is unknown")]
    Unknown,
}

/// What the gateway knows of a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// The money has moved.
    Charged(Charge, Receipt),
    /// It was refused.
    Declined,
    /// It has been asked for and is not settled.
    UnderWay,
    /// It has not been asked for.
    Nothing,
}

/// A charge as the gateway lists it.
#[derive(Deserialize)]
struct Listed {
    #[serde(flatten)]
    charge: Charge,
    charge_id: Option<String>,
}

impl Gateway {
    /// Whether a gateway can be at `url`: it has a host, and a scheme this client speaks, which is
    /// `http` alone because it is built without TLS.
    pub fn can_be_at(url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| url.scheme() == "http" && url.has_host())
    }

    /// A client of the gateway at `url`.
    ///
    /// # Errors
    ///
    /// If no HTTP client can be built.
    pub fn new(url: &str) -> Result<Gateway, reqwest::Error> {
        let http = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .pool_idle_timeout(IDLE)
            .build()?;
        Ok(Gateway {
            http,
            charges: format!("{}/charges", url.trim_end_matches('/')),
        })
    }

    /// Charges once, however often it has to ask: the gateway recognises a repeat by `key`.
    ///
    /// # Errors
    ///
    /// [`ChargeError`] says what is known about the money.
    pub async fn charge(&self, key: Uuid, charge: &Charge) -> Result<Receipt, ChargeError> {
        let mut known = ChargeError::Unreachable;
        for attempt in 0..ATTEMPTS {
            tokio::time::sleep(PAUSE * attempt).await;
            match self.ask(key, charge).await {
                // Once an answer has got lost, a later failure to connect proves nothing.
                Err(ChargeError::Unreachable) => {}
                Err(ChargeError::Unknown) => known = ChargeError::Unknown,
                settled => return settled,
            }
        }
        Err(known)
    }

    /// What became of the charge under `key`. Moves nothing.
    ///
    /// # Errors
    ///
    /// If the gateway does not say.
    pub async fn find(&self, key: Uuid) -> Result<Found, reqwest::Error> {
        let asked = self.http.get(format!("{}/{key}", self.charges)).send();
        let response = asked.await?;
        match response.status() {
            StatusCode::NOT_FOUND => return Ok(Found::Nothing),
            StatusCode::ACCEPTED => return Ok(Found::UnderWay),
            _ => {}
        }
        let listed: Listed = response.error_for_status()?.json().await?;
        Ok(match listed.charge_id {
            Some(charge_id) => Found::Charged(listed.charge, Receipt { charge_id }),
            None => Found::Declined,
        })
    }

    async fn ask(&self, key: Uuid, charge: &Charge) -> Result<Receipt, ChargeError> {
        let asked = self
            .http
            .post(&self.charges)
            .header("Idempotency-Key", key.to_string())
            .json(charge)
            .send()
            .await;
        let response = asked.map_err(|error| {
            tracing::warn!(order_id = charge.order_id, "no answer to a charge: {error}");
            // An address that is none does not let a request out either.
            if error.is_connect() || error.is_builder() {
                ChargeError::Unreachable
            } else {
                ChargeError::Unknown
            }
        })?;
        match response.status() {
            StatusCode::CREATED => response.json().await.map_err(|error| {
                tracing::warn!(order_id = charge.order_id, "a receipt got lost: {error}");
                ChargeError::Unknown
            }),
            StatusCode::PAYMENT_REQUIRED => Err(ChargeError::Declined),
            status => {
                tracing::warn!(order_id = charge.order_id, %status, "a charge was not settled");
                Err(ChargeError::Unknown)
            }
        }
    }
}
