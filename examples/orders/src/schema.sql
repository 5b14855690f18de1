-- What is sold. Prices are in whole roubles.
CREATE TABLE IF NOT EXISTS items (
    id    INTEGER PRIMARY KEY,
    name  TEXT    NOT NULL,
    price INTEGER NOT NULL CHECK (price > 0),
    stock INTEGER NOT NULL CHECK (stock >= 0)
);

CREATE TABLE IF NOT EXISTS orders (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id    TEXT    NOT NULL,
    status     TEXT    NOT NULL CHECK (status IN ('pending', 'paid', 'declined')),
    currency   TEXT    NOT NULL,
    amount     INTEGER NOT NULL,
    -- The key under which the gateway knows the charge, however often it is asked for it.
    charge_key TEXT    NOT NULL,
    -- The gateway's receipt, once paid.
    charge_id  TEXT,
    created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE INDEX IF NOT EXISTS orders_of_user ON orders (user_id, id);
CREATE UNIQUE INDEX IF NOT EXISTS orders_by_charge ON orders (charge_key);
-- What is still to be charged.
CREATE INDEX IF NOT EXISTS orders_due ON orders (id) WHERE status = 'pending';

CREATE TABLE IF NOT EXISTS order_items (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    item_id  INTEGER NOT NULL REFERENCES items (id),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (order_id, item_id)
);

-- What was paid besides the price, such as a tip.
CREATE TABLE IF NOT EXISTS payments (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    order_id   INTEGER NOT NULL REFERENCES orders (id),
    amount     INTEGER NOT NULL CHECK (amount > 0),
    -- One payment for one charge, whoever enters it.
    charge_key TEXT    NOT NULL UNIQUE,
    charge_id  TEXT    NOT NULL,
    created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE INDEX IF NOT EXISTS payments_of_order ON payments (order_id, id);

-- One item to sell all day, one that runs out, one that no card in this demonstration can pay.
INSERT OR IGNORE INTO items (id, name, price, stock) VALUES
    (42, 'Towel',         1500, 1000000),
    (7,  'Last tickets',   990,       3),
    (13, 'Grand piano', 900000,       5);
