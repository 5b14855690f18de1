SELECT id, status, currency, amount, created_at,
       (SELECT json_group_array(json_object('id', item_id, 'quantity', quantity))
        FROM order_items WHERE order_id = orders.id) AS items
FROM orders
