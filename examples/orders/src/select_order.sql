SELECT id, status, currency, amount, created_at,
       (SELECT json_group_array(json_object('id', item_id, 'quantity', quantity))
        FROM order_items WHERE order_id = orders.id) AS items,
       (SELECT json_group_array(json_object('payment_id', payments.id, 'order_id', order_id,
                                            'amount', payments.amount, 'charge_id', payments.charge_id))
        FROM payments WHERE order_id = orders.id) AS payments
FROM orders
