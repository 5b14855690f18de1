-- What is known of the table before it is used.
--
-- $1 its name, quoted as in a statement
SELECT to_regclass($1) IS NOT NULL AS present,
    obj_description(to_regclass($1), 'pg_class') AS marker
