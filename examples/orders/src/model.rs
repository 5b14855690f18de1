//! What goes over the wire, valid by construction.

use serde::{Deserialize, Serialize};
use std::{collections::HashSet, str::FromStr};

/// The most that can be ordered of one item at a time.
const MAX_QUANTITY: u32 = 1000;

/// An order as a client sends it, checked as far as that is possible without the database. A body
/// that is none is refused by the extractor, before the idempotency key is spent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "OrderBody")]
pub struct NewOrder {
    items: Vec<Item>,
    currency: Currency,
    amount: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderBody {
    items: Vec<Item>,
    currency: Currency,
    amount: i64,
}

/// A position of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Item {
    /// The item in the catalogue.
    pub id: i64,
    /// How many of it.
    pub quantity: u32,
}

/// What the shop is paid in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum Currency {
    /// Russian roubles; amounts are in whole roubles.
    Rub,
}

impl Currency {
    /// The code of ISO 4217.
    pub fn as_str(self) -> &'static str {
        match self {
            Currency::Rub => "RUB",
        }
    }
}

/// A currency that the shop is not paid in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a currency of this shop")]
pub struct UnknownCurrency(String);

impl FromStr for Currency {
    type Err = UnknownCurrency;

    fn from_str(code: &str) -> Result<Currency, UnknownCurrency> {
        match code {
            "RUB" => Ok(Currency::Rub),
            other => Err(UnknownCurrency(other.to_owned())),
        }
    }
}

/// What is wrong with an order at first sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOrder {
    /// Nothing is ordered.
    #[error("`items` is empty")]
    NoItems,
    /// A quantity is zero or too large.
    #[error("`quantity` of item {0} must be between 1 and {MAX_QUANTITY}")]
    Quantity(i64),
    /// Two positions name the same item.
    #[error("item {0} is listed twice")]
    Repeated(i64),
}

impl TryFrom<OrderBody> for NewOrder {
    type Error = InvalidOrder;

    fn try_from(body: OrderBody) -> Result<NewOrder, InvalidOrder> {
        if body.items.is_empty() {
            return Err(InvalidOrder::NoItems);
        }
        let mut seen = HashSet::new();
        for item in &body.items {
            if !(1..=MAX_QUANTITY).contains(&item.quantity) {
                return Err(InvalidOrder::Quantity(item.id));
            }
            if !seen.insert(item.id) {
                return Err(InvalidOrder::Repeated(item.id));
            }
        }
        Ok(NewOrder {
            items: body.items,
            currency: body.currency,
            amount: body.amount,
        })
    }
}

impl NewOrder {
    /// At least one position, each of another item.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// What it is paid in.
    pub fn currency(&self) -> Currency {
        self.currency
    }

    /// What the client expects to pay.
    pub fn amount(&self) -> i64 {
        self.amount
    }
}

/// A further payment on an order as a client sends it, checked as far as that is possible without
/// the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "PaymentBody")]
pub struct NewPayment {
    order_id: i64,
    amount: i64,
    currency: Currency,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaymentBody {
    order_id: i64,
    amount: i64,
    #[serde(default = "roubles")]
    currency: Currency,
}

fn roubles() -> Currency {
    Currency::Rub
}

/// What is wrong with a payment at first sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`amount` must be 1 or more")]
pub struct InvalidPayment;

impl TryFrom<PaymentBody> for NewPayment {
    type Error = InvalidPayment;

    fn try_from(body: PaymentBody) -> Result<NewPayment, InvalidPayment> {
        if body.amount < 1 {
            return Err(InvalidPayment);
        }
        Ok(NewPayment {
            order_id: body.order_id,
            amount: body.amount,
            currency: body.currency,
        })
    }
}

impl NewPayment {
    /// The order that it is for.
    pub fn order_id(&self) -> i64 {
        self.order_id
    }
}

/// The answer to a new payment, and a payment as part of its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PaymentMade {
    /// Number of the payment.
    pub payment_id: i64,
    /// The order that it is for.
    pub order_id: i64,
    /// How much was paid.
    pub amount: i64,
    /// The gateway's number for the charge.
    pub charge_id: String,
}

/// The answer to a new order.
#[derive(Debug, Serialize)]
pub(crate) struct OrderCreated {
    pub(crate) order_id: i64,
}

/// An order as its owner sees it.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Order {
    /// Number of the order.
    pub order_id: i64,
    /// `pending`: stock is reserved and the charge under way; `paid`; or `declined`: the card was
    /// refused and the stock is free again.
    pub status: String,
    /// What was ordered.
    pub items: Vec<Item>,
    /// What it is paid in.
    pub currency: String,
    /// What it costs.
    pub amount: i64,
    /// What was paid besides.
    pub payments: Vec<PaymentMade>,
    /// When it was placed (RFC 3339, UTC).
    pub created_at: String,
}

/// A page of orders.
#[derive(Debug, Serialize)]
pub(crate) struct OrderList {
    pub(crate) orders: Vec<Order>,
}

/// What the payment gateway is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Charge {
    /// The order that is paid.
    pub order_id: i64,
    /// How much.
    pub amount: i64,
    /// In what.
    pub currency: Currency,
    /// What for.
    pub purpose: Purpose,
}

/// What money is charged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Purpose {
    /// The price of an order.
    Order,
    /// A further payment on it.
    Payment,
}

impl Charge {
    /// The charge for an order that is as yet unpaid.
    pub(crate) fn price(order_id: i64, amount: i64, currency: Currency) -> Charge {
        Charge {
            order_id,
            amount,
            currency,
            purpose: Purpose::Order,
        }
    }

    /// The charge for a further payment.
    pub(crate) fn further(order_id: i64, payment: &NewPayment) -> Charge {
        Charge {
            order_id,
            amount: payment.amount,
            currency: payment.currency,
            purpose: Purpose::Payment,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(body: &str) -> Result<NewOrder, String> {
        serde_json::from_str(body).map_err(|error| error.to_string())
    }

    #[test]
    fn an_order_is_read_as_documented() {
        let order = parse(r#"{"items":[{"id":42,"quantity":1}],"currency":"RUB","amount":1500}"#);
        let order = order.unwrap();
        assert_eq!(
            order.items(),
            [Item {
                id: 42,
                quantity: 1
            }]
        );
        assert_eq!((order.currency(), order.amount()), (Currency::Rub, 1500));
    }

    #[test]
    fn what_is_not_an_order_is_refused_with_the_reason() {
        for (body, reason) in [
            (r#"{"items":[],"currency":"RUB","amount":0}"#, "empty"),
            (
                r#"{"items":[{"id":42,"quantity":0}],"currency":"RUB","amount":0}"#,
                "between 1 and 1000",
            ),
            (
                r#"{"items":[{"id":42,"quantity":1001}],"currency":"RUB","amount":0}"#,
                "between 1 and 1000",
            ),
            (
                r#"{"items":[{"id":42,"quantity":-1}],"currency":"RUB","amount":0}"#,
                "invalid value",
            ),
            (
                r#"{"items":[{"id":42,"quantity":1},{"id":42,"quantity":1}],"currency":"RUB","amount":0}"#,
                "listed twice",
            ),
            (
                r#"{"items":[{"id":42,"quantity":1}],"currency":"USD","amount":1500}"#,
                "unknown variant `USD`",
            ),
            (
                r#"{"items":[{"id":42,"quantity":1}],"currency":"RUB","amount":1500,"coupon":"x"}"#,
                "unknown field `coupon`",
            ),
            (
                r#"{"items":[{"id":42,"quantity":1,"price":1}],"currency":"RUB","amount":1500}"#,
                "unknown field `price`",
            ),
            (
                r#"{"items":[{"id":42,"quantity":1}],"currency":"RUB"}"#,
                "missing field `amount`",
            ),
        ] {
            let refused = parse(body).unwrap_err();
            assert!(refused.contains(reason), "{body}: {refused}");
        }
    }

    #[test]
    fn a_payment_is_read_and_checked() {
        let parse = |body| {
            serde_json::from_str::<NewPayment>(body)
                .map(|payment| Charge::further(payment.order_id(), &payment))
                .map_err(|error| error.to_string())
        };
        let charge = parse(r#"{"order_id":1,"amount":150}"#).unwrap();
        assert_eq!((charge.order_id, charge.amount), (1, 150));
        assert_eq!(
            parse(r#"{"order_id":1,"amount":150,"currency":"RUB"}"#),
            Ok(charge)
        );
        for (body, reason) in [
            (r#"{"order_id":1,"amount":0}"#, "1 or more"),
            (r#"{"order_id":1}"#, "missing field `amount`"),
            (
                r#"{"order_id":1,"amount":1,"card":"x"}"#,
                "unknown field `card`",
            ),
        ] {
            let refused = parse(body).unwrap_err();
            assert!(refused.contains(reason), "{body}: {refused}");
        }
    }
}
