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
    status     TEXT    NOT NULL CHECK (status IN ('pending', 'paid', 'declined', 'cancelled')),
    currency   TEXT    NOT NULL,
    amount     INTEGER NOT NULL,
    -- The key under which the gateway knows the charge: what to ask for if an order stays pending.
    charge_key TEXT    NOT NULL,
    -- The gateway's receipt, once paid.
    charge_id  TEXT,
    created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE INDEX IF NOT EXISTS orders_of_user ON orders (user_id, id);

CREATE TABLE IF NOT EXISTS order_items (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    item_id  INTEGER NOT NULL REFERENCES items (id),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (order_id, item_id)
);

-- One item to sell all day, one that runs out, one that no card in this demonstration can pay.
INSERT OR IGNORE INTO items (id, name, price, stock) VALUES
    (42, 'Towel',         1500, 1000000),
    (7,  'Last tickets',   990,       3),
    (13, 'Grand piano', 900000,       5);
