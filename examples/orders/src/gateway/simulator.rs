//! A payment gateway that moves no money, keeps its own count, and takes its time.

use super::Receipt;
use crate::model::Charge;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, Responder, get, post, rt, web};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use uuid::Uuid;

/// No card is good for more than this.
const CARD_LIMIT: i64 = 100_000;

/// A running simulator; it runs as long as the program.
///
/// - `POST /charges` with an `Idempotency-Key` answers 201 and a receipt, or 402; a repeat of the
///   key gets the first answer and moves nothing. The charge is booked in the middle of the delay.
/// - `GET /charges/{key}` tells what became of one: 200, 202 while it is under way, or 404.
/// - `GET /charges` lists all, with how often each was asked for, and counts those that were booked.
#[derive(Debug)]
pub struct Simulator {
    address: SocketAddr,
    ledger: web::Data<Ledger>,
}

#[derive(Debug)]
struct Ledger {
    delay: Duration,
    entries: Mutex<HashMap<Uuid, Entry>>,
    /// How many charges have been booked, for those who wait for one.
    booked: watch::Sender<usize>,
}

#[derive(Debug)]
struct Entry {
    charge: Charge,
    asked: u32,
    /// Requests that are being worked on.
    under_way: u32,
    /// Once it is settled.
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone)]
enum Outcome {
    Charged(Receipt),
    Declined,
}

/// A request for a charge, until it is dropped: a client that leaves can break it off.
struct Working {
    ledger: web::Data<Ledger>,
    key: Uuid,
}

impl Simulator {
    /// Starts a simulator on a free loopback port.
    ///
    /// # Errors
    ///
    /// If there is no port to listen on.
    pub async fn start(delay: Duration) -> io::Result<Simulator> {
        let ledger = web::Data::new(Ledger {
            delay,
            entries: Mutex::default(),
            booked: watch::Sender::new(0),
        });
        let app = {
            let ledger = ledger.clone();
            move || {
                App::new()
                    .app_data(ledger.clone())
                    .service(make_charge)
                    .service(show_charge)
                    .service(list_charges)
            }
        };
        let server = HttpServer::new(app)
            .workers(1)
            .bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = server
            .addrs()
            .first()
            .copied()
            .ok_or(io::ErrorKind::AddrNotAvailable)?;
        rt::spawn(server.disable_signals().run());
        Ok(Simulator { address, ledger })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many charges have been booked.
    pub fn booked(&self) -> watch::Receiver<usize> {
        self.ledger.booked.subscribe()
    }
}

impl Ledger {
    fn entries(&self) -> MutexGuard<'_, HashMap<Uuid, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Books a charge under its key, or finds it booked.
    fn book(&self, key: Uuid) -> Option<Outcome> {
        let mut entries = self.entries();
        let mut booked = entries.values().filter(|entry| entry.is_charged()).count();
        let entry = entries.get_mut(&key)?;
        if entry.outcome.is_none() {
            if entry.charge.amount <= CARD_LIMIT {
                booked += 1;
                let charge_id = format!("ch_{booked}");
                entry.outcome = Some(Outcome::Charged(Receipt { charge_id }));
            } else {
                entry.outcome = Some(Outcome::Declined);
            }
        }
        self.booked.send_replace(booked);
        entry.outcome.clone()
    }
}

impl Entry {
    fn is_charged(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Charged(_)))
    }

    fn listed(&self, key: Uuid) -> Value {
        let charge_id = match &self.outcome {
            Some(Outcome::Charged(receipt)) => Some(&receipt.charge_id),
            Some(Outcome::Declined) | None => None,
        };
        json!({
            "key": key,
            "order_id": self.charge.order_id,
            "amount": self.charge.amount,
            "currency": self.charge.currency,
            "purpose": self.charge.purpose,
            "charge_id": charge_id,
            "asked": self.asked,
        })
    }
}

impl Working {
    /// `None` if the key stands for another charge.
    fn on(ledger: web::Data<Ledger>, key: Uuid, charge: Charge) -> Option<Working> {
        let mut entries = ledger.entries();
        let entry = entries.entry(key).or_insert_with(|| Entry {
            charge: charge.clone(),
            asked: 0,
            under_way: 0,
            outcome: None,
        });
        if entry.charge != charge {
            return None;
        }
        entry.asked += 1;
        entry.under_way += 1;
        drop(entries);
        Some(Working { ledger, key })
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(entry) = self.ledger.entries().get_mut(&self.key) {
            entry.under_way -= 1;
        }
    }
}

#[post("/charges")]
async fn make_charge(
    request: HttpRequest,
    charge: web::Json<Charge>,
    ledger: web::Data<Ledger>,
) -> impl Responder {
    let key = request
        .headers()
        .get("Idempotency-Key")
        .and_then(|key| Uuid::try_parse_ascii(key.as_bytes()).ok());
    let Some(key) = key else {
        return HttpResponse::BadRequest().finish();
    };
    let delay = ledger.delay;
    let Some(working) = Working::on(ledger, key, charge.into_inner()) else {
        return HttpResponse::UnprocessableEntity().finish();
    };
    tokio::time::sleep(delay / 2).await;
    let outcome = working.ledger.book(key);
    tokio::time::sleep(delay / 2).await;
    match outcome {
        Some(Outcome::Charged(receipt)) => HttpResponse::Created().json(receipt),
        Some(Outcome::Declined) => HttpResponse::PaymentRequired().finish(),
        None => HttpResponse::InternalServerError().finish(),
    }
}

#[get("/charges/{key}")]
async fn show_charge(key: web::Path<Uuid>, ledger: web::Data<Ledger>) -> impl Responder {
    match ledger.entries().get(&key) {
        Some(entry) if entry.outcome.is_some() => HttpResponse::Ok().json(entry.listed(*key)),
        Some(entry) if entry.under_way > 0 => HttpResponse::Accepted().finish(),
        _ => HttpResponse::NotFound().finish(),
    }
}

#[get("/charges")]
async fn list_charges(ledger: web::Data<Ledger>) -> impl Responder {
    let entries = ledger.entries();
    let charges: Vec<_> = entries
        .iter()
        .map(|(key, entry)| entry.listed(*key))
        .collect();
    let count = entries.values().filter(|entry| entry.is_charged()).count();
    web::Json(json!({ "count": count, "charges": charges }))
}
