-- Nothing is PUBLIC's. EXECUTE comes from cortex_grant and cortex_grant_worker, tables are read through the
-- functions and views. Whoever dumps the database as another role than the owner needs pg_read_all_data.
DO $rights$
DECLARE
    signature text;
BEGIN
    FOR signature IN
        SELECT p.oid::pg_catalog.regprocedure::text
          FROM pg_catalog.pg_depend d
          JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND e.extname = 'cortex'
          JOIN pg_catalog.pg_proc p ON p.oid = d.objid
         WHERE d.deptype = 'e' AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', signature);
    END LOOP;
END
$rights$;

-- What the planner should expect of them.
ALTER FUNCTION cortex_search(text, vector, integer, text, text, boolean) ROWS 10;
ALTER FUNCTION cortex_read(text, vector, integer, text, text, text, text) ROWS 1;
ALTER FUNCTION cortex_ask(text, vector, text, jsonb, text, text[]) ROWS 1;
ALTER FUNCTION cortex_ask_open(text, text, jsonb, vector, text, text[]) ROWS 1;
ALTER FUNCTION cortex_ask_round(bigint, vector) ROWS 80;
ALTER FUNCTION cortex_ask_close(bigint) ROWS 1;
