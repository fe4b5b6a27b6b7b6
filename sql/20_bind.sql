-- Bindings. Functions whose names begin with an underscore are internal: nobody calls them but cortex. The
-- others are granted by an administrator; what a caller may bind is checked inside.
REVOKE ALL ON FUNCTION cortex._touch() FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._content_hash(bytea, text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._random_key() FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._change_id(integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._load_batch(integer, text[], integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION cortex._reconcile_batch(jsonb, integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cortex_bind(regclass, name[], name, name, text, name[], text, text, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cortex_unbind(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cortex_pause(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cortex_resume(text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cortex_reconcile(text, text) FROM PUBLIC;

-- One row for each binding of the namespaces that the caller may read.
CREATE VIEW cortex.bindings AS
SELECT n.name AS namespace,
       b.name,
       b.relation,
       b.key_columns,
       b.text_columns,
       b.mode,
       CASE WHEN h.reason IS NOT NULL THEN 'held'
            WHEN EXISTS (SELECT FROM cortex.job j
                          WHERE j.kind = 'load' AND (j.payload ->> 'binding')::pg_catalog.int4 = b.id) THEN 'loading'
            ELSE 'active' END AS state,
       h.reason AS hold_reason,
       h.detail AS hold_detail,
       (SELECT pg_catalog.count(*)
          FROM cortex.source s
          JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL
         WHERE s.binding_id = b.id) AS rows_known,
       (SELECT pg_catalog.count(*)
          FROM cortex.source s
          JOIN cortex.source_version v ON v.source_id = s.id AND v.closed_by IS NULL
         WHERE s.binding_id = b.id
           AND NOT EXISTS (SELECT FROM cortex.document d WHERE d.version_id = v.id)) AS versions_pending
  FROM cortex.binding b
  JOIN cortex.namespace n ON n.id = b.namespace_id
  LEFT JOIN LATERAL (
       SELECT h.reason, h.detail FROM cortex.hold h
        WHERE h.binding_id = b.id AND h.released_by IS NULL
        ORDER BY pg_catalog.array_position(ARRAY['unbound', 'paused', 'fault', 'needs_reconcile'], h.reason), h.id
        LIMIT 1) h ON true
 WHERE (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = CURRENT_USER)
    OR EXISTS (SELECT FROM cortex.namespace_grant g
                WHERE g.namespace_id = n.id AND pg_catalog.pg_has_role(g.role, 'usage'));
