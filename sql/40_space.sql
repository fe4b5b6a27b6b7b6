-- Namespaces, embedding spaces and vectors.

CREATE FUNCTION cortex_create_namespace(name text) RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN cortex._namespace(name);
END
$$;

-- A namespace by name: the named one, made if it is missing.
CREATE FUNCTION cortex._namespace(wanted text) RETURNS integer
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_id integer;
BEGIN
    IF wanted IS NULL OR wanted = '' OR octet_length(wanted) > 200 THEN
        RAISE EXCEPTION 'a namespace is named by 1 to 200 bytes, not %', coalesce(octet_length(wanted)::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO cortex.installation DEFAULT VALUES ON CONFLICT ON CONSTRAINT installation_pkey DO NOTHING;
    INSERT INTO cortex.namespace (name, secret) VALUES (wanted, cortex._random_key())
        ON CONFLICT ON CONSTRAINT namespace_name_key DO NOTHING RETURNING id INTO found_id;
    IF found_id IS NULL THEN
        SELECT id INTO found_id FROM cortex.namespace WHERE name = wanted;
    END IF;
    RETURN found_id;
END
$$;

CREATE FUNCTION cortex._namespace_must(wanted text) RETURNS integer
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_id integer;
BEGIN
    SELECT id INTO found_id FROM cortex.namespace WHERE name = wanted;
    IF found_id IS NULL THEN
        RAISE EXCEPTION 'there is no namespace "%"', wanted USING ERRCODE = 'undefined_object',
            HINT = 'cortex_bind, cortex_source_put and cortex_create_namespace make one.';
    END IF;
    RETURN found_id;
END
$$;

-- May search, read, ask and verify in a namespace. What rows of bound tables a role is shown still follows
-- its own rights on the table.
CREATE FUNCTION cortex_grant(namespace text, role regrole) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    signature text;
BEGIN
    PERFORM cortex._given_role(role);
    INSERT INTO cortex.namespace_grant (namespace_id, role)
    VALUES (cortex._namespace_must(namespace), role) ON CONFLICT ON CONSTRAINT namespace_grant_pkey DO NOTHING;
    FOR signature IN SELECT cortex._signatures('reader') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', signature, role);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA cortex TO %s', role);
    EXECUTE format('GRANT SELECT ON %s TO %s', cortex._reader_views(), role);
END
$$;

CREATE FUNCTION cortex_revoke(namespace text, role regrole) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM cortex.namespace_grant g
     WHERE g.namespace_id = cortex._namespace_must(cortex_revoke.namespace) AND g.role = cortex_revoke.role;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'role % has no grant on namespace "%"', role, namespace USING ERRCODE = 'undefined_object';
    END IF;
    IF NOT EXISTS (SELECT FROM cortex.namespace_grant g WHERE g.role = cortex_revoke.role) THEN
        PERFORM cortex._take_rights(role, 'reader', 'worker');
        EXECUTE format('REVOKE SELECT ON %s FROM %s', cortex._reader_views(), role);
    END IF;
END
$$;

-- Takes the functions of one audience from a role, but for those that it has as a member of the other.
CREATE FUNCTION cortex._take_rights(role regrole, audience text, other text) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    signature text;
    own_functions constant text[] := ARRAY(SELECT cortex._signatures(audience));
    other_functions constant text[] := ARRAY(SELECT cortex._signatures(other));
    -- Granted to the role itself, for something that only the other audience has.
    is_other constant boolean := EXISTS (
        SELECT FROM pg_proc p, aclexplode(p.proacl) a
         WHERE p.oid = ANY (other_functions::regprocedure[]) AND p.oid <> ALL (own_functions::regprocedure[]) AND a.grantee = role);
BEGIN
    FOREACH signature IN ARRAY own_functions LOOP
        IF NOT (is_other AND signature = ANY (other_functions)) THEN
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM %s', signature, role);
        END IF;
    END LOOP;
    IF NOT is_other THEN
        EXECUTE format('REVOKE USAGE ON SCHEMA cortex FROM %s', role);
    END IF;
END
$$;

-- The reverse of cortex_grant_worker.
CREATE FUNCTION cortex_revoke_worker(role regrole) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM cortex._given_role(role);
    PERFORM cortex._take_rights(role, 'worker', 'reader');
END
$$;

CREATE FUNCTION cortex._given_role(role regrole) RETURNS void
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF role IS NULL OR role = 0 THEN
        RAISE EXCEPTION 'role is NULL' USING ERRCODE = 'null_value_not_allowed';
    END IF;
END
$$;

-- May run the functions of a worker, in all namespaces.
CREATE FUNCTION cortex_grant_worker(role regrole) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    signature text;
BEGIN
    PERFORM cortex._given_role(role);
    FOR signature IN SELECT cortex._signatures('worker') LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', signature, role);
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA cortex TO %s', role);
END
$$;

-- The views that readers may see.
CREATE FUNCTION cortex._reader_views() RETURNS text
    LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$ SELECT 'cortex.namespaces, cortex.bindings, cortex.traces, cortex.asks, cortex.jobs, cortex.pool_stats' $$;

-- The public functions by who needs them.
CREATE FUNCTION cortex._signatures(audience text) RETURNS SETOF text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.oid::regprocedure::text
      FROM pg_depend d
      JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'cortex'
      JOIN pg_proc p ON p.oid = d.objid
     WHERE d.deptype = 'e' AND d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
       AND p.proname = ANY (CASE audience
           WHEN 'reader' THEN ARRAY['cortex_search', 'cortex_read', 'cortex_read_log', 'cortex_ask', 'cortex_verify',
                                    'cortex_ask_open', 'cortex_ask_round', 'cortex_ask_select', 'cortex_ask_refine', 'cortex_ask_answer',
                                    'cortex_ask_close', 'cortex_ask_abandon', 'cortex_verify_all', 'cortex_explain', 'cortex_dossier', 'cortex_trace_evidence',
                                    'cortex_drift', 'cortex_trace', 'cortex_has_source', 'cortex_source_list', 'cortex_version',
                                    'cortex_build_want', 'cortex_drill', 'cortex_unit_claims', 'cortex_events', 'cortex_stats']
           WHEN 'worker' THEN ARRAY['cortex_seal', 'cortex_work', 'cortex_job_take', 'cortex_job_run',
                                    'cortex_job_heartbeat', 'cortex_job_fail', 'cortex_job_retry', 'cortex_embed_take', 'cortex_embed_commit',
                                    'cortex_build_take', 'cortex_build_commit', 'cortex_build_fail',
                                    'cortex_unit_evict', 'cortex_pool_purge', 'cortex_gate_measure', 'cortex_index_measure',
                                    'cortex_space_register', 'cortex_space_wanting', 'cortex_space_use', 'cortex_source_put',
                                    'cortex_source_changed', 'cortex_source_deleted', 'cortex_has_source', 'cortex_source_list',
                                    'cortex_version', 'cortex_health', 'cortex_verify_all', 'cortex_audit']
           END)
     ORDER BY 1
$$;

-- The space of a model, made on first sight: one narrow, insert-only table with its own HNSW index for each
-- kind of item. An ordinary table, because pg_dump loses indexes added later to an extension's tables.
CREATE FUNCTION cortex_space_register(model text, revision text, digest text, dims integer,
                                      normalised boolean DEFAULT true, prefix text DEFAULT '') RETURNS integer
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    space integer;
    vector_schema text;
    kind record;
BEGIN
    IF coalesce(model, '') = '' OR revision IS NULL OR digest IS NULL OR normalised IS NULL OR prefix IS NULL THEN
        RAISE EXCEPTION 'a space needs model, revision, digest, normalised and prefix, and the model''s name cannot be empty'
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF dims IS NULL OR dims NOT BETWEEN 1 AND 2000 THEN
        RAISE EXCEPTION 'a space of % dimensions cannot be indexed: pgvector''s HNSW takes 1 to 2000', dims
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use a smaller model, or one that can be cut to fewer dimensions.';
    END IF;
    PERFORM pg_advisory_xact_lock(1668248696, 2);
    SELECT s.id INTO space FROM cortex.space s
     WHERE s.model = model AND s.revision = revision AND s.digest = digest AND s.dims = dims
       AND s.normalised = normalised AND s.prefix = prefix;
    IF FOUND THEN
        RETURN space;
    END IF;
    INSERT INTO cortex.space (model, revision, digest, dims, normalised, prefix)
    VALUES (model, revision, digest, dims, normalised, prefix) RETURNING id INTO space;
    SELECT n.nspname INTO vector_schema
      FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
    EXECUTE format($ddl$
        CREATE TABLE cortex.%1$I (
            item_id bigint NOT NULL,
            version_id bigint NOT NULL,
            added_by bigint NOT NULL,
            namespace_id integer NOT NULL,
            target "char" NOT NULL,
            embedding %2$I.vector(%3$s) NOT NULL,
            CONSTRAINT %4$I PRIMARY KEY (item_id),
            CONSTRAINT %5$I CHECK (target IN ('k', 'c'))
        )$ddl$, 'emb_' || space, vector_schema, dims, format('emb_%s_pkey', space), format('emb_%s_target_check', space));
    EXECUTE format('CREATE INDEX %I ON cortex.%I (namespace_id, target)', format('emb_%s_scope_idx', space), 'emb_' || space);
    PERFORM cortex._space_pack(space, dims);
    FOR kind IN SELECT * FROM (VALUES ('k', 'chunk'), ('c', 'claim')) k (letter, name) LOOP
        -- pgvector below 0.8.4 has faults in parallel HNSW builds; one process is enough for an empty table.
        -- Measured on 22,000 clustered vectors: ef_construction 64, the default, gives a recall of .956 for queries
        -- like the data and .83 for others; 128 gives 1.000 and .96 for a sixth more time.
        EXECUTE format('CREATE INDEX %I ON cortex.%I USING hnsw (embedding %I.vector_cosine_ops) '
                       'WITH (ef_construction = 128) WHERE target = %L',
                       format('emb_%s_%s_hnsw', space, kind.name), 'emb_' || space, vector_schema, kind.letter);
    END LOOP;
    RETURN space;
END
$$;

-- The one-byte copies of a space's vectors, from which exact reads nominate: about twenty to a row, a row to a page.
-- A trigger makes them, so that no vector is without its copy, whoever stores it. What the copies are is said in
-- core/src/packed.rs; they decide nothing, since every score comes from the vector itself.
CREATE FUNCTION cortex._space_pack(space integer, dims integer) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part text;
BEGIN
    -- Of items that are served no more, only replays ask: their copies move to a table of their own.
    FOREACH part IN ARRAY ARRAY['pack_' || space, 'pack_' || space || '_old'] LOOP
        -- In the row's page and as it is: compressed or moved out, a scan would pay for every block.
        EXECUTE format('CREATE TABLE cortex.%I (namespace_id integer NOT NULL, target "char" NOT NULL, block bytea STORAGE PLAIN NOT NULL)', part);
        EXECUTE format('CREATE INDEX %I ON cortex.%I (namespace_id, target)', part || '_scope_idx', part);
    END LOOP;
    EXECUTE format('CREATE TRIGGER cortex_pack AFTER INSERT ON cortex.%I REFERENCING NEW TABLE AS made FOR EACH STATEMENT '
                   'EXECUTE FUNCTION cortex._pack_new(%L, %L)', 'emb_' || space, 'pack_' || space, cortex._pack_capacity(dims));
    EXECUTE format('ALTER TABLE cortex.%I ENABLE ALWAYS TRIGGER cortex_pack', 'emb_' || space);
END
$$;

CREATE FUNCTION cortex._pack_new() RETURNS trigger
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format($q$
        INSERT INTO cortex.%I (namespace_id, target, block)
        SELECT m.namespace_id, m.target,
               cortex._pack(array_agg(m.item_id ORDER BY m.item_id), array_agg(m.embedding::real[] ORDER BY m.item_id))
          FROM (SELECT item_id, namespace_id, target, embedding,
                       (row_number() OVER (PARTITION BY namespace_id, target ORDER BY item_id) - 1) / %s AS block FROM made) m
         GROUP BY m.namespace_id, m.target, m.block$q$, TG_ARGV[0], TG_ARGV[1]::integer);
    RETURN NULL;
END
$$;

-- Makes `space` the one that reads of a namespace use. While the present space has vectors to serve, it goes on
-- serving: the vectors that `space` lacks are queued, new items are embedded in both, and whoever stores the last
-- missing vector switches. The switch is one row: readers see the old space or the new one, never both.
CREATE FUNCTION cortex_space_use(namespace text, space integer) RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ns constant integer := cortex._namespace_must(namespace);
    held cortex.namespace;
    serves boolean := false;
    queued bigint;
BEGIN
    PERFORM FROM cortex.space s WHERE s.id = space;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no embedding space %', space USING ERRCODE = 'undefined_object',
            HINT = 'cortex_space_register makes one.';
    END IF;
    PERFORM cortex._space_lock(ns, 'cortex_space_use()');
    SELECT * INTO held FROM cortex.namespace n WHERE n.id = ns FOR UPDATE;
    IF space IN (held.space_id, held.next_space_id) THEN
        -- The space in use again: a switch under way is called off.
        IF space = held.space_id AND held.next_space_id IS NOT NULL THEN
            UPDATE cortex.namespace n SET next_space_id = NULL WHERE n.id = ns;
            PERFORM cortex._space_dequeue(ns, held.next_space_id);
        END IF;
        RETURN jsonb_build_object('space', space, 'previous', held.space_id, 'already', true, 'queued', 0,
                                  'switched', space = held.space_id);
    END IF;
    IF held.next_space_id IS NOT NULL THEN
        PERFORM cortex._space_dequeue(ns, held.next_space_id);
    END IF;
    WITH missing AS (
        SELECT i.id, (row_number() OVER (ORDER BY i.id) - 1) / 2000 AS slice FROM cortex._space_missing(ns, space) AS i (id)
    ), made AS (
        INSERT INTO cortex.job (namespace_id, kind, payload, total)
        SELECT ns, 'embed', jsonb_build_object('space', space, 'from', min(id), 'to', max(id)), count(*)
          FROM missing GROUP BY slice
        RETURNING total
    )
    SELECT coalesce(sum(total), 0) INTO queued FROM made;
    IF held.space_id IS NOT NULL AND queued > 0 THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM cortex.%I e WHERE e.namespace_id = $1)', 'emb_' || held.space_id)
            INTO serves USING ns;
    END IF;
    IF serves THEN
        UPDATE cortex.namespace n SET next_space_id = space WHERE n.id = ns;
    ELSE
        UPDATE cortex.namespace n SET space_id = space, next_space_id = NULL WHERE n.id = ns;
        PERFORM cortex._space_dequeue(ns, held.space_id);
    END IF;
    RETURN jsonb_build_object('space', space, 'previous', held.space_id, 'already', false, 'queued', queued,
                              'switched', NOT serves);
END
$$;

-- Namespaces that have no embedding space, for a worker that has one to give.
CREATE FUNCTION cortex_space_wanting() RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT n.name FROM cortex.namespace n WHERE n.space_id IS NULL ORDER BY n.name;
END;

-- Waits for all who are storing items of the namespace ('cory'), and keeps others from it until the commit.
CREATE FUNCTION cortex._space_lock(ns integer, caller text) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A snapshot older than the lock would miss what was stored meanwhile.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION '% runs in READ COMMITTED only, and this transaction is %',
            caller, upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state', HINT = 'Call it in a transaction of its own.';
    END IF;
    PERFORM pg_advisory_xact_lock(1668248697, ns);
END
$$;

-- Items of current versions that have no vector in a space.
CREATE FUNCTION cortex._space_missing(ns integer, space integer) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE format($q$
        SELECT i.id FROM (SELECT id, version_id FROM cortex.chunk WHERE namespace_id = $1
                          UNION ALL SELECT id, version_ids[1] FROM cortex.claim WHERE namespace_id = $1) i
          JOIN cortex.source_version v ON v.id = i.version_id AND v.closed_by IS NULL
         WHERE NOT EXISTS (SELECT FROM cortex.%I e WHERE e.item_id = i.id)$q$, 'emb_' || space) USING ns;
END
$$;

-- About how many copies of vectors a space holds for reads of now, by the size of their table.
CREATE FUNCTION cortex._space_items(space integer, dims integer) RETURNS bigint
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_relation_size(to_regclass('cortex.pack_' || $1)) / current_setting('block_size')::integer * cortex._pack_capacity($2)
$$;

-- Queues the upkeep of a space whose copies have doubled since the last one, at most every ten minutes.
CREATE FUNCTION cortex._upkeep_queue(ns integer, space integer) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO cortex.job (namespace_id, kind, payload)
    SELECT $1, 'upkeep', jsonb_build_object('space', s.id)
      FROM cortex.space s
     WHERE s.id = $2 AND cortex._space_items(s.id, s.dims) > 2 * coalesce(s.copied_items, 0) + 10000
       AND (s.upkeep_at IS NULL OR s.upkeep_at < clock_timestamp() - interval '10 minutes' OR s.index_items IS NULL)
    ON CONFLICT DO NOTHING
$$;

-- Puts the copies of a namespace in order and measures the space's index where reads would ask it.
CREATE FUNCTION cortex._upkeep_run(ns integer, space integer) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known cortex.space;
    items bigint;
BEGIN
    PERFORM cortex._repack(ns, space);
    SELECT * INTO known FROM cortex.space s WHERE s.id = space;
    items := cortex._space_items(space, known.dims);
    IF items > (cortex._pool_settings(ns) ->> 'exact_items')::bigint AND items >= 2 * coalesce(known.index_items, 0) THEN
        PERFORM @extschema@.cortex_index_measure(n.name) FROM cortex.namespace n WHERE n.id = ns AND n.space_id = space;
    END IF;
END
$$;

-- Moves the copies of items that are served no more (their version closed, or their claims evicted) out of the way of
-- reads of now, and fills blocks that many small commits left half empty. Answers with what stays and what went.
CREATE FUNCTION cortex._repack(ns integer, space integer, OUT kept bigint, OUT moved bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    capacity constant integer := (SELECT cortex._pack_capacity(s.dims) FROM cortex.space s WHERE s.id = space);
BEGIN
    -- One statement: what a concurrent commit adds stays where it puts it.
    EXECUTE format($q$
        WITH gone AS (
            DELETE FROM cortex.%1$I p WHERE p.namespace_id = $1 RETURNING p.target, p.block
        ), item AS (
            SELECT DISTINCT g.target, i.id FROM gone g, unnest(cortex._pack_items(g.block)) i (id)
        ), known AS MATERIALIZED (
            SELECT item.target, e.item_id, e.embedding,
                   v.closed_by IS NULL AND (item.target = 'k' OR EXISTS (
                       SELECT FROM cortex.claim c JOIN cortex.unit u ON u.id = c.unit_id
                        WHERE c.id = e.item_id AND u.evicted_by IS NULL)) AS served
              FROM item JOIN cortex.%2$I e ON e.item_id = item.id JOIN cortex.source_version v ON v.id = e.version_id
        ), part AS (
            SELECT k.*, (row_number() OVER (PARTITION BY k.served, k.target ORDER BY k.item_id) - 1) / $2 AS block FROM known k
        ), made AS (
            SELECT p.served, p.target, cortex._pack(array_agg(p.item_id ORDER BY p.item_id),
                                                    array_agg(p.embedding::real[] ORDER BY p.item_id)) AS block
              FROM part p GROUP BY p.served, p.target, p.block
        ), here AS (
            INSERT INTO cortex.%1$I (namespace_id, target, block) SELECT $1, m.target, m.block FROM made m WHERE m.served
        ), there AS (
            INSERT INTO cortex.%3$I (namespace_id, target, block) SELECT $1, m.target, m.block FROM made m WHERE NOT m.served
        )
        SELECT count(*) FILTER (WHERE k.served), count(*) FILTER (WHERE NOT k.served) FROM known k$q$,
        'pack_' || space, 'emb_' || space, 'pack_' || space || '_old') INTO kept, moved USING ns, capacity;
    UPDATE cortex.space s SET copied_items = _repack.kept, upkeep_at = clock_timestamp() WHERE s.id = space;
END
$$;

-- Takes back the embed jobs of a space that a namespace no longer wants. A running one ends by itself.
CREATE FUNCTION cortex._space_dequeue(ns integer, space integer) RETURNS void
    LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    DELETE FROM cortex.job j
     WHERE j.namespace_id = ns AND j.kind = 'embed' AND j.state <> 'running' AND (j.payload ->> 'space')::integer = space;
END;

-- Called by whoever ends an embed job: puts the next space of the namespace to use if it lacks nothing now.
CREATE FUNCTION cortex._space_switch(ns integer, space integer) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held cortex.namespace;
BEGIN
    PERFORM FROM cortex.namespace n WHERE n.id = ns AND n.next_space_id = space;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM cortex._space_lock(ns, 'the last commit of an embed job');
    SELECT * INTO held FROM cortex.namespace n WHERE n.id = ns FOR UPDATE;
    IF held.next_space_id IS DISTINCT FROM space OR EXISTS (SELECT FROM cortex._space_missing(ns, space)) THEN
        RETURN false;
    END IF;
    UPDATE cortex.namespace n SET space_id = space, next_space_id = NULL WHERE n.id = ns;
    PERFORM cortex._space_dequeue(ns, held.space_id);
    RETURN true;
END
$$;

-- The next texts of an embed job: items of current versions without a vector, each with its title and date for context.
-- None left: the job is done with the next commit.
CREATE FUNCTION cortex_embed_take(job_id bigint, worker text, batch integer DEFAULT 256)
    RETURNS TABLE (item_id bigint, body text)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held cortex.job := cortex._job_held(job_id, worker);
BEGIN
    IF batch IS NULL OR batch NOT BETWEEN 1 AND 4096 THEN
        RAISE EXCEPTION 'a batch of % is outside 1 to 4096', batch USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF held.kind <> 'embed' THEN
        RAISE EXCEPTION 'job % is of kind %, not embed', job_id, held.kind USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN QUERY EXECUTE format($q$
        SELECT i.id, cortex._embedding_text(d.title, d.dated, i.body)
          FROM unnest($2::int8multirange) r (ids)
          CROSS JOIN LATERAL (
                SELECT c.id, c.body, c.version_id FROM cortex.chunk c
                 WHERE c.namespace_id = $1 AND c.id >= lower(r.ids) AND c.id < upper(r.ids)
                UNION ALL
                SELECT c.id, c.body, c.version_ids[1] FROM cortex.claim c
                 WHERE c.namespace_id = $1 AND c.id >= lower(r.ids) AND c.id < upper(r.ids)) i
          JOIN cortex.source_version v ON v.id = i.version_id AND v.closed_by IS NULL
          JOIN cortex.document d ON d.version_id = i.version_id
         WHERE NOT EXISTS (SELECT FROM cortex.%I e WHERE e.item_id = i.id)
         ORDER BY i.id LIMIT $3$q$, 'emb_' || (held.payload ->> 'space')::integer)
        USING held.namespace_id, cortex._embed_ids(held.payload), batch;
END
$$;

-- Stores vectors of an embed job; with empty arrays, ends it. An item of a version closed meanwhile is skipped.
CREATE FUNCTION cortex_embed_commit(job_id bigint, worker text, item_ids bigint[], embeddings vector[]) RETURNS jsonb
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held cortex.job := cortex._job_held(job_id, worker);
    space cortex.space;
    stored bigint := 0;
    given constant integer := coalesce(cardinality(item_ids), 0);
BEGIN
    IF held.kind <> 'embed' THEN
        RAISE EXCEPTION 'job % is of kind %, not embed', job_id, held.kind USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO space FROM cortex.space s WHERE s.id = (held.payload ->> 'space')::integer;
    IF given <> coalesce(cardinality(embeddings), 0) THEN
        RAISE EXCEPTION '% items and % embeddings', given, coalesce(cardinality(embeddings), 0)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF given = 0 THEN
        DELETE FROM cortex.job j WHERE j.id = held.id;
        PERFORM cortex._upkeep_queue(held.namespace_id, space.id);
        RETURN jsonb_build_object('stored', 0, 'skipped', 0, 'done', true,
                                  'switched', cortex._space_switch(held.namespace_id, space.id));
    END IF;
    EXECUTE format($q$
        WITH given AS (
            SELECT u.item_id, u.embedding FROM unnest($1, $2) AS u (item_id, embedding)
        ), item AS (
            SELECT c.id, 'k'::"char" AS target, c.version_id FROM cortex.chunk c JOIN given g ON g.item_id = c.id
             WHERE c.namespace_id = $3 AND c.id <@ $4::int8multirange
            UNION ALL
            SELECT c.id, 'c', c.version_ids[1] FROM cortex.claim c JOIN given g ON g.item_id = c.id
             WHERE c.namespace_id = $3 AND c.id <@ $4::int8multirange
        ), made AS (
            INSERT INTO cortex.%1$I (item_id, version_id, added_by, namespace_id, target, embedding)
            SELECT item.id, item.version_id, (SELECT cortex._change_id($3)), $3, item.target,
                   CASE WHEN cortex._vector_fits(given.embedding, $5, item.id) THEN given.embedding END
              FROM item JOIN given ON given.item_id = item.id
              JOIN cortex.source_version v ON v.id = item.version_id AND v.closed_by IS NULL
            ON CONFLICT ON CONSTRAINT %2$I DO NOTHING
            RETURNING item_id
        )
        SELECT count(*) FROM made$q$, 'emb_' || space.id, format('emb_%s_pkey', space.id))
        INTO stored
        USING item_ids, embeddings, held.namespace_id, cortex._embed_ids(held.payload), space.dims;
    UPDATE cortex.job j SET progress = j.progress + given, lease_until = greatest(j.lease_until, clock_timestamp() + interval '60 seconds')
     WHERE j.id = held.id;
    RETURN jsonb_build_object('stored', stored, 'skipped', given - stored, 'done', false);
END
$$;
