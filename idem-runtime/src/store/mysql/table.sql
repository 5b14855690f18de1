-- The table's comment, which holds the version of its schema, if the table is there.
--
-- database, or NULL for the connection's; table
SELECT t.table_comment AS marker
FROM information_schema.tables AS t
WHERE t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ?
