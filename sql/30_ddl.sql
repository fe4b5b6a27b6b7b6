-- Event triggers: no trigger of a table fires when DDL moves its rows. They collect what a command has done and
-- leave the judgement to the functions called here. A failure of theirs must not fail the user's command, so it
-- closes every binding instead, with the reason; errors that ask for a retry are the caller's and pass.

REVOKE ALL ON FUNCTION cortex._ddl_begins(boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._binding_flaws() FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._ddl_ended(oid[], oid[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._ddl_rewrites(oid, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._ddl_dropped(oid[], oid[], smallint[], boolean) FROM PUBLIC;

CREATE FUNCTION cortex._ddl_failed(failure text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    INSERT INTO cortex.hold (binding_id, reason, detail, opened_by)
    SELECT b.id, 'needs_reconcile', 'a command could not be followed: ' || failure, cortex._change_id(b.namespace_id)
      FROM cortex.binding b
     WHERE NOT EXISTS (SELECT FROM cortex.hold h
                        WHERE h.binding_id = b.id AND h.released_by IS NULL AND h.reason = 'unbound');
    RAISE WARNING 'cortex could not follow this command and holds all bindings back until cortex_reconcile has run: %', failure;
END
$function$;
REVOKE ALL ON FUNCTION cortex._ddl_failed(text) FROM PUBLIC;

CREATE FUNCTION cortex._on_ddl_begin() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    detaching boolean;
BEGIN
    -- DETACH ... CONCURRENTLY hides the partition's rows in a first transaction and ends in a second one, after
    -- which cortex_ddl_end fires. It cannot be part of anything larger, so the query is its text.
    detaching := current_query() ~* '\mdetach\M.*\mconcurrently\M';
    IF detaching OR EXISTS (SELECT FROM cortex.binding b WHERE b.column_relation <> b.relation::oid) THEN
        PERFORM cortex._ddl_begins(detaching);
    END IF;
EXCEPTION
    WHEN transaction_rollback OR lock_not_available OR operator_intervention THEN RAISE;
    WHEN OTHERS THEN PERFORM cortex._ddl_failed(SQLERRM);
END
$function$;
REVOKE ALL ON FUNCTION cortex._on_ddl_begin() FROM PUBLIC;

CREATE FUNCTION cortex._on_ddl_end() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    relations oid[];
    types oid[];
BEGIN
    IF NOT EXISTS (SELECT FROM cortex.binding) THEN
        RETURN;
    END IF;
    SELECT COALESCE(array_agg(COALESCE(t.tgrelid, i.indrelid, c.objid)) FILTER (WHERE c.classid <> 'pg_catalog.pg_type'::regclass), '{}'),
           COALESCE(array_agg(c.objid) FILTER (WHERE c.classid = 'pg_catalog.pg_type'::regclass), '{}')
      INTO relations, types
      FROM pg_event_trigger_ddl_commands() c
      LEFT JOIN pg_index i ON i.indexrelid = c.objid
      LEFT JOIN pg_trigger t ON c.classid = 'pg_catalog.pg_trigger'::regclass AND t.oid = c.objid
     WHERE NOT c.in_extension
       AND c.classid IN ('pg_catalog.pg_class'::regclass, 'pg_catalog.pg_type'::regclass, 'pg_catalog.pg_trigger'::regclass);
    IF relations <> '{}' OR types <> '{}' THEN
        PERFORM cortex._ddl_ended(relations, types);
    END IF;
EXCEPTION
    WHEN transaction_rollback OR lock_not_available OR operator_intervention THEN RAISE;
    WHEN OTHERS THEN PERFORM cortex._ddl_failed(SQLERRM);
END
$function$;
REVOKE ALL ON FUNCTION cortex._on_ddl_end() FROM PUBLIC;

CREATE FUNCTION cortex._on_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF EXISTS (SELECT FROM cortex.binding) THEN
        PERFORM cortex._ddl_rewrites(pg_event_trigger_table_rewrite_oid(), pg_event_trigger_table_rewrite_reason());
    END IF;
EXCEPTION
    WHEN transaction_rollback OR lock_not_available OR operator_intervention THEN RAISE;
    WHEN OTHERS THEN PERFORM cortex._ddl_failed(SQLERRM);
END
$function$;
REVOKE ALL ON FUNCTION cortex._on_rewrite() FROM PUBLIC;

CREATE FUNCTION cortex._on_drop() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    tables oid[];
    column_tables oid[];
    column_numbers smallint[];
    others boolean;
BEGIN
    -- DROP EXTENSION takes our own tables away before this fires.
    IF to_regclass('cortex.binding') IS NULL OR NOT EXISTS (SELECT FROM cortex.binding) THEN
        RETURN;
    END IF;
    SELECT COALESCE(array_agg(d.objid) FILTER (WHERE d.object_type = 'table'), '{}'),
           COALESCE(array_agg(d.objid) FILTER (WHERE d.object_type = 'table column'), '{}'),
           COALESCE(array_agg(d.objsubid::smallint) FILTER (WHERE d.object_type = 'table column'), '{}'),
           COALESCE(bool_or(d.object_type IN ('index', 'table constraint', 'trigger')
                            AND (d.original OR tg_tag <> 'DROP TABLE')), false)
      INTO tables, column_tables, column_numbers, others
      FROM pg_event_trigger_dropped_objects() d
     WHERE NOT d.is_temporary;
    IF tables <> '{}' OR column_tables <> '{}' OR others THEN
        PERFORM cortex._ddl_dropped(tables, column_tables, column_numbers, others);
    END IF;
EXCEPTION
    WHEN transaction_rollback OR lock_not_available OR operator_intervention THEN RAISE;
    WHEN OTHERS THEN PERFORM cortex._ddl_failed(SQLERRM);
END
$function$;
REVOKE ALL ON FUNCTION cortex._on_drop() FROM PUBLIC;

CREATE EVENT TRIGGER cortex_ddl_begin ON ddl_command_start
    WHEN TAG IN ('ALTER TABLE', 'CREATE TABLE', 'ALTER VIEW', 'ALTER TRIGGER', 'ALTER TYPE', 'DROP TABLE',
                 'DROP SCHEMA', 'DROP OWNED', 'DROP TYPE', 'DROP INDEX', 'DROP TRIGGER', 'DROP EXTENSION')
    EXECUTE FUNCTION cortex._on_ddl_begin();
CREATE EVENT TRIGGER cortex_ddl_end ON ddl_command_end
    WHEN TAG IN ('ALTER TABLE', 'CREATE TABLE', 'CREATE SCHEMA', 'ALTER VIEW', 'ALTER MATERIALIZED VIEW',
                 'CREATE INDEX', 'ALTER INDEX', 'ALTER FOREIGN TABLE', 'ALTER TRIGGER', 'ALTER TYPE')
    EXECUTE FUNCTION cortex._on_ddl_end();
CREATE EVENT TRIGGER cortex_rewrite ON table_rewrite EXECUTE FUNCTION cortex._on_rewrite();
CREATE EVENT TRIGGER cortex_drop ON sql_drop EXECUTE FUNCTION cortex._on_drop();
ALTER EVENT TRIGGER cortex_ddl_begin ENABLE ALWAYS;
ALTER EVENT TRIGGER cortex_ddl_end ENABLE ALWAYS;
ALTER EVENT TRIGGER cortex_rewrite ENABLE ALWAYS;
ALTER EVENT TRIGGER cortex_drop ENABLE ALWAYS;
