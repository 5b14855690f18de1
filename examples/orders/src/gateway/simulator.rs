//! A payment gateway that moves no money, keeps its own count, and takes its time.

use super::Receipt;
use crate::model::Charge;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, Responder, get, post, rt, web};
use serde_json::json;
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
/// - `GET /charges` lists what was booked, by key, with how often it was asked for.
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

#[derive(Debug, Clone)]
struct Entry {
    charge: Charge,
    /// `None`: declined.
    receipt: Option<Receipt>,
    asked: u32,
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
    fn book(&self, key: Uuid, charge: &Charge) -> Entry {
        let mut entries = self.entries();
        let number = entries.len() + 1;
        let entry = entries.entry(key).or_insert_with(|| Entry {
            charge: charge.clone(),
            receipt: (charge.amount <= CARD_LIMIT).then(|| Receipt {
                charge_id: format!("ch_{number}"),
            }),
            asked: 0,
        });
        entry.asked += 1;
        let entry = entry.clone();
        let booked = entries
            .values()
            .filter(|entry| entry.receipt.is_some())
            .count();
        self.booked.send_replace(booked);
        entry
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
    tokio::time::sleep(ledger.delay / 2).await;
    let entry = ledger.book(key, &charge);
    tokio::time::sleep(ledger.delay / 2).await;
    match entry {
        entry if entry.charge != *charge => HttpResponse::UnprocessableEntity().finish(),
        Entry {
            receipt: Some(receipt),
            ..
        } => HttpResponse::Created().json(receipt),
        _ => HttpResponse::PaymentRequired().finish(),
    }
}

#[get("/charges")]
async fn list_charges(ledger: web::Data<Ledger>) -> impl Responder {
    let charges: Vec<_> = ledger
        .entries()
        .iter()
        .map(|(key, entry)| {
            json!({
                "key": key,
                "order_id": entry.charge.order_id,
                "amount": entry.charge.amount,
                "charge_id": entry.receipt.as_ref().map(|receipt| &receipt.charge_id),
                "asked": entry.asked,
            })
        })
        .collect();
    let count = charges
        .iter()
        .filter(|charge| !charge["charge_id"].is_null())
        .count();
    web::Json(json!({ "count": count, "charges": charges }))
}
