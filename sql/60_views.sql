-- Views for people. Each shows the namespaces that its reader was granted; superusers see all.
-- They are security barriers, or a leaky function in a query would see rows before they are withheld.
-- Views read with the rights of their owner and CURRENT_USER is who asks, so readers need no right on the tables.
-- The namespaces that the reader may see. Not granted: the views below stand on it.
CREATE VIEW cortex._readable AS
SELECT n.id
  FROM cortex.namespace n
 WHERE (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = CURRENT_USER)
    OR EXISTS (SELECT FROM cortex.namespace_grant g
                WHERE g.namespace_id = n.id AND pg_catalog.pg_has_role(g.role, 'usage'));

CREATE VIEW cortex.namespaces WITH (security_barrier) AS
SELECT n.name AS namespace,
       n.space_id AS space,
       n.next_space_id AS next_space,
       s.model,
       s.dims,
       (SELECT count(*) FROM cortex.source o WHERE o.namespace_id = n.id) AS sources,
       (SELECT count(*) FROM cortex.source o JOIN cortex.source_version v ON v.source_id = o.id AND v.closed_by IS NULL
         WHERE o.namespace_id = n.id) AS versions_current,
       coalesce(last.chunk_count, 0) AS chunks,
       coalesce(last.claim_count, 0) AS claims,
       (SELECT coalesce(sum(greatest(j.total - j.progress, 1)), 0) FROM cortex.job j
         WHERE j.namespace_id = n.id AND j.kind IN ('load', 'chunk') AND j.state <> 'dead')::bigint AS pending_chunk,
       (SELECT coalesce(sum(greatest(j.total - j.progress, 1)), 0) FROM cortex.job j
         WHERE j.namespace_id = n.id AND j.kind = 'embed' AND j.state <> 'dead')::bigint AS pending_embed,
       (SELECT count(*) FROM cortex.job j WHERE j.namespace_id = n.id AND j.state = 'dead') AS dead_jobs,
       (SELECT coalesce(max(c.seq), 0) FROM cortex.change c WHERE c.namespace_id = n.id) AS seq,
       (SELECT count(*) FROM cortex.change c WHERE c.namespace_id = n.id AND c.seq IS NULL) AS unsealed
  FROM cortex.namespace n
  LEFT JOIN cortex.space s ON s.id = n.space_id
  LEFT JOIN LATERAL (SELECT * FROM cortex.seal l WHERE l.namespace_id = n.id ORDER BY l.seq DESC LIMIT 1) last ON true
 WHERE n.id IN (SELECT id FROM cortex._readable);

-- Every claim with its first source, served or not.
CREATE VIEW cortex.claims WITH (security_barrier) AS
SELECT n.name AS namespace,
       c.id AS claim_id,
       s.artifact_id,
       v.id AS version_id,
       c.body,
       c.start_bytes[1] AS start_byte,
       c.end_bytes[1] AS end_byte,
       NOT EXISTS (SELECT FROM cortex.source_version o WHERE o.id = ANY (c.version_ids) AND o.closed_by IS NOT NULL)
           AND NOT EXISTS (SELECT FROM cortex.source_version o JOIN cortex.source os ON os.id = o.source_id
                             JOIN cortex.hold h ON h.binding_id = os.binding_id AND h.released_by IS NULL
                            WHERE o.id = ANY (c.version_ids))
           AND NOT EXISTS (SELECT FROM cortex.unit u WHERE u.id = c.unit_id AND u.evicted_by IS NOT NULL) AS fresh
  FROM cortex.claim c
  JOIN cortex.namespace n ON n.id = c.namespace_id
  JOIN cortex.source_version v ON v.id = c.version_ids[1]
  JOIN cortex.source s ON s.id = v.source_id
 WHERE n.id IN (SELECT id FROM cortex._readable);

-- Claims that are no longer served, and why.
CREATE VIEW cortex.stale WITH (security_barrier) AS
SELECT n.name AS namespace,
       c.id AS claim_id,
       s.artifact_id,
       v.id AS version_id,
       c.body,
       coalesce(closing.id, evicting.id) AS closed_by,
       coalesce(closing.seq, evicting.seq) AS closed_seq,
       coalesce(closing.made_at, evicting.made_at, h.opened_at) AS closed_at,
       CASE WHEN closing.id IS NOT NULL THEN CASE WHEN next.id IS NULL THEN 'deleted' ELSE 'updated' END
            WHEN evicting.id IS NOT NULL THEN 'evicted'
            ELSE 'held: ' || h.reason END AS reason,
       next.id AS superseded_by
  FROM cortex.claim c
  JOIN cortex.namespace n ON n.id = c.namespace_id
  JOIN cortex.source_version v ON v.id = ANY (c.version_ids)
  JOIN cortex.source s ON s.id = v.source_id
  JOIN cortex.unit u ON u.id = c.unit_id
  LEFT JOIN cortex.change closing ON closing.id = v.closed_by
  LEFT JOIN cortex.change evicting ON evicting.id = u.evicted_by
  LEFT JOIN LATERAL (SELECT h.reason, h.opened_at FROM cortex.hold h
                      WHERE h.binding_id = s.binding_id AND h.released_by IS NULL ORDER BY h.id LIMIT 1) h ON true
  LEFT JOIN cortex.source_version next ON next.source_id = v.source_id AND next.closed_by IS NULL AND next.id <> v.id
 WHERE (closing.id IS NOT NULL OR evicting.id IS NOT NULL OR h.reason IS NOT NULL) AND n.id IN (SELECT id FROM cortex._readable);

-- Every unit: what was drawn from one source version for one purpose, and what it cost.
CREATE VIEW cortex.units WITH (security_barrier) AS
SELECT n.name AS namespace,
       u.id AS unit_id,
       s.artifact_id,
       u.version_id,
       u.purpose,
       u.builder,
       (SELECT count(*) FROM cortex.claim c WHERE c.unit_id = u.id) AS claims,
       CASE u.purpose WHEN 'model' THEN (SELECT count(*) FROM cortex.unit_chunk k WHERE k.unit_id = u.id)
            ELSE (SELECT d.chunk_count FROM cortex.document d WHERE d.version_id = u.version_id) END AS chunks_covered,
       (SELECT d.chunk_count FROM cortex.document d WHERE d.version_id = u.version_id) AS chunks,
       CASE WHEN u.evicted_by IS NOT NULL THEN 'evicted'
            WHEN v.closed_by IS NOT NULL THEN 'stale'
            WHEN EXISTS (SELECT FROM cortex.hold h WHERE h.binding_id = s.binding_id AND h.released_by IS NULL) THEN 'held'
            ELSE 'fresh' END AS state,
       cost.prompt_tokens,
       cost.completion_tokens,
       u.created_at
  FROM cortex.unit u
  JOIN cortex.namespace n ON n.id = u.namespace_id
  JOIN cortex.source s ON s.id = u.source_id
  JOIN cortex.source_version v ON v.id = u.version_id
 CROSS JOIN LATERAL (SELECT coalesce(sum(a.prompt_tokens), 0)::bigint AS prompt_tokens,
                            coalesce(sum(a.completion_tokens), 0)::bigint AS completion_tokens
                       FROM cortex.unit_addition a WHERE a.unit_id = u.id) cost
 WHERE n.id IN (SELECT id FROM cortex._readable);

-- Every counter; with a model where it counts a model's tokens.
CREATE VIEW cortex.pool_stats WITH (security_barrier) AS
SELECT n.name AS namespace,
       c.name AS counter,
       nullif(c.model, '') AS model,
       c.value
  FROM cortex._counted c
  JOIN cortex.namespace n ON n.id = c.namespace_id
 WHERE n.id IN (SELECT id FROM cortex._readable);

CREATE VIEW cortex.jobs WITH (security_barrier) AS
SELECT j.id AS job_id,
       n.name AS namespace,
       j.kind,
       j.state,
       j.attempts,
       j.progress,
       j.total,
       j.run_after,
       j.lease_until,
       j.worker,
       j.last_error,
       clock_timestamp() - j.created_at AS age
  FROM cortex.job j JOIN cortex.namespace n ON n.id = j.namespace_id
 WHERE n.id IN (SELECT id FROM cortex._readable);

-- A trace names the rows it used, so it is shown to its asker alone.
CREATE VIEW cortex.traces WITH (security_barrier) AS
SELECT t.id AS trace_id,
       n.name AS namespace,
       'b3:' || encode(t.root, 'hex') AS root,
       t.created_at,
       t.asked_by,
       t.body::jsonb AS body
  FROM cortex.trace t JOIN cortex.namespace n ON n.id = t.namespace_id
 WHERE n.id IN (SELECT id FROM cortex._readable)
   AND EXISTS (SELECT FROM pg_roles r WHERE r.rolname = current_user
                AND (r.rolsuper OR EXISTS (SELECT FROM pg_roles a WHERE a.rolname = t.asked_by AND pg_has_role(a.oid, 'usage'))));

-- The state of the whole installation in one row. The vector figure comes from a query that runs, since an
-- index that the catalog calls valid can still fail.
CREATE FUNCTION cortex_health() RETURNS jsonb
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    spaces jsonb := '[]';
    space record;
    answered bigint;
    vector_schema text;
    vector_version text;
BEGIN
    SELECT n.nspname, e.extversion INTO vector_schema, vector_version
      FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
    FOR space IN SELECT * FROM cortex.space ORDER BY id LOOP
        BEGIN
            EXECUTE format('SELECT count(*) FROM (SELECT e.item_id FROM cortex.%1$I e WHERE e.target = ''c'' '
                           'ORDER BY e.embedding OPERATOR(%2$I.<=>) (SELECT f.embedding FROM cortex.%1$I f LIMIT 1) LIMIT 3) near',
                           'emb_' || space.id, vector_schema) INTO answered;
            spaces := spaces || jsonb_build_object('space', space.id, 'model', space.model, 'dims', space.dims,
                'vectors', (SELECT greatest(c.reltuples, 0)::bigint FROM pg_class c WHERE c.oid = to_regclass('cortex.emb_' || space.id)),
                'query', 'ok', 'answered', answered);
        EXCEPTION WHEN OTHERS THEN
            spaces := spaces || jsonb_build_object('space', space.id, 'model', space.model, 'query', SQLERRM);
        END;
    END LOOP;
    RETURN jsonb_build_object(
        'extension', @extschema@.cortex_version(),
        'schema', (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'cortex'),
        'postgres', current_setting('server_version'),
        'pgvector', vector_version,
        'pgvector_warning', CASE WHEN string_to_array(vector_version, '.')::integer[] < ARRAY[0, 8, 4]
            THEN 'below 0.8.4: known HNSW faults in parallel build and vacuum; indexes are built without parallel workers' END,
        'recovery', pg_is_in_recovery(),
        'spaces', spaces,
        'namespaces', (SELECT count(*) FROM cortex.namespace),
        'unsealed', (SELECT count(*) FROM cortex.change WHERE seq IS NULL),
        'oldest_unsealed_seconds', (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(made_at)), 0)::float8 FROM cortex.change WHERE seq IS NULL),
        'jobs', (SELECT coalesce(jsonb_object_agg(kind || '_' || state, n), '{}') FROM (SELECT kind, state, count(*) AS n FROM cortex.job GROUP BY 1, 2) j),
        'dead_jobs', (SELECT count(*) FROM cortex.job WHERE state = 'dead'),
        'open_asks', (SELECT count(*) FROM cortex.ask),
        'failed_traces', (SELECT count(*) FROM cortex.trace_check WHERE NOT ok),
        'held_bindings', (SELECT count(DISTINCT binding_id) FROM cortex.hold WHERE released_by IS NULL AND reason <> 'unbound'),
        'not_chunked', (SELECT count(*) FROM cortex.document d JOIN cortex.source_version v ON v.id = d.version_id AND v.closed_by IS NULL WHERE d.note IS NOT NULL),
        'bytes', (SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = 'cortex' AND c.relkind IN ('r', 'S')));
END
$$;

CREATE VIEW cortex.health WITH (security_barrier) AS
SELECT h.* FROM jsonb_to_record(@extschema@.cortex_health()) AS h (
    extension text, schema text, postgres text, pgvector text, pgvector_warning text, recovery boolean, spaces jsonb,
    namespaces bigint, unsealed bigint, oldest_unsealed_seconds float8, jobs jsonb, dead_jobs bigint, open_asks bigint, failed_traces bigint,
    held_bindings bigint, not_chunked bigint, bytes bigint);
